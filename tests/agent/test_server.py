"""The HTTP server with friendly, slow and hostile readers."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress

import pytest
from waiting import until

from rocescope.agent import server as under_test
from rocescope.agent.server import Answer, Listening, Server, is_loopback, parse_address
from rocescope.analyzer.errors import RocescopeError, UsageError


def answer(request):
    if request.path == "/bad":
        raise UsageError("top takes a number")
    return Answer(f"{request.path} {sorted(request.query.items())} {request.accept}".encode())


@pytest.fixture
def server():
    server = Server(Listening("127.0.0.1", 0))
    server.start(answer)
    yield server
    server.close()


def get(port, path="/x", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    return response.status, response.read().decode(), response


def raw(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=300) as handle:
        handle.sendall(data)
        with suppress(OSError):  # the server was quicker
            handle.shutdown(socket.SHUT_WR)
        answer = b""
        while part := handle.recv(65536):
            answer += part
    return answer


def test_requests(server):
    assert get(server.port, "/flows?top=3", Accept="a/b")[:2] == (200, "/flows [('top', '3')] a/b")
    status, body, response = get(server.port, "/x", "HEAD")
    assert (status, body) == (200, "") and int(response.headers["Content-Length"]) > 0
    assert get(server.port, "/bad")[:2] == (400, "top takes a number\n")
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "Server" not in response.headers


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % n for n in range(200)) + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"GET /x?" + b"&".join(b"a%d=1" % n for n in range(50)) + b" HTTP/1.1\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\n\r\n",
        b"<script>alert(1)</script> / HTTP/1.1\r\n\r\n",
        b"\r\n",
        b"",
    ],
)
def test_hostile_requests(server, data, capfd):
    said = raw(server.port, data)
    assert b"script" not in said and b"Traceback" not in said
    assert b"200 OK" not in said and len(said) < 400
    assert get(server.port)[0] == 200
    assert capfd.readouterr() == ("", "")


def test_slow_readers_do_not_keep_others_away(monkeypatch):
    monkeypatch.setattr(under_test, "_SECONDS", 0.3)
    server = Server(Listening("127.0.0.1", 0))
    server.start(answer)
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
    for handle in slow:
        handle.sendall(b"GET /x HTT")

    def answered():
        try:
            return get(server.port)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    until(answered)
    for handle in slow:
        handle.close()
    server.close()


def test_many_readers(server):
    found = []

    def read():
        try:
            found.append(get(server.port)[0])
        except (OSError, http.client.HTTPException):
            found.append(None)  # over the limit of connections: closed

    threads = [threading.Thread(target=read) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 50 and found.count(200) >= 16


def test_requests_while_it_stops(server):
    ends = threading.Event()

    def read():
        while not ends.is_set():
            try:
                assert get(server.port)[0] == 200
            except (OSError, http.client.HTTPException):
                return

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    time.sleep(0.1)
    server.close()
    for reader in readers:
        reader.join(300)
        assert not reader.is_alive()
    ends.set()
    with pytest.raises(OSError, match=r"."):
        get(server.port)


def test_port_in_use(server):
    with pytest.raises(RocescopeError, match="127.0.0.1 port .* is in use: give another --listen"):
        Server(Listening("127.0.0.1", server.port))


def test_address_that_is_not_here():
    with pytest.raises(RocescopeError, match="cannot assign requested address"):
        Server(Listening("192.0.2.1", 0, without_tls=True))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:9791", ("127.0.0.1", 9791)),
        ("[::1]:0", ("::1", 0)),
        (":9791", ("::", 9791)),
        ("localhost:1", ("127.0.0.1", 1)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_addresses(text, found):
    assert parse_address(text) == found


@pytest.mark.parametrize("text", ["", "9791", "1.2.3.4", "host:1", "1.2.3.4:x", "::1:99999", "1:²"])
def test_no_addresses(text):
    with pytest.raises(UsageError, match="--listen"):
        parse_address(text)


def test_open_addresses_need_tls():
    for host in ("0.0.0.0", "::", "10.0.0.1"):
        assert not is_loopback(host)
        with pytest.raises(UsageError, match="is reachable from other hosts"):
            Listening(host, 0).check()
        Listening(host, 0, without_tls=True).check()
    with pytest.raises(UsageError, match="must be given together"):
        Listening("::1", 0, certificate="x").check()
    with pytest.raises(UsageError, match="--client-ca needs"):
        Listening("::1", 0, client_ca="x").check()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """ca.pem, server.pem, server.key, client.pem, client.key"""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(
        *(*new, "-subj", "/CN=test ca", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2"),
        *("-addext", "keyUsage=critical,keyCertSign"),  # Python 3.13 and later demand it
    )
    for name in ("server", "client"):
        openssl(
            *(*new, "-CA", "ca.pem", "-CAkey", "ca.key", "-subj", f"/CN={name}", "-days", "2"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"),
            *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
        )
    return folder


def test_client_certificates(certificates):
    server = Server(
        Listening(
            *("127.0.0.1", 0, certificates / "server.pem", certificates / "server.key"),
            certificates / "ca.pem",
        )
    )
    server.start(answer)
    assert server.url == f"https://127.0.0.1:{server.port}"

    def read(context):
        connection = http.client.HTTPSConnection(
            "127.0.0.1", server.port, timeout=300, context=context
        )
        connection.request("GET", "/x")
        return connection.getresponse().read()

    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    with pytest.raises((ssl.SSLError, OSError), match=r"."):
        read(context)
    assert not raw(server.port, b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP")
    context.load_cert_chain(certificates / "client.pem", certificates / "client.key")
    assert read(context).startswith(b"/x")
    server.close()


def test_unusable_certificates(certificates, tmp_path):
    (tmp_path / "bad.pem").write_text("nothing")
    for pair in (
        ("bad.pem", "bad.pem"),
        ("missing.pem", "missing.pem"),
    ):
        with pytest.raises(RocescopeError, match="pem"):
            Server(Listening("127.0.0.1", 0, *(tmp_path / name for name in pair)))
    with pytest.raises(RocescopeError, match="no usable certificate or key"):
        Server(Listening("127.0.0.1", 0, certificates / "server.pem", certificates / "client.key"))


def test_faults_are_one_bounded_line(capfd):
    def broken(request):
        raise TypeError("x" * 100_000)

    server = Server(Listening("127.0.0.1", 0))
    server.start(broken)
    assert get(server.port)[:2] == (500, "cannot answer: TypeError\n")
    server.close()
    assert capfd.readouterr().err == ""


def test_connections_without_a_thread_leave_no_trace(server, monkeypatch):
    def full(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("threading.Thread.start", full)
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.port), timeout=300) as handle:
                with suppress(ConnectionError):
                    assert handle.recv(1) == b""
    assert get(server.port)[0] == 200
