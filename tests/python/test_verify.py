"""`shardfs verify`: it finds every damaged file, names the place, and says nothing of sound ones."""

import hashlib
import itertools
import json
import os
import re
import shutil
import threading
import zipfile
import zlib

import h5py
import kastore
import netCDF4
import numpy as np
import pytest
import tskit
import zstandard

from support import FAMILIES, FIXTURES, GOLDEN, RECORDINGS, TYPED, examples, load_expected, mounted, run
from support.stores import Store, failing_server
from support.writers import recordings, zip


def verify(*paths, code=None):
    done = run("verify", "--json", *paths, timeout=300)
    if code is not None:
        assert done.returncode == code, done.stderr + done.stdout.decode()
    return json.loads(done.stdout)


def is_sound(family, record):
    if family == "kdb":
        return record["file"]["open"] == "ok"
    if family == "idv":
        return record["open"] == "ok"
    if family in TYPED:
        # A part that can't be read, or a file that is meant to be a container and is none.
        return not record.get("problem") and not any("eio" in file for file in record.get("files", {}).values())
    if family in RECORDINGS:
        return record["expect"] == "container" and "chunks_damaged" not in record["container"] and not any(
            item.get("eio") or item["kind"] == "eio" for item in record["items"].values())
    if family == "wshard":
        return record["open"] == "accept" and all(b["status"] == "ok" for b in record["blocks"])
    # Bytes behind the last store of a kastore are a problem; KAST allows them.
    return record["expect"] == "ok" and not ("trailing_is" in record and family == "kastore")


@pytest.mark.parametrize("family", FAMILIES)
def test_golden_files(family):
    """All damaged files of a format and no others, by one run over the folder and one by one."""
    # What is an ordinary file and not worth a word is not counted.
    files = {rel: record for rel, record in load_expected(family).items()
             if record.get("expect") != "ordinary" or record.get("problem", True)}
    damaged = {str(GOLDEN / family / rel) for rel, record in files.items() if not is_sound(family, record)}
    assert family in ("kdb", "idv") or damaged
    result = verify(GOLDEN / family, code=1 if damaged else 0)
    found = {problem["container"] for problem in result["problems"]}
    assert found == damaged
    assert result["containers"] >= len(files) - len(damaged) and result["files"] > 0 and result["complete"]
    for path in damaged:
        alone = verify(path, code=1)
        assert {problem["container"] for problem in alone["problems"]} == {path}
    for rel in [rel for rel, record in files.items() if is_sound(family, record)][:5]:
        assert verify(GOLDEN / family / rel, code=0)["problems"] == []


def test_a_wrong_name_in_the_directory_of_an_archive(tmp_path):
    """A chunk with a wrong name seems to be missing, and elements without a chunk have the fill value."""
    path, kind = tmp_path / "x.zarr.zip", {"zarr_format": 2}
    array = kind | {"shape": [2], "chunks": [1], "dtype": "|i1", "fill_value": 0, "order": "C", "compressor": None,
                    "filters": None}
    path.write_bytes(zip.archive({".zgroup": json.dumps(kind).encode(), "x/.zarray": json.dumps(array).encode(),
                                  "x/0": b"\1", "x/1": b"\2"}))
    assert verify(path, code=0)["problems"] == []
    data = bytearray(path.read_bytes())
    data[data.rindex(b"x/1") + 2] = ord("p")
    path.write_bytes(data)
    (problem,) = verify(path, code=1)["problems"]
    assert problem["message"].startswith("x/p: its local header has another name")


def test_each_block_is_one_line():
    path = FIXTURES / "damaged/bad_crc.wshard"
    done = run("verify", path)
    assert done.returncode == 1
    first, summary = done.stdout.decode().splitlines()
    assert first.startswith(f"{path}: signal/joint_pos.npy, block 'signal/joint_pos', byte 2656: checksum is 0x")
    assert summary.startswith("1 problem: 1 container, ")
    assert done.stderr == "", "no progress where there is no terminal"


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_any_flipped_byte_of_a_block_is_found(writers, tmp_path, codec):
    """Every block has a checksum, so wherever a byte of one changes, that block and no other is named."""
    path = tmp_path / "ep.wshard"
    examples.write_episode(path, 1, codec)
    sound = path.read_bytes()
    assert verify(path, code=0)["problems"] == []
    rng = np.random.default_rng(3)
    expected = load_offsets(sound)
    for name, (offset, size) in expected.items():
        at = offset + int(rng.integers(0, size))
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x20]) + sound[at + 1:])
        blocks = {problem["block"] for problem in verify(path, code=1)["problems"]}
        # Metadata that can't be read is also a problem of the container as a whole.
        assert blocks == {name} or name.startswith("meta/") and blocks == {name, None}, (name, at)


def test_bytes_without_a_checksum_are_counted(tmp_path):
    """Of each file's bytes those that no checksum covers, by other readers of the formats."""
    model = FIXTURES / "model.safetensors"
    result = verify(model, code=0)
    assert result["stored"] == result["unchecked"] == model.stat().st_size
    arrays = FIXTURES / "arrays.npz"
    with zipfile.ZipFile(arrays) as archive:
        members = sum(info.compress_size for info in archive.infolist())
    result = verify(arrays, code=0)
    size = arrays.stat().st_size
    assert (result["stored"], result["unchecked"]) == (size, size - members)
    summary = run("verify", arrays).stdout.decode()
    assert re.search(r" read; [\d.]+ (B|KiB) of [\d.]+ KiB stored have no checksum\n$", summary), summary
    episode = FIXTURES / "ep_001.wshard"
    blocks = sorted(load_offsets(episode.read_bytes()).values())
    # What lies between two blocks counts with them up to 16 bytes.
    gaps = [after - (at + size) for (at, size), (after, _) in itertools.pairwise(blocks)]
    checked = sum(size for _, size in blocks) + sum(gap for gap in gaps if gap <= 16)
    assert verify(episode, code=0)["unchecked"] == episode.stat().st_size - checked
    # A file that is there twice counts once; a block whose checksum is wrong is not checked.
    both = tmp_path / "both"
    both.mkdir()
    shutil.copy(arrays, both / "one.npz")
    os.link(both / "one.npz", both / "two.npz")
    assert verify(both, code=0)["stored"] == size
    damaged = FIXTURES / "damaged/wrong_crc.npz"
    assert verify(damaged, code=1)["unchecked"] > size - members
    assert run("verify", damaged).stdout.decode().endswith(" stored have no checksum, or a wrong one\n")


def load_offsets(data):
    """Name, place and stored size of each block: header and index of a Shard file, read by hand."""
    count = int.from_bytes(data[12:16], "little")
    table = int.from_bytes(data[16:24], "little")
    found = {}
    for i in range(count):
        entry = data[64 + 48 * i:112 + 48 * i]
        name_at, length = int.from_bytes(entry[8:12], "little"), int.from_bytes(entry[12:14], "little")
        name = data[table + name_at:table + name_at + length].decode()
        found[name] = (int.from_bytes(entry[16:24], "little"), int.from_bytes(entry[24:32], "little"))
    return {name: place for name, place in found.items() if place[1] > 0}


def test_chunks_of_a_manifest(tmp_path):
    for folder in ("chunked_py", "chunked_go"):
        shutil.copytree(GOLDEN / "wshard" / folder, tmp_path / folder)
        top = tmp_path / folder
        manifest = next(top.glob("*manifest*"))
        assert verify(top, code=0)["problems"] == []
        chunk = sorted(top.glob("*chunk*"))[1]
        data = bytearray(chunk.read_bytes())
        # Padding that no checksum covers, if the chunk has any; else its last byte.
        data[-1] ^= 1
        chunk.write_bytes(data)
        told = [p for p in verify(manifest, code=1)["problems"] if p["container"] == str(manifest)]
        assert any(hashlib.sha256(data).hexdigest() in p["message"] and chunk.name in p["message"] for p in told), told
        chunk.unlink()
        told = verify(top, code=1)["problems"]
        assert any(chunk.name in p["message"] and "not there" in p["message"] for p in told), told


def test_exit_codes_and_odd_paths(tmp_path):
    assert run("verify").returncode == 2
    missing = run("verify", tmp_path / "missing")
    assert missing.returncode == 2 and str(tmp_path / "missing") in missing.stderr
    assert run("verify", "--no-such-option", tmp_path).returncode == 2
    (tmp_path / "text.txt").write_text("no container")
    # Nothing that could be checked is no good news.
    alone = verify(tmp_path, code=2)
    assert alone["others"] == 1 and not alone["ok"]
    assert run("verify", tmp_path).stdout.decode().startswith("nothing was checked: 0 containers, 0 files, 0 B read; 1 ord")
    # No container is no problem of one, and nothing that could be checked.
    text = run("verify", tmp_path / "text.txt")
    assert (text.returncode, text.stderr) == (2, f"shardfs: {tmp_path / 'text.txt'}: not a container of any known "
                                                         "format, so there is nothing to verify\n")
    assert text.stdout.decode().startswith("nothing was checked")
    both = run("verify", "--json", tmp_path / "text.txt", FIXTURES / "demo.kdb")
    assert (both.returncode, json.loads(both.stdout)["problems"], json.loads(both.stdout)["containers"]) == (2, [], 1)
    shutil.copy(tmp_path / "text.txt", tmp_path / "named.kdb")
    assert verify(tmp_path / "named.kdb", code=1)["problems"][0]["container"] == str(tmp_path / "named.kdb")
    (tmp_path / "named.kdb").unlink()
    (tmp_path / "empty.wshard").touch()
    assert verify(tmp_path, code=1)["problems"][0]["container"] == str(tmp_path / "empty.wshard")
    # A path inside a container: that part only.
    bad = FIXTURES / "damaged/bad_crc.wshard"
    assert verify(bad / "signal/joint_pos.npy", code=1)["files"] == 1
    assert verify(bad / "meta", code=0)["files"] >= 1
    # Some could not be looked at: 2, and what is known is told.
    both = run("verify", "--json", tmp_path / "missing", bad)
    assert both.returncode == 2
    result = json.loads(both.stdout)
    assert not result["complete"] and len(result["problems"]) == 1
    assert run("verify", "--quiet", bad).stdout == b""


def test_what_cannot_be_read_is_no_problem(tmp_path):
    """A server that fails and memory that is too small say nothing of a container: exit code 2."""
    store = Store()
    np.savez(tmp_path / "arrays.npz", **{name: np.arange(1 << 22, dtype=np.uint8) for name in "abcd"})
    store.put("d/arrays.npz", (tmp_path / "arrays.npz").read_bytes())
    store.put("d/demo.kdb", (FIXTURES / "demo.kdb").read_bytes())
    options = ("--no-sign-request", "--no-disk-cache", "--timeout=1s", "--retries=0")
    with store.serving() as endpoint:
        options += (f"--endpoint-url={endpoint}",)
        verify("s3://b/d/", *options, code=0)
        for name, first in ("demo.kdb", 0), ("arrays.npz", 2):
            asked = itertools.count()
            store.faults = [lambda handler, name=name, first=first, asked=asked: name in handler.path
                            and next(asked) >= first and (handler.fail(503, "SlowDown") or True)]
            found = verify("s3://b/d/", *options, code=2)
            assert found["problems"] == [] and found["unread"] and not found["complete"]
            assert {entry["container"] for entry in found["unread"]} == {f"s3://b/d/{name}"}
        store.faults = []
        store.put("d/cut_short.trees", (FIXTURES / "damaged/cut_short.trees").read_bytes())
        for source in "s3://b/d/", "s3://b/d/cut_short.trees":
            found = verify(source, *options, code=1)
            [problem] = found["problems"]
            assert problem["container"] == "s3://b/d/cut_short.trees" and "not shown as a" in problem["message"]
            assert found["unread"] == []
    with failing_server(FIXTURES, {"/demo.kdb"}) as address:
        found = verify(f"{address}/", *options[1:4], code=2)
        assert [entry["container"] for entry in found["unread"]] == [f"{address}/demo.kdb"]
    np.savez_compressed(tmp_path / "large.npz", x=np.random.default_rng(0).integers(0, 4, 40_000_000, np.uint8))
    for path in tmp_path, tmp_path / "large.npz":
        found = verify("--cache-size=4M", path, code=2)
        assert found["problems"] == [] and found["unread"], found


def test_a_slash_behind_a_file(tmp_path):
    cut = FIXTURES / "damaged/cut_short.gguf"
    assert verify(f"{cut}/", code=1)["problems"] == verify(cut, code=1)["problems"]
    (tmp_path / "text.txt").write_text("no container")
    assert run("verify", f"{tmp_path}/text.txt/").returncode == 2


def test_many_files_and_threads(writers, tmp_path):
    """The same result on one thread and on many."""
    for i in range(40):
        folder = tmp_path / f"{i % 7}"
        folder.mkdir(exist_ok=True)
        examples.write_episode(folder / f"{i}.wshard", i, "zstd")
    victim = tmp_path / "3/3.wshard"
    os.truncate(victim, victim.stat().st_size - 700)
    one, many = (verify("-j", n, tmp_path, code=1) for n in ("1", "16"))
    assert one == many
    assert {p["container"] for p in one["problems"]} == {str(victim)}


def test_a_checksum_over_all_of_a_recording(tmp_path):
    """A byte that no file of the tree shows is found by the CRC of the data section."""
    whole = bytearray((FIXTURES / "drive.mcap").read_bytes())
    summary = int.from_bytes(whole[-28:-20], "little")
    assert whole[summary - 13] == 0x0F, "the record at the end of the data section"
    whole[summary - 4:summary] = zlib.crc32(whole[:summary - 13]).to_bytes(4, "little")
    path = tmp_path / "drive.mcap"
    path.write_bytes(whole)
    assert verify(path, code=0)["problems"] == []
    path.write_bytes(whole.replace(b"shardfs examples", b"shardfs example!", 1))
    [problem] = verify(path, code=1)["problems"]
    assert "data section" in problem["message"] and problem["container"] == str(path)


@pytest.mark.parametrize("is_crc", [True, False])
def test_a_checksum_of_a_summary(is_crc, tmp_path):
    """Without the summary all messages are found, too. But either it or its CRC is damaged."""
    whole = bytearray((FIXTURES / "drive.mcap").read_bytes())
    summary = int.from_bytes(whole[-28:-20], "little")
    assert zlib.crc32(whole[summary:-12]) == int.from_bytes(whole[-12:-8], "little")
    whole[-12 if is_crc else summary + 20] ^= 1
    path = tmp_path / "drive.mcap"
    path.write_bytes(whole)
    [problem] = verify(path, code=1)["problems"]
    assert "summary" in problem["message"] and problem["container"] == str(path)


@pytest.mark.parametrize("table", ["nodes", "individuals"])
def test_offsets_of_a_tree_sequence(table, tmp_path):
    """They have no checksum, but tskit refuses those that are not sound."""
    arrays = dict(kastore.load(FIXTURES / "tree_sequence.trees"))
    arrays[f"{table}/metadata_offset"] = offsets = arrays[f"{table}/metadata_offset"].copy()
    offsets[len(offsets) // 2] ^= 0x80
    path = tmp_path / "x.trees"
    kastore.dump(arrays, path)
    with pytest.raises(tskit.LibraryError, match="OFFSET"):
        tskit.load(path)
    [problem] = verify(path, code=1)["problems"]
    assert problem["message"] == f"{table}/metadata: its offsets are not sound"


def test_messages_that_do_not_decode(tmp_path):
    """A topic of texts has no file of numbers that shows them."""
    hello = b"\0\1\0\0\6\0\0\0hello\0"
    pack = zstandard.ZstdCompressor().compress
    with_crc = zstandard.ZstdCompressor(write_checksum=True).compress(hello)
    broken = [pack(hello)[:-1], pack(b"\1" + hello), with_crc[:-1] + bytes([with_crc[-1] ^ 1]),
              zstandard.ZstdCompressor(write_content_size=False).compress(hello), b"\x28\xb5\x2f\xfd"]
    messages = [(0, 0, hello), (0, 1, pack(hello))] + [(0, 2, data) for data in broken]
    messages += [(1, time, hello) for time in range(3)]
    schema = [("std_msgs/msg/String", "ros2msg", b"string data\n")]
    channels = [("/chat", "cdr", 1), ("/sound", "cdr", 1)]
    (tmp_path / "a.mcap").write_bytes(recordings.mcap(schema, channels, messages))
    [problem] = verify(tmp_path, code=1)["problems"]
    assert problem["message"] == "5 of 7 messages of /chat do not decode"
    assert problem["container"] == str(tmp_path / "a.mcap")
    lines = run("cat", tmp_path / "a.mcap/topics/chat/messages.jsonl", check=True).stdout
    assert lines == b'{"data":"hello"}\n' * 2 + b"null\n" * 5


def test_an_attachment_is_named(tmp_path):
    attachments = [(name, "text/plain", b"some text of " + name.encode()) for name in ("a.txt", "b.txt")]
    stored = recordings.mcap([], [("/t", "json", 0)], [(0, 0, b"{}")], attachments)
    (tmp_path / "a.mcap").write_bytes(stored.replace(b"some text of b", b"some text of c", 1))
    [problem] = verify(tmp_path, code=1)["problems"]
    assert (problem["path"], problem["block"]) == ("attachments/b.txt", "attachment 1")


def test_a_wrong_number_of_records_is_one_problem_for_each_variable(tmp_path):
    """netCDF4 believes the number, too, so the variables keep their shapes. Almost no value is there."""
    data = bytearray((GOLDEN / "netcdf/cdf1.nc").read_bytes())
    data[4] = 0x7F
    (tmp_path / "x.nc").write_bytes(data)
    with netCDF4.Dataset(tmp_path / "x.nc") as file:
        shapes = {name: variable.shape for name, variable in file.variables.items() if "time" in variable.dimensions}
    assert shapes["record_f4"][0] == int.from_bytes(data[4:8], "big")
    result = verify(tmp_path / "x.nc", code=1)
    assert sorted(problem["block"] for problem in result["problems"]) == sorted(shapes)
    assert all(f"the file of {len(data)} bytes ends" in problem["message"] for problem in result["problems"])


def test_advice_is_no_problem(tmp_path):
    """A cache that has no room for a row of chunks makes reading slow. Nothing is wrong."""
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        values = np.arange(64 * 40000, dtype="f4").reshape(64, 40000)
        file.create_dataset("x", data=values, chunks=(32, 1000), compression="gzip", shuffle=True)
    options = ("--cache-size=6M", "-j1")
    result = verify(tmp_path / "rows.h5", *options, code=0)
    assert result["ok"] and result["problems"] == []
    assert "too much for the cache" in run("verify", tmp_path / "rows.h5", *options).stdout.decode()
    warm = run("warm", f"--spill={tmp_path / 'spill'}", tmp_path / "rows.h5", *options)
    assert warm.returncode == 0, warm.stderr
    with mounted(tmp_path, "--cache-size=6M") as mnt:
        assert np.array_equal(np.load(mnt / "rows.h5/x.npy"), values)
        lines = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        assert [(line["path"], line["advice"]) for line in lines] == [("x.npy", True)]
        assert "shardfs_problems 0\n" in (mnt / ".shardfs/metrics.prom").read_text()


def test_damage_below_computed_bytes_is_damage(tmp_path):
    """A tree sequence whose columns are made of chunks: what tskit shows is computed from damaged bytes."""
    whole = (FIXTURES / "genealogy.tsz").read_bytes()
    with zipfile.ZipFile(FIXTURES / "genealogy.tsz") as file:
        large = max((info for info in file.infolist()), key=lambda info: info.compress_size)
    middle = large.header_offset + 30 + len(large.filename) + large.compress_size // 2
    (tmp_path / "bad.tsz").write_bytes(whole[:middle] + bytes([whole[middle] ^ 0x20]) + whole[middle + 1:])
    result = verify(tmp_path / "bad.tsz", code=1)
    assert result["unread"] == [] and result["problems"], result
    done = run("index", tmp_path, "-o", tmp_path / "index.parquet", "--json")
    assert (done.returncode, done.stderr) == (0, "")


def test_only_what_lies_below_a_path_counts(tmp_path):
    """Of a path inside a container, blocks that were not read are not counted as unchecked."""
    np.savez(tmp_path / "arrays.npz", small=np.arange(1000), large=np.zeros(1 << 20))
    whole = verify(tmp_path / "arrays.npz", code=0)
    part = verify(tmp_path / "arrays.npz/small.npy", code=0)
    # A member of a zip has a checksum over all of it.
    assert part["stored"] - part["unchecked"] >= 8000
    assert part["unchecked"] <= whole["unchecked"] and part["stored"] < 20_000


def test_a_small_cache_names_the_file(tmp_path):
    bad = FIXTURES / "damaged/bad_chunk.h5"
    shutil.copytree(FIXTURES, tmp_path / "all")
    for path in bad, tmp_path / "all":
        found = [problem for problem in verify("--cache-size=100K", path)["problems"] if "bad_chunk" in problem["container"]]
        assert found and all(problem["path"] for problem in found), found


def test_a_folder_whose_files_only_the_owner_may_read(tmp_path):
    """It is a container for the owner. Where others read, it is a plain folder, and the path in the report leads to the
    marker."""
    shutil.copytree(FIXTURES / "cells.zarr", tmp_path / "cells.zarr")
    (tmp_path / "cells.zarr").chmod(0o755)
    for path in (tmp_path / "cells.zarr").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o600)
    whole = verify(FIXTURES / "cells.zarr", code=0)
    found = verify(tmp_path / "cells.zarr", code=0)
    assert (found["containers"], found["files"]) == (whole["containers"], whole["files"]) and found["containers"] == 1
    with mounted(tmp_path / "cells.zarr") as mnt:
        assert (mnt / "container.json").is_file()
    with mounted(tmp_path / "cells.zarr", "--allow-other") as mnt:
        assert (mnt / "zarr.json").is_file() and not (mnt / "container.json").exists()
        lines = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        assert [line["container"] for line in lines] == ["zarr.json"]


def test_what_is_replaced_all_the_time_is_not_known(tmp_path):
    np.savez(tmp_path / "0.npz", x=np.zeros(100_000))
    end = threading.Event()

    def replace():
        while not end.wait(0.005):
            shutil.copy(tmp_path / "0.npz", tmp_path / "new")
            os.replace(tmp_path / "new", tmp_path / "x.npz")

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(3):
            result = json.loads(run("verify", "--json", tmp_path / "x.npz").stdout or "{}")
            assert not result.get("problems"), result
    finally:
        end.set()
        thread.join()


def test_pictures_of_chunks_that_are_not_stored(tmp_path):
    """Four million, and none of their pixels is in the store."""
    node = {"zarr_format": 3, "node_type": "array", "shape": [4_194_304, 512, 512, 3], "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 512, 512, 3]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "fill_value": 0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {}}
    (tmp_path / "set.zarr/camera").mkdir(parents=True)
    (tmp_path / "set.zarr/zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}))
    (tmp_path / "set.zarr/camera/zarr.json").write_text(json.dumps(node))
    picture = run("cat", tmp_path / "set.zarr/camera/4194303.png", check=True).stdout
    assert picture.startswith(b"\x89PNG")
    assert verify(tmp_path / "set.zarr", code=0)["files"] < 10
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file.create_dataset("camera", (4_000_000, 8, 8, 3), "u1", chunks=(1000, 8, 8, 3))
    assert run("cat", tmp_path / "set.h5/camera/3999999.png", check=True).stdout.startswith(b"\x89PNG")
    assert verify(tmp_path / "set.h5", code=0)["files"] < 10
