"""`shardfs verify` and `cp` on the workers of a Dask cluster, for data sets that are larger than one machine.

    python -m shardfs.cluster verify SOURCE --scheduler tcp://HOST:8786
    python -m shardfs.cluster cp SOURCE DESTINATION --scheduler tcp://HOST:8786

SOURCE is a folder or an address that this machine and all workers see under one name; this package is installed on each
of them. The containers are handed out in batches as workers become free. Dask gives the batch of a worker that died to
another one; a batch that kills three workers in a row is reported as not looked at.

`verify` prints one line for each damaged block as soon as it is known: an object as in the list `problems` of `shardfs
verify --json`. `cp` unpacks each container into a folder of its name below DESTINATION, which the workers share. Both
end with 0 if nothing is wrong, 1 if something is, and 2 if that could not be found out for all of SOURCE.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig

from . import _core, _process
from ._container import Container, Folder, open as open_source

WRONG, UNKNOWN = 1, 2
#: Bytes by which containers are recognised.
_FRONT = 4096


def command():
    """Returns the path of the program `shardfs` of this package, or of `$SHARDFS_COMMAND`."""
    own = os.path.join(sysconfig.get_path("scripts"), "shardfs")
    found = os.environ.get("SHARDFS_COMMAND") or (own if os.access(own, os.X_OK) else shutil.which("shardfs"))
    if not found:
        raise FileNotFoundError("no program shardfs: neither beside this Python nor on the PATH")
    return found


def containers(source):
    """Yields containers below a source, and files that are meant to be some, as (path, path below the source); for
    what cannot be read, (path, exception)."""
    top = open_source(source)
    if isinstance(top, Container):
        yield top.path, os.path.basename(top._path)
        return
    folders = [top]
    while folders:
        folder = folders.pop(0)
        nodes = folder._node.children()
        while True:
            try:
                node = next(nodes, None)
            except OSError as error:
                yield folder.path, error
                break
            if node is None:
                break
            path = "/".join(part for part in (folder._path, node.name) if part)
            shown = _process.shown(folder._source, path)
            try:
                if node.kind == "folder" and not node.is_container:
                    folders.append(Folder(folder._source, path, None, node))
                elif node.kind == "folder" or node.kind == "file" and _is_meant(node):
                    yield shown, path.removeprefix(top._path).lstrip("/")
            except OSError as error:
                yield shown, error


def _is_meant(node):
    """Returns whether a file that is not shown as a container is meant to be one, and so has to be verified."""
    return _core.likeness(node.read(0, _FRONT), node.size, node.name) == "meant"


def verify(paths):
    """Verifies containers with the program: (problems, whether all could be read). Runs on a worker."""
    done = subprocess.run([command(), "verify", "--json", "--", *paths], stdin=subprocess.DEVNULL, capture_output=True,
                          check=False)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise RuntimeError(f"shardfs verify ended with {done.returncode}: {said}") from None
    return document["problems"], document["complete"] and not document["unread"]


def copy(path, to):
    """Unpacks a container into a folder of its name in another one by the program: (problems, whether it was looked
    at). Runs on a worker."""
    done = subprocess.run([command(), "cp", "-r", "--", path, to], stdin=subprocess.DEVNULL, capture_output=True,
                          check=False)
    if done.returncode == 0:
        return [], True
    said = done.stderr.decode("utf-8", "replace").strip()
    return [{"container": path, "path": "", "block": None, "offset": None, "message": said}], True


def run(client, work, ahead=4):
    """Hands out work as workers become free, and prints problems as they are found. Returns the exit code.

    Args:
        client: a `distributed.Client`.
        work: (function, arguments, name), or (None, exception, name) for work that cannot be done.
    """
    from distributed import as_completed
    work, running, names = iter(work), as_completed(), {}
    checked = problems = 0
    complete = True

    def begin():
        nonlocal complete
        for function, arguments, name in work:
            if function is None:
                complete = False
                print(f"shardfs: {name}: {arguments}", file=sys.stderr)
                continue
            # Not pure, because a scheduler that was asked before must not answer from memory.
            future = client.submit(function, *arguments, pure=False, retries=1)
            names[future.key] = name
            running.add(future)
            return True
        return False

    # Limits how much work the scheduler holds, however many containers there are.
    for _ in range(max(2, ahead * sum(client.nthreads().values()))):
        if not begin():
            break
    for future in running:
        name = names.pop(future.key)
        try:
            found, all_read = future.result()
        except Exception as error:  # of a worker: whatever it is, the others go on
            complete = False
            print(f"shardfs: {name}: {error}", file=sys.stderr)
        else:
            checked += 1
            complete &= all_read
            for problem in found:
                problems += 1
                print(json.dumps(problem, ensure_ascii=False), flush=True)
        begin()
    if not checked and complete:
        print("shardfs: nothing was checked", file=sys.stderr)
        complete = False
    return UNKNOWN if not complete else WRONG if problems else 0


def batches(found, size):
    """Yields containers as work for `verify`."""
    batch = []
    for path, below in found:
        if isinstance(below, Exception):
            yield None, below, path
            continue
        batch.append(path)
        if len(batch) == size:
            yield verify, (batch,), batch[0]
            batch = []
    if batch:
        yield verify, (batch,), batch[0]


def copies(found, to):
    """Yields containers as work for `copy`."""
    for path, below in found:
        if isinstance(below, Exception):
            yield None, below, path
        else:
            yield copy, (path, os.path.join(to, os.path.dirname(below))), path


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m shardfs.cluster", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("verify", "check that containers are whole"), ("cp", "unpack containers")):
        each = commands.add_parser(name, help=text)
        each.add_argument("source", metavar="SOURCE")
        if name == "cp":
            each.add_argument("destination", metavar="DESTINATION")
        else:
            each.add_argument("--batch", type=int, default=16, metavar="N", help="containers in a piece of work [16]")
        each.add_argument("--scheduler", required=True, metavar="ADDR", help="address of the Dask scheduler")
        each.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="for workers to be there [60]")
    given = parser.parse_args(arguments)
    from distributed import Client
    try:
        found = containers(given.source if "://" in given.source else os.path.realpath(given.source))
        work = batches(found, max(1, given.batch)) if given.command == "verify" else copies(found, given.destination)
        with Client(given.scheduler, timeout=given.timeout) as client:
            client.wait_for_workers(1, timeout=given.timeout)
            return run(client, work)
    except (OSError, asyncio.TimeoutError) as error:  # the second is an OSError from Python 3.11 on
        print(f"shardfs: {error or 'no answer in time'}", file=sys.stderr)
        return UNKNOWN


if __name__ == "__main__":
    sys.exit(main())
