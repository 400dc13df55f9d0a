"""A network of its own, in which a web server has a public, a private and a loopback address and leads from one to the other.

Run as a program in namespaces of its own (`unshare --net --mount`): prints what came of each way as JSON.
"""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

PUBLIC, PRIVATE, LOOPBACK = "8.8.8.8", "10.1.1.1", "127.0.0.1"
HOSTS = {"public.test": PUBLIC, "private.test": PRIVATE, "loopback.test": LOOPBACK, "own.test": PUBLIC}


class Handler(http.server.BaseHTTPRequestHandler):
    """`/to/ADDRESS` leads there, the address in hexadecimal digits; everything else is a file with these bytes."""

    seen, ways = [], []

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.seen.append((self.connection.getsockname()[0], self.path))
        if self.path.startswith("/to/") and self.path[4:] in self.ways:
            self.send_response(302)
            self.send_header("Location", bytes.fromhex(self.path[4:]).decode())
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        is_folder = self.path in ("/d/", "/to/")
        index = json.dumps([{"name": name} for name in ["a.bin", "b.bin", *self.ways]]).encode()
        body, kind = (index, "application/json") if is_folder else (b"inside", "text/plain")
        self.send_response(200)
        for name, value in {"Content-Length": str(len(body)), "ETag": '"tag"', "Content-Type": kind}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET


def write_hosts(hosts):
    with open("/etc/hosts", "w") as file:
        file.writelines(f"{address} {name}\n" for name, address in hosts.items())


def main(program):
    for command in ("link set lo up", f"addr add {PUBLIC}/32 dev lo", f"addr add {PRIVATE}/32 dev lo"):
        subprocess.run(["ip", *command.split()], check=True)
    own = tempfile.NamedTemporaryFile()
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "--bind", own.name, "/etc/hosts"], check=True)
    write_hosts(HOSTS)
    server = http.server.ThreadingHTTPServer(("", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    options = ("--timeout=3s", "--retries=1", "--no-disk-cache")

    def asked(first, to):
        """What `cat` gives of a file that leads from one host to another, and the addresses that were asked."""
        Handler.seen.clear()
        way = f"http://{to}:{port}/x.bin".encode().hex()
        Handler.ways = [way]
        url = f"http://{first}:{port}/to/{way}"
        done = subprocess.run([program, "cat", url, *options], capture_output=True, text=True, env=env, timeout=60)
        return {"code": done.returncode, "out": done.stdout, "err": done.stderr,
                "asked": sorted({address for address, _ in Handler.seen})}

    ways = [("public.test", "loopback.test"), ("public.test", LOOPBACK), ("public.test", "private.test"),
            ("public.test", PRIVATE), ("public.test", "[::ffff:127.0.0.1]"), ("public.test", "0x7f.1"),
            ("public.test", "localhost"), (PUBLIC, "loopback.test"), ("public.test", PUBLIC), (PUBLIC, "public.test"),
            ("private.test", "loopback.test"), ("private.test", LOOPBACK), ("private.test", "public.test"),
            (PRIVATE, "private.test"), ("loopback.test", "private.test"), (LOOPBACK, "loopback.test")]
    found = {f"{first} {to}": asked(first, to) for first, to in ways}

    # A name that was a public address when it was mounted, and is this machine's afterwards.
    with tempfile.TemporaryDirectory() as mnt:
        subprocess.run([program, "mount", f"http://own.test:{port}/d/", mnt, *options, "--dir-ttl=0"], env=env, check=False,
                       capture_output=True, timeout=60)
        Handler.seen.clear()
        read = lambda name: open(f"{mnt}/{name}", "rb").read().decode()  # noqa: E731
        try:
            before = read("a.bin")
            write_hosts({**HOSTS, "own.test": LOOPBACK})
            try:
                after = read("b.bin")
            except OSError as error:
                after = error.errno
        finally:
            subprocess.run([program, "umount", mnt], env=env, check=True, capture_output=True, timeout=60)
    found["a name that changes"] = {"before": before, "after": after, "asked": sorted({at for at, _ in Handler.seen})}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
