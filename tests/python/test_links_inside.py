"""Links inside containers: the kernel follows those of a mount; the server, WebDAV, the commands and the package show the
same behind each."""

import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from urllib.parse import unquote

import h5py
import pytest
from support import BIN, GOLDEN, mounted
from support.servers import address, serving


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Soft, hard and external links, dangling ones, and groups that hold each other."""
    folder = tmp_path_factory.mktemp("links")
    for name in ("main.h5", "other.h5"):
        shutil.copyfile(GOLDEN / "hdf5" / "links" / name, folder / name)
    with h5py.File(folder / "circles.h5", "w") as f:
        a, b = f.create_group("a"), f.create_group("b")
        a["numbers"] = [1, 2, 3]
        a["to_b"], b["to_a"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")
        a["itself"] = a
    (folder / "plain").symlink_to("main.h5")
    return folder


def links_of(root):
    """Paths of all symbolic links inside containers, as the mount lists them."""
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            if os.path.islink(path) and os.path.relpath(path, root) != "plain":
                yield os.path.relpath(path, root)


def run(*arguments):
    return subprocess.run([BIN, *map(str, arguments)], capture_output=True, timeout=60, check=False)


def test_what_is_behind_a_link_is_what_the_kernel_finds(data):
    kinds = {"file": 0, "folder": 0, "nothing": 0}
    with mounted(data) as mnt, serving(data) as server:
        for path in links_of(mnt):
            shown = run("cat", data / path)
            answered = server.ask(address(path))
            if os.path.isfile(mnt / path):
                kinds["file"] += 1
                expected = (mnt / path).read_bytes()
                assert shown.stdout == expected and answered[2] == expected, path
            elif os.path.isdir(mnt / path):
                kinds["folder"] += 1
                listed = run("ls", data / path)
                assert sorted(listed.stdout.decode().splitlines()) == sorted(os.listdir(mnt / path)), (path, listed)
                assert server.ask(address(path + "/"))[0] == 200, path
            else:
                kinds["nothing"] += 1
                assert shown.returncode == 1 and answered[0] == 404, (path, shown, answered)
    assert min(kinds.values()) >= 2, kinds


def test_a_container_alone_shows_links_within_itself(data):
    with mounted(data / "main.h5") as mnt, serving(data / "main.h5") as server:
        assert server.get("/files/soft.npy") == (mnt / "soft.npy").read_bytes()
        # What is beside SOURCE is not shown, and a link to it leads nowhere.
        assert os.path.islink(mnt / "out.npy") and not os.path.exists(mnt / "out.npy")
        assert server.ask("/files/out.npy")[0] == 404


def test_webdav_shows_what_is_behind_links_and_ends(data):
    found = {}
    with mounted(data) as mnt, serving(data) as server:
        folders = ["/dav/"]
        while folders:
            folder = folders.pop()
            tree = ElementTree.fromstring(server.ask(folder, "PROPFIND", Depth="1")[2])
            for response in tree.findall("{DAV:}response"):
                href = response.findtext("{DAV:}href")
                if href == folder:
                    continue
                assert href.startswith(folder), href
                if href.endswith("/"):
                    folders.append(href)
                else:
                    found[unquote(href.removeprefix("/dav/"))] = int(response.findtext(".//{DAV:}getcontentlength"))
                assert len(found) < 10_000, "links that lead in circles"
        for path in links_of(mnt):
            if os.path.isfile(mnt / path):
                assert found[path] == os.path.getsize(mnt / path), path
            elif not os.path.exists(mnt / path):
                assert path not in found
        assert "circles.h5/b/to_a/numbers.npy" in found and "circles.h5/b/to_a/to_b/to_a/numbers.npy" not in found


def test_a_page_leads_through_links(data):
    with serving(data) as server:
        page = server.get(address("circles.h5/b/"), Accept="text/html").decode()
        assert 'href="/files/circles.h5/b/to_a"' in page
        assert "not followed" not in page
        assert "not followed" in server.get("/files/", Accept="text/html").decode()
