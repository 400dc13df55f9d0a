"""What proves who asks: found where users of the cloud have it, renewed while a mount lasts, and shown nowhere."""

import contextlib
import json
import os
import pty
import re
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support import BIN, certificates, daemon_of, mounted, run
from support.stores import Store, free_port

SECRET = "geheimnis"


class Services(BaseHTTPRequestHandler):
    """A machine's metadata, a container's, and the service that takes web identities: keys of each kind are numbered."""

    protocol_version = "HTTP/1.1"
    asked = []

    def log_message(self, *_):
        pass

    def answer(self, text, status=200):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def keys(self, kind):
        self.asked.append(kind)
        # They run out so soon that each use asks for new ones.
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
        return {"AccessKeyId": f"{kind}{len(self.asked)}", "SecretAccessKey": SECRET, "Token": f"token-{SECRET}",
                "Expiration": expires, "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": expires}

    def do_PUT(self):
        self.answer("session" if self.path == "/latest/api/token" else "", 200)

    def do_GET(self):
        if self.path == "/container":
            return self.answer(json.dumps(self.keys("CONTAINER")))
        if self.headers.get("X-aws-ec2-metadata-token") != "session":
            return self.answer("", 401)
        role = "/latest/meta-data/iam/security-credentials/"
        self.answer("role" if self.path == role else json.dumps(self.keys("MACHINE")))

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode() + self.path
        assert "AssumeRoleWithWebIdentity" in body and "identity-of-a-pod" in body, body
        keys = self.keys("POD")
        self.answer("<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
                    f"<AccessKeyId>{keys['AccessKeyId']}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
                    f"<SessionToken>{keys['Token']}</SessionToken><Expiration>{keys['Expiration']}</Expiration>"
                    "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")


@contextlib.contextmanager
def services(tls=None):
    """Their address; `tls` is the context of a server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Services)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    Services.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def authority(folder):
    """A new authority's certificate, and the context of a server that it vouches for."""
    certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server", folder / "server.key")
    return folder / "authority", context


@pytest.fixture
def store():
    store = Store()
    store.put("d/one.bin", b"1")
    store.put("d/two.bin", b"2")
    with store.serving() as endpoint:
        yield store, endpoint


@pytest.fixture
def env(tmp_path, monkeypatch):
    """An environment without any credentials, and a home without any either."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return monkeypatch.setenv


def signers(store):
    """The keys that requests were signed with, in the order of their first use, and the regions."""
    signed = [re.search(r"Credential=([^/]+)/\d+/([^/]+)/", headers.get("authorization", headers.get("Authorization", "")))
              for headers in store.headers]
    return list(dict.fromkeys(found[1] for found in signed if found)), {found[2] for found in signed if found}


@pytest.mark.parametrize("kind", ["MACHINE", "CONTAINER", "POD"])
def test_keys_that_a_service_gives_are_renewed_and_shown_nowhere(store, env, tmp_path, kind):
    store, endpoint = store
    log = tmp_path / "log"
    # Web identities are sent over TLS only.
    certificate, context = authority(tmp_path) if kind == "POD" else (None, None)
    with services(context) as address:
        if kind == "MACHINE":
            env("AWS_METADATA_ENDPOINT", address)
        elif kind == "CONTAINER":
            env("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{address}/container")
            (tmp_path / "authorization").write_text(SECRET)
            env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "authorization"))
        else:
            (tmp_path / "identity").write_text("identity-of-a-pod")
            env("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "identity"))
            env("AWS_ROLE_ARN", "arn:aws:iam::1:role/reader")
            env("AWS_ENDPOINT_URL_STS", address)
            env("AWS_CA_BUNDLE", str(certificate))
        options = (f"--endpoint-url={endpoint}", f"--log-file={log}", "--log-level=trace")
        with mounted("s3://b/d", *options) as mnt:
            assert (mnt / "one.bin").read_bytes() == b"1"
            before = len(signers(store)[0])
            time.sleep(0.3)
            assert (mnt / "two.bin").read_bytes() == b"2"
            seen = [(mnt / ".shardfs" / name).read_text() for name in ("config.json", "stats.json", "problems.jsonl")]
            seen += [log.read_text(), run("status").stdout.decode()]
            seen.append(Path(f"/proc/{daemon_of(mnt)}/cmdline").read_bytes().decode())
    used, _ = signers(store)
    assert before and len(used) > before and all(key.startswith(kind) for key in used), used
    assert all(SECRET not in text for text in seen)


def test_without_any_keys_it_says_what_to_do(store, env):
    _, endpoint = store
    with services() as address:
        # Nothing answers there.
        env("AWS_METADATA_ENDPOINT", f"{address}/nowhere")
        begin = time.monotonic()
        failed = run("ls", "s3://b/d", f"--endpoint-url={endpoint}", "--timeout=3s", "--retries=1")
    # What to do comes first. That the service of a cloud's machines does not answer is no news.
    assert failed.returncode == 1 and "no credentials; give keys by AWS_ACCESS_KEY_ID" in failed.stderr, failed.stderr
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("origin", ["AWS_ACCESS_KEY_ID", "the profile lab"])
def test_refused_keys_are_named(store, env, tmp_path, origin):
    """By the first characters of their name and by where they come from, and never by what is secret."""
    store, endpoint = store
    store.faults = [lambda handler: handler.fail(403, "InvalidAccessKeyId") or True]
    options = [f"--endpoint-url={endpoint}"]
    if origin == "AWS_ACCESS_KEY_ID":
        env("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
        env("AWS_SECRET_ACCESS_KEY", SECRET)
    else:
        (tmp_path / ".aws").mkdir()
        (tmp_path / ".aws/credentials").write_text(
            f"[lab]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key = {SECRET}\n")
        options.append("--profile=lab")
    failed = run("ls", "s3://b/d", *options)
    assert failed.returncode == 1 and f"; the key AKIA… of {origin} was refused" in failed.stderr
    assert "AKIAE" not in failed.stderr and SECRET not in failed.stderr
    unsigned = run("ls", "s3://b/d", f"--endpoint-url={endpoint}", "--no-sign-request")
    assert unsigned.returncode == 1 and "without keys are not permitted" in unsigned.stderr
    assert "instead of --no-sign-request" in unsigned.stderr


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_half_of_the_keys_is_said_to_be_half(store, env, name):
    env(name, SECRET)
    failed = run("ls", "s3://b/d", f"--endpoint-url={store[1]}")
    assert failed.returncode == 1 and "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set" in failed.stderr
    assert SECRET not in failed.stderr


def test_a_person_is_told_that_a_server_is_tried_again(env, tmp_path):
    """On a terminal, after two seconds; a program that reads stderr is not."""
    url = f"http://127.0.0.1:{free_port()}/x/"
    command = [BIN, "ls", url, "--timeout=6s"]
    assert "trying again" not in run(*command[1:]).stderr
    shown = pseudo_terminal(command)
    assert "; trying again" in shown, shown


def pseudo_terminal(command):
    """What a command prints on a terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    text = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not part:
            break
        text += part
    os.waitpid(pid, 0)
    os.close(terminal)
    return text.decode()


def test_the_first_mount_says_where_bytes_are_kept(store, env, tmp_path):
    _, endpoint = store
    options = (f"--endpoint-url={endpoint}", "--no-sign-request")
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    said = []
    # A command that uses the folder before takes nothing away from that.
    assert "kept in" not in run("ls", *options, "s3://b/d", check=True).stderr
    assert (tmp_path / "cache/shardfs/blocks").is_dir()
    for _ in range(2):
        said.append(run("mount", *options, "s3://b/d", mnt, check=True).stderr)
        run("umount", mnt, check=True)
    assert f"bytes of objects are kept in {tmp_path}/cache/shardfs/blocks, up to " in said[0] and "kept in" not in said[1]


def test_a_profile_names_server_region_and_keys(store, env, tmp_path):
    store, endpoint = store
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(f"[profile lab]\nregion = eu-lab-1\nendpoint_url = {endpoint}\n"
                                          "[profile made]\nregion = eu-made-1\n"
                                          f"endpoint_url = {endpoint}\ncredential_process = cat {tmp_path}/printed\n")
    (tmp_path / ".aws/credentials").write_text(f"[lab]\naws_access_key_id = LAB\naws_secret_access_key = {SECRET}\n")
    (tmp_path / "printed").write_text(json.dumps({"Version": 1, "AccessKeyId": "MADE", "SecretAccessKey": SECRET}))
    assert run("cat", "s3://b/d/one.bin", "--profile=lab", check=True).stdout == b"1"
    assert signers(store) == (["LAB"], {"eu-lab-1"})
    store.headers.clear()
    env("AWS_PROFILE", "made")
    assert run("cat", "s3://b/d/one.bin", check=True).stdout == b"1"
    assert signers(store) == (["MADE"], {"eu-made-1"})
    missing = run("cat", "s3://b/d/one.bin", "--profile=other")
    assert missing.returncode == 1 and "no profile other" in missing.stderr


def test_the_server_names_the_region_and_wants_its_requests_paid(store, env):
    store, endpoint = store
    env("AWS_ACCESS_KEY_ID", "KEY")
    env("AWS_SECRET_ACCESS_KEY", SECRET)

    def elsewhere(handler):
        is_right = "/eu-other-1/" in handler.headers["Authorization"]
        if not is_right:
            handler.fail(400, "AuthorizationHeaderMalformed", **{"x-amz-bucket-region": "eu-other-1"})
        return not is_right

    store.faults = [elsewhere]
    options = (f"--endpoint-url={endpoint}", "--region=us-east-1", "--request-payer")
    assert run("cat", "s3://b/d/one.bin", *options, check=True).stdout == b"1"
    assert signers(store)[1] == {"us-east-1", "eu-other-1"}
    payers = [{name.lower(): value for name, value in headers.items()}.get("x-amz-request-payer") for headers in store.headers]
    assert payers and set(payers) == {"requester"}


def test_keys_that_have_run_out_are_read_again(store, env, tmp_path):
    store, endpoint = store
    (tmp_path / ".aws").mkdir()
    printed = tmp_path / "printed"
    (tmp_path / ".aws/config").write_text(f"[default]\ncredential_process = cat {printed}\n")

    def print_keys(name):
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
        keys = {"Version": 1, "AccessKeyId": name, "SecretAccessKey": SECRET, "Expiration": expires}
        printed.write_text(json.dumps(keys))

    print_keys("OLD")
    with mounted("s3://b/d", f"--endpoint-url={endpoint}") as mnt:
        assert (mnt / "one.bin").read_bytes() == b"1"
        print_keys("NEW")
        store.faults = [lambda handler: "OLD" in handler.headers["Authorization"]
                        and (handler.fail(403, "ExpiredToken") or True)]
        assert (mnt / "two.bin").read_bytes() == b"2"
    assert signers(store)[0] == ["OLD", "NEW"]


def test_certificates_of_ones_own(env, tmp_path):
    certificate, context = authority(tmp_path)
    store = Store()
    store.put("d/one.bin", b"1")
    with store.serving(context) as endpoint:
        options = ("--no-sign-request", f"--endpoint-url={endpoint}", "--timeout=3s", "--retries=1")
        refused = run("cat", "s3://b/d/one.bin", *options)
        assert refused.returncode == 1 and "certificate" in refused.stderr and len(refused.stderr.splitlines()) == 1
        trusted = run("cat", "s3://b/d/one.bin", *options, f"--ca-bundle={certificate}", check=True)
        assert trusted.stdout == b"1"
        env("AWS_CA_BUNDLE", str(certificate))
        assert run("cat", "s3://b/d/one.bin", *options, check=True).stdout == b"1"
