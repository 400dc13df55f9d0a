"""npz files that numpy writes now, and what a large member costs and how its damage is found."""

import errno
import json
import os
import zipfile

import numpy as np
import pytest

from support import mounted, read_checked, run, walk_files

MIB = 1 << 20


def test_what_numpy_saves_is_what_numpy_loads(tmp_path):
    rng = np.random.default_rng(1)
    arrays = {
        "f4": rng.standard_normal((37, 11)).astype("<f4"), "scalar": np.float64(3), "empty": np.empty((0, 4)),
        "big": rng.integers(0, 1000, 50).astype(">i4"), "fortran": np.asfortranarray(rng.standard_normal((5, 6))),
        "record": np.zeros(3, [("a", "<i4"), ("b", "<f8", (2,))]), "text": np.array(["a", "größe"]),
        "long/name/of one": np.arange(7), "bool": np.array([True, False]),
    }
    np.savez(tmp_path / "plain.npz", **arrays)
    np.savez_compressed(tmp_path / "packed.npz", **arrays)
    with open(tmp_path / "streamed", "wb") as out:
        # Into a pipe: sizes stand behind the data, and in the directory.
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                np.savez(pipe, **arrays)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            out.write(pipe.read())
        os.wait()
    with mounted(tmp_path) as mnt:
        for file in ("plain.npz", "packed.npz", "streamed"):
            assert walk_files(mnt / file) == {f"{name}.npy" for name in arrays} | {"container.json"}
            with zipfile.ZipFile(tmp_path / file) as archive:
                for name, array in arrays.items():
                    assert read_checked(mnt / file / f"{name}.npy") == archive.read(f"{name}.npy")
                    loaded = np.load(mnt / file / f"{name}.npy")
                    assert loaded.dtype == array.dtype and np.array_equal(loaded, array)
        assert (mnt / ".shardfs/problems.jsonl").read_text() == ""
    assert run("verify", tmp_path).returncode == 0


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_directory_that_says_a_member_is_empty(save, tmp_path):
    """Its checksum is that of other bytes: numpy does not load it."""
    path = tmp_path / "x.npz"
    save(path, x=np.arange(5), y=np.arange(7))
    with zipfile.ZipFile(path) as archive:
        y = archive.getinfo("y.npy")
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\1\2")
    assert data[entry + 16:entry + 20] == y.CRC.to_bytes(4, "little")
    data[entry + 20:entry + 28] = bytes(8)
    path.write_bytes(data)
    with np.load(path) as loaded, pytest.raises(zipfile.BadZipFile):
        loaded["y"]
    done = run("cat", path / "y.npy")
    assert done.returncode == 1 and done.stdout == b"" and f"{y.CRC:08x}" in done.stderr
    [problem] = json.loads(run("verify", "--json", path).stdout)["problems"]
    assert problem["path"] == "y.npy"


def test_large_members_are_read_in_pieces(tmp_path):
    """Deflated and stored members of more than 64 MiB, whole and with a wrong checksum."""
    rows = np.zeros(65 * MIB // 8, dtype="<u8")
    rows[::4096] = np.arange(len(rows[::4096]))
    np.savez_compressed(tmp_path / "packed.npz", rows=rows)
    np.savez(tmp_path / "plain.npz", rows=rows)
    for name in ("packed", "plain"):
        data = bytearray((tmp_path / f"{name}.npz").read_bytes())
        with zipfile.ZipFile(tmp_path / f"{name}.npz") as archive:
            crc = archive.infolist()[0].CRC.to_bytes(4, "little")
        # In the local header and in the directory.
        (tmp_path / f"wrong_{name}.npz").write_bytes(data.replace(crc, bytes(byte ^ 1 for byte in crc)))
    with mounted(tmp_path, "--cache-size=256M") as mnt:
        for name in ("packed", "plain"):
            array = np.load(mnt / f"{name}.npz/rows.npy", mmap_mode="r")
            assert array[4096] == 1 and np.array_equal(array, rows)
            del array
            with open(mnt / f"wrong_{name}.npz/rows.npy", "rb") as file:
                with pytest.raises(OSError) as raised:
                    while file.read(8 * MIB):
                        pass
                assert raised.value.errno == errno.EIO
        problems = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        assert {problem["container"] for problem in problems} == {"wrong_packed.npz", "wrong_plain.npz"}
        assert all("checksum" in problem["message"] for problem in problems)
