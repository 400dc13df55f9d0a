"""Requests without a mount: what a network and a server give at most."""

import http.client
import itertools
import random
import threading
import time
import urllib.parse

from ..timing import MIB


class Server:
    """Anonymous requests to a bucket, each thread over one connection of its own."""

    def __init__(self, endpoint, bucket="public"):
        self.split, self.bucket = urllib.parse.urlsplit(endpoint), bucket
        self.own = threading.local()

    def connection(self):
        if not hasattr(self.own, "connection"):
            self.own.connection = http.client.HTTPConnection(self.split.hostname, self.split.port)
            self.own.buffer = bytearray(MIB)
        return self.own.connection

    def get(self, key, first=None, end=None):
        """Reads an object, or a range of it; gives the number of bytes."""
        connection = self.connection()
        headers = {} if first is None else {"Range": f"bytes={first}-{end - 1}"}
        connection.request("GET", f"/{self.bucket}/{key}", headers=headers)
        response = connection.getresponse()
        assert response.status in (200, 206), response.status
        length = 0
        while read := response.readinto(self.own.buffer):
            length += read
        return length

    def get_in_ranges(self, key, size, at_once=8, part=8 * MIB):
        """Reads an object by several connections."""
        self.share([(at, min(at + part, size)) for at in range(0, size, part)], at_once,
                   lambda piece: self.get(key, *piece))

    @staticmethod
    def share(work, at_once, do):
        """Does each piece of work in one of so many threads."""
        work, lock, failed = iter(work), threading.Lock(), []

        def take():
            try:
                while True:
                    with lock:
                        piece = next(work, None)
                    if piece is None:
                        return
                    do(piece)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=take) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    def list(self, prefix):
        """Lists a folder; gives the number of names."""
        connection, count, more = self.connection(), 0, ""
        for _ in itertools.count():
            connection.request("GET", f"/{self.bucket}?list-type=2&delimiter=/&prefix={prefix}{more}")
            page = connection.getresponse().read().decode()
            count += page.count("<Key>")
            if "<IsTruncated>true" not in page:
                return count
            token = page.split("<NextContinuationToken>")[1].split("<")[0]
            more = "&continuation-token=" + urllib.parse.quote(token, safe="")


def seconds(work, *arguments):
    begin = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begin


def offsets(size, count, seed=7):
    """Where to read 4 KiB, at random."""
    dice = random.Random(seed)
    return [dice.randrange(size // 4096) * 4096 for _ in range(count)]
