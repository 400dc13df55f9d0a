"""The rows of the table. Each measures all programs by turns and gives lines: (work, program, value, unit, goal, is met)."""

import os
import statistics
import time

from support import foreground

from ..timing import BUFFER, MIB, touch_memory
from .bare import Server, offsets, seconds
from .data import LARGE, MANY
from .mounts import BUDGET, PEERS, drop_page_cache, mounted, new_cache, path

#: The best that rclone does is what shardfs is compared with.
RCLONE = ("rclone", "rclone, 8 streams")


def read(file):
    """Reads a file from its front to its end; gives its size."""
    descriptor, size = os.open(file, os.O_RDONLY), 0
    while length := os.readv(descriptor, [BUFFER]):
        size += length
    os.close(descriptor)
    return size


def best(values):
    return max(statistics.median(each) for each in values)


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Rows:
    def __init__(self, data, proxies, rounds, peers=PEERS):
        self.data, self.proxies, self.rounds, self.peers = data, proxies, rounds, peers
        self.lines, self.peaks, self.mounting = [], [], []

    def add(self, work, program, values, unit, goal="", is_met=None):
        low, middle, high = min(values), statistics.median(values), max(values)
        met = "" if is_met is None else "met" if is_met else "MISSED"
        spread = f"{low:.4g}..{high:.4g}" if len(values) > 1 else ""
        self.lines.append([work, program, f"{middle:.4g} {unit}", spread, goal, met])
        print(" | ".join(self.lines[-1]), flush=True)

    def note(self, program, mount):
        """Keeps what a mount of shardfs has taken."""
        if program == "shardfs":
            self.peaks.append(mount.peak())
            self.mounting.append(mount.seconds)

    def megabytes_a_second(self, program, place, cache=None, key="raw/x.wshard", options=()):
        with mounted(program, self.proxies[place].endpoint, cache, options) as mount:
            touch_memory()
            begin = time.perf_counter()
            size = read(path(mount, program, key))
            rate = size / (time.perf_counter() - begin) / 1e6
            self.note(program, mount)
        return rate

    def first(self):
        """The first sequential read of a raw array of 256 MiB."""
        for place, proxy in self.proxies.items():
            self.first_at(place, Server(proxy.endpoint))

    def first_at(self, place, server):
        key, work = "raw/x.wshard", f"first sequential read, {place}"
        rates = {who: [] for who in ("1 stream", "8 ranges", "shardfs", *self.peers)}
        for _ in range(self.rounds):
            touch_memory()
            rates["1 stream"].append(LARGE / seconds(server.get, key) / 1e6)
            rates["8 ranges"].append(LARGE / seconds(server.get_in_ranges, key, LARGE) / 1e6)
            for program in ("shardfs", *self.peers):
                rates[program].append(self.megabytes_a_second(program, place))
        bare = best([rates["1 stream"], rates["8 ranges"]])
        own = statistics.median(rates["shardfs"])
        for who, values in rates.items():
            if who == "shardfs":
                rclone = best([rates[program] for program in RCLONE if program in rates] or [[1.0]])
                goal = f"≥ 0.75 of bare ({own / bare:.2f}), ≥ 1.5 × rclone ({own / rclone:.2f})"
                self.add(work, who, values, "MB/s", goal, own >= 0.75 * bare and own >= 1.5 * rclone)
            else:
                self.add(work, f"bare, {who}" if "s3fs" not in who and "rclone" not in who else who, values, "MB/s")

    def zstd(self):
        """The first sequential read of an array of 256 MiB that is compressed."""
        key = "zstd/x.wshard"
        size = (self.data.local / key).stat().st_size
        with foreground(self.data.local, f"--cache-size={BUDGET}M") as (mnt, _):
            read(mnt / key / "signal/x.npy")
        decoding = []
        for _ in range(self.rounds):
            with foreground(self.data.local, f"--cache-size={BUDGET}M") as (mnt, _):
                touch_memory()
                decoding.append(seconds(read, mnt / key / "signal/x.npy"))
        for place, proxy in self.proxies.items():
            server = Server(proxy.endpoint)
            download = [min(seconds(server.get, key), seconds(server.get_in_ranges, key, size))
                        for _ in range(self.rounds)]
            own = [LARGE / 1e6 / self.megabytes_a_second("shardfs", place, key=key) for _ in range(self.rounds)]
            most = 1.1 * max(statistics.median(download), statistics.median(decoding))
            work = f"the same, zstd, {size / 1e6:.0f} MB, {place}"
            self.add(work, "bare download", download, "s")
            self.add(work, "decoding of a local file", decoding, "s")
            self.add(work, "shardfs", own, "s", f"≤ 1.1 × the longer ({most:.2f} s)", statistics.median(own) <= most)

    def again(self):
        """The same after a remount, from the cache on disk."""
        for place in ("0", "20"):
            rates = {}
            for program in ("shardfs", "rclone", "rclone, 8 streams"):
                cache, rates[program] = new_cache(), []
                self.megabytes_a_second(program, place, cache)
                for _ in range(self.rounds):
                    drop_page_cache()
                    self.proxies[place].counts()
                    rates[program].append(self.megabytes_a_second(program, place, cache))
                    requests, received = self.proxies[place].counts()[1:]
                    if program == "shardfs":
                        last = f"{requests} requests, {received / 1e3:.0f} KB"
            own, work = statistics.median(rates["shardfs"]), f"again after a remount, page cache dropped, {place}"
            rclone = best([rates[program] for program in RCLONE])
            self.add(work, "shardfs", rates["shardfs"], "MB/s", f"≥ 1.5 × rclone ({own / rclone:.2f}); {last}",
                     own >= 1.5 * rclone)
            for program in RCLONE:
                self.add(work, program, rates[program], "MB/s")

    def fronts(self):
        """The first 4 KiB of an array in a container that is not open, in a folder that is listed."""
        for place, proxy in self.proxies.items():
            if place == "20+60":
                continue
            milliseconds = 20 if place == "20" else 0
            for program in ("shardfs", *self.peers):
                with mounted(program, proxy.endpoint) as mount:
                    os.listdir(mount.mnt / "small")
                    proxy.counts()
                    times = []
                    for number in range(900, 940):
                        file = path(mount, program, f"small/f{number:04}.wshard")
                        begin = time.perf_counter()
                        descriptor = os.open(file, os.O_RDONLY)
                        os.read(descriptor, 4096)
                        times.append(1e3 * (time.perf_counter() - begin))
                        os.close(descriptor)
                    requests = proxy.counts()[1] / len(times)
                    self.note(program, mount)
                goal, most = "", 3 * milliseconds + 8
                if program == "shardfs" and milliseconds:
                    goal = f"≤ {most} ms; {requests:.1f} requests a container"
                met = percentile(times, 0.5) <= most and requests <= 3 if goal else None
                self.add(f"first 4 KiB in a container of 1 MB, p50, {place}", program, [percentile(times, 0.5)], "ms",
                         goal, met)

    def walk(self):
        """A program that goes through a folder by its listing: the front of each container, and `find` into each."""
        proxy = self.proxies["20"]
        for program in ("shardfs", *self.peers):
            with mounted(program, proxy.endpoint) as mount:
                names = sorted(os.listdir(mount.mnt / "small"))[:300]
                proxy.counts()
                begin = time.perf_counter()
                for name in names:
                    with open(path(mount, program, f"small/{name}"), "rb", buffering=0) as file:
                        file.read(4096)
                took = (time.perf_counter() - begin) / len(names)
                requests = proxy.counts()[1] / len(names)
                self.add("4 KiB of each of 300 containers of 1 MB, in order, 20", program, [1e3 * took], "ms each",
                         f"{requests:.2f} requests a container")
                self.note(program, mount)
        with mounted("shardfs", proxy.endpoint) as mount:
            folder = mount.mnt / "many"
            names = sorted(os.listdir(folder))[:1000]
            proxy.counts()
            took = seconds(lambda: [list(os.walk(folder / name)) for name in names])
            requests = proxy.counts()[1] / len(names)
            self.add("every name in 1,000 containers, in order, 20", "shardfs", [took], "s", f"{requests:.2f} requests a container")

    def random(self):
        """300 reads of 4 KiB in the raw array."""
        proxy = self.proxies["20"]
        server = Server(proxy.endpoint)
        places = offsets(LARGE, 300)
        server.get("raw/x.wshard", 0, 4096)
        proxy.counts()
        bare = [1e3 * seconds(server.get, "raw/x.wshard", at, at + 4096) for at in places]
        self.random_line("bare", bare, proxy)
        for program in ("shardfs", *self.peers):
            with mounted(program, proxy.endpoint) as mount:
                descriptor = os.open(path(mount, program, "raw/x.wshard"), os.O_RDONLY)
                os.pread(descriptor, 4096, 0)
                proxy.counts()
                times = []
                for at in places:
                    begin = time.perf_counter()
                    os.pread(descriptor, 4096, at)
                    times.append(1e3 * (time.perf_counter() - begin))
                os.close(descriptor)
                self.random_line(program, times, proxy)
                self.note(program, mount)

    def random_line(self, program, times, proxy):
        megabytes = proxy.counts()[2] / 1e6
        middle, high = percentile(times, 0.5), percentile(times, 0.99)
        goal = "p50 ≤ 28 ms, p99 ≤ 60 ms, ≤ 40 MB" if program == "shardfs" else ""
        met = middle <= 28 and high <= 60 and megabytes <= 40 if goal else None
        self.add("300 random reads of 4 KiB, p50, 20", program, [middle], "ms",
                 f"{goal}{'; ' if goal else ''}p99 {high:.1f} ms, {megabytes:.1f} MB", met)

    def listing(self):
        """`ls -l` of 10,000 containers."""
        proxy = self.proxies["20"]
        server = Server(proxy.endpoint)
        times = {"bare": [], "shardfs": []}

        def list_all(mnt):
            with os.scandir(mnt / "many") as entries:
                count = sum(1 for entry in entries if entry.stat(follow_symlinks=False))
            assert count == MANY, count

        for _ in range(self.rounds):
            times["bare"].append(seconds(server.list, "many/"))
            with mounted("shardfs", proxy.endpoint) as mount:
                times["shardfs"].append(seconds(list_all, mount.mnt))
                self.note("shardfs", mount)
        bare, own = (statistics.median(times[who]) for who in ("bare", "shardfs"))
        work = f"ls -l of {MANY} containers, 20"
        self.add(work, "bare list requests", times["bare"], "s")
        self.add(work, "shardfs, by suffix", times["shardfs"], "s", f"≤ 1.5 × bare ({own / bare:.2f})", own <= 1.5 * bare)
        with mounted("shardfs", proxy.endpoint, options=["--detect=content"]) as mount:
            took = seconds(list_all, mount.mnt)
            self.note("shardfs", mount)
        self.add(work, "shardfs, --detect=content", [took], "s", "≤ 8 s", took <= 8)
        for program in self.peers:
            if "8" not in program:
                with mounted(program, proxy.endpoint) as mount:
                    self.add(work, program, [seconds(list_all, mount.mnt)], "s")

    def epoch(self):
        """400 containers of 1 MB by 8 readers, and once more from the cache on disk."""
        proxy = self.proxies["20"]
        names = [f"small/f{number:04}.wshard" for number in range(400)]
        # The same order for all, and none that a program could foresee.
        names = [names[place % 400] for place in range(7, 7 + 400 * 149, 149)]
        server = Server(proxy.endpoint)
        touch_memory()
        bare = [400 / seconds(server.share, names, 8, server.get) for _ in range(self.rounds)]
        work = "400 containers of 1 MB, 8 readers, 20"
        self.add(work, "bare", bare, "files/s")
        once = {program: [] for program in ("shardfs", *self.peers)}
        for _ in range(self.rounds):
            for program in once:
                with mounted(program, proxy.endpoint) as mount:
                    touch_memory()
                    read_all = lambda: server.share(names, 8, lambda key: read(path(mount, program, key)))  # noqa: B023
                    once[program].append(400 / seconds(read_all))
                    self.note(program, mount)
        part = statistics.median(once["shardfs"]) / statistics.median(bare)
        for program, values in once.items():
            goal = f"≥ 0.8 of bare ({part:.2f})" if program == "shardfs" else ""
            self.add(work, program, values, "files/s", goal, part >= 0.8 if goal else None)
        # From the cache on disk, beside a mount of the files themselves.
        local, again = [], []
        cache = new_cache()
        for round_number in range(self.rounds + 1):
            with mounted("shardfs", proxy.endpoint, cache) as mount:
                touch_memory()
                rate = 400 / seconds(server.share, names, 8, lambda key: read(path(mount, "shardfs", key)))  # noqa: B023
                self.note("shardfs", mount)
            if round_number:
                again.append(rate)
                with foreground(self.data.local, f"--cache-size={BUDGET}M") as (mnt, _):
                    touch_memory()
                    local.append(400 / seconds(server.share, names, 8, lambda key: read(mnt / key / "signal/x.npy")))  # noqa: B023
        part = statistics.median(again) / statistics.median(local)
        work = "the same once more, from the cache on disk"
        self.add(work, "shardfs, local files", local, "files/s")
        self.add(work, "shardfs", again, "files/s", f"≥ 0.8 of local ({part:.2f})", part >= 0.8)

    def resources(self):
        """What the mounts above have taken."""
        if self.peaks:
            self.add("resident memory in these rows", "shardfs", [max(self.peaks)], "MiB",
                     f"≤ {BUDGET} + 128 MiB", max(self.peaks) <= BUDGET + 128)
            self.add("mounting in these rows", "shardfs", self.mounting, "s", "≤ 0.3 s",
                     statistics.median(self.mounting) <= 0.3)


NAMES = ("first", "zstd", "again", "fronts", "walk", "random", "listing", "epoch")
