"""`shardfs serve` with a certificate: HTTPS, and everything over it as over HTTP."""

import datetime
import http.client
import os
import socket
import subprocess
import time

import numpy as np
import pytest

from support import FIXTURES, TIMEOUT, certificates, run, serving

TOKEN = "a-token-of-our-own-0123456789"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    certificates(folder)
    return folder


def options(keys):
    return "--tls-cert", keys / "server", "--tls-key", keys / "server.key"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A folder with a file whose bytes would be lent, and an array in a container that lies in the file."""
    folder = tmp_path_factory.mktemp("large")
    array = np.random.default_rng(1).integers(0, 255, 8 << 20, dtype="u1")
    np.savez(folder / "a.npz", array=array)
    (folder / "plain.bin").write_bytes(array.tobytes())
    np.savez(folder / "cut.npz", array=np.zeros(64 << 20, "u1"))
    # Files that were written less than three seconds ago are read, not lent.
    time.sleep(4.1)
    return folder, array.tobytes()


@pytest.fixture(scope="module")
def server(keys, large):
    with serving(large[0], *options(keys)) as server:
        assert server.links[0].startswith("https://127.0.0.1:")
        server.trusted = keys / "authority"
        yield server


def test_whole_files_and_ranges(server, large):
    assert server.get("/files/plain.bin") == large[1]
    assert server.get("/files/a.npz/array.npy")[-len(large[1]):] == large[1]
    status, headers, body = server.ask("/files/plain.bin", Range="bytes=1000000-5000000")
    assert (status, body) == (206, large[1][1_000_000:5_000_001])


def test_programs(server, keys, large, tmp_path):
    curl = ["curl", "-sS", "--cacert", keys / "authority", "-o", tmp_path / "got"]
    subprocess.run([*curl, f"{server.url}/files/plain.bin"], check=True, timeout=TIMEOUT)
    assert (tmp_path / "got").read_bytes() == large[1]
    # Without the authority's certificate it is not trusted.
    refused = subprocess.run(["curl", "-sS", f"{server.url}/files/"], capture_output=True, timeout=TIMEOUT)
    assert refused.returncode == 60
    remote = f":webdav,url='{server.url}/dav/',vendor=other:a.npz"
    rclone = ["rclone", "copy", "--ca-cert", keys / "authority", remote, tmp_path / "copy"]
    subprocess.run(rclone, check=True, timeout=TIMEOUT, capture_output=True, env={**os.environ, "HOME": str(tmp_path)})
    assert (tmp_path / "copy" / "array.npy").read_bytes()[-len(large[1]):] == large[1]


def test_a_truncated_file_harms_only_its_answer(server, large):
    """Encryption looks at the bytes, so none may lie in a map of the file."""
    with server.connect() as connection:
        connection.request("GET", "/files/cut.npz/array.npy")
        answer = connection.getresponse()
        assert answer.read(1 << 20).endswith(bytes(1 << 19))
        os.truncate(large[0] / "cut.npz", 100)
        with pytest.raises((http.client.IncompleteRead, OSError)):
            answer.read()
    assert server.process.poll() is None
    assert server.get("/files/plain.bin") == large[1]


def test_the_cookie_is_for_encrypted_connections_only(keys, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    with serving(FIXTURES, *options(keys), "--token-file", tmp_path / "token") as server:
        server.trusted = keys / "authority"
        assert server.ask("/files/notes.txt")[0] == 401
        status, headers, _ = server.ask(f"/files/notes.txt?token={TOKEN}", Accept="text/html")
        assert status == 303 and headers["set-cookie"].endswith("; Secure")
        cookie = headers["set-cookie"].split(";")[0]
        assert server.get("/files/notes.txt", Cookie=cookie) == (FIXTURES / "notes.txt").read_bytes()
    with serving(FIXTURES, "--token-file", tmp_path / "token") as server:
        _, headers, _ = server.ask(f"/files/notes.txt?token={TOKEN}", Accept="text/html")
        assert "Secure" not in headers["set-cookie"]


def test_clients_that_do_not_speak_tls(server):
    place = (server.host, server.port)
    silent = [socket.create_connection(place, timeout=TIMEOUT) for _ in range(300)]
    with socket.create_connection(place, timeout=TIMEOUT) as plain:
        plain.sendall(b"GET /files/plain.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = plain.recv(1000)
        assert b"HTTP/" not in answer
    # They have taken every place, and give way.
    assert server.get("/files/")
    for connection in silent:
        connection.close()


def test_wrong_certificates_and_keys(keys, tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("")
    own = tmp_path / "own.key"
    subprocess.run(["openssl", "genrsa", "-aes128", "-passout", "pass:x", "-out", own, "2048"], check=True,
                   capture_output=True)
    make = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    odd = {"large": ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-521"], "small": ["-newkey", "rsa:1024"]}
    for name, kind in odd.items():
        subprocess.run([*make, *kind, "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / name], check=True,
                       capture_output=True)
    subprocess.run(["openssl", "req", "-new", "-key", keys / "server.key", "-subj", "/CN=127.0.0.1", "-out",
                    tmp_path / "asked"], check=True, capture_output=True)
    subprocess.run(["openssl", "x509", "-req", "-in", tmp_path / "asked", "-key", keys / "server.key", "-days", "2",
                    "-out", tmp_path / "first"], check=True, capture_output=True)
    shown = subprocess.run(["openssl", "x509", "-in", tmp_path / "first", "-noout", "-text"], check=True, text=True,
                           capture_output=True)
    assert "Version: 1 " in shown.stdout
    usable = "holds no key that can be used: RSA of 2048 to 4096 bits, ECDSA P-256 or P-384, or Ed25519"
    cases = [
        *(((tmp_path / name, tmp_path / f"{name}.key"), f"--tls-key {tmp_path / name}.key: {usable}") for name in odd),
        ((tmp_path / "first", keys / "server.key"),
         f"--tls-cert {tmp_path / 'first'}: its first certificate is none of X.509 version 3"),
        ((empty, keys / "server.key"), f"--tls-cert {empty}: holds no certificate in PEM form"),
        ((keys / "server", empty), f"--tls-key {empty}: holds no private key in PEM form, or one with a password"),
        ((keys / "server", own), f"--tls-key {own}: holds no private key in PEM form, or one with a password"),
        ((keys / "server", keys / "authority.key"),
         f"--tls-key {keys / 'authority.key'}: is not the key of the certificate"),
        ((tmp_path / "none", keys / "server.key"), f"--tls-cert {tmp_path / 'none'}: No such file or directory"),
    ]
    for (certificate, key), message in cases:
        done = run("serve", FIXTURES, "--listen", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key)
        assert done.returncode == 1 and message in done.stderr, done.stderr
    done = run("serve", FIXTURES, "--tls-cert", keys / "server")
    assert done.returncode == 2 and "--tls-key" in done.stderr


def test_a_key_that_others_may_read(keys, tmp_path):
    key = tmp_path / "key"
    key.write_bytes((keys / "server.key").read_bytes())
    key.chmod(0o644)
    with serving(FIXTURES, "--tls-cert", keys / "server", "--tls-key", key) as server:
        assert "other users may read the key" in server.printed()


def test_files_that_begin_with_a_mark(keys, tmp_path):
    """As OpenSSL reads them, the first certificate is the one behind the mark."""
    for name in ["server", "server.key"]:
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (keys / name).read_bytes() + (keys / "authority").read_bytes())
    (tmp_path / "server.key").chmod(0o600)
    with serving(FIXTURES, *options(tmp_path)) as server:
        server.trusted = keys / "authority"
        assert server.get("/files/notes.txt") == (FIXTURES / "notes.txt").read_bytes()
        assert "warn" not in server.printed().lower()


def test_certificates_of_another_time(keys, tmp_path):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    key = serialization.load_pem_private_key((keys / "server.key").read_bytes(), None)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    for name, why, begin in [("old", "has expired", datetime.datetime(2020, 1, 1)),
                             ("new", "is not valid yet", datetime.datetime(2090, 1, 1))]:
        made = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        made = made.not_valid_before(begin).not_valid_after(begin + datetime.timedelta(days=9)).sign(key, hashes.SHA256())
        (tmp_path / name).write_bytes(made.public_bytes(serialization.Encoding.PEM))
        with serving(FIXTURES, "--tls-cert", tmp_path / name, "--tls-key", keys / "server.key") as server:
            assert f"--tls-cert {tmp_path / name}: the certificate {why}" in server.printed()
