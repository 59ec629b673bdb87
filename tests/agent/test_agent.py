"""Answers of the agent from its last reading."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress

import msgspec
import pytest
from waiting import until

from rocescope.agent import adapters as under_test_adapters
from rocescope.agent import agent as under_test
from rocescope.agent import server as under_test_server
from rocescope.agent.adapters import Adapter, Adapters, AdapterState
from rocescope.agent.agent import Agent
from rocescope.agent.readings import Readings
from rocescope.agent.server import Answer, Listening, Request, Server, is_loopback, parse_address
from rocescope.analyzer.errors import CaptureError, RocescopeError, UsageError
from rocescope.probes.owners.nldev import QueuePairCounters
from rocescope.probes.owners.queue_pairs import Resource

# Answers of the agent from its last reading.


@pytest.fixture
def readings(tmp_path):
    return Readings(["eth2"], None, Adapters(tmp_path))


def ask(agent, path, accept="", **query):
    return agent.answer(Request(path, query, accept))


def test_answers(readings):
    agent = Agent(readings, 5)
    metrics = ask(agent, "/metrics")
    assert metrics.content_type.startswith("text/plain; version=0.0.4")
    assert b'rocescope_blind{device="eth2",reason="not_attached"} 1.0' in metrics.body
    assert b"rocescope_data_age_seconds" in metrics.body and b"process_cpu" in metrics.body
    accept = "application/openmetrics-text; version=1.0.0"
    body = ask(agent, "/metrics", accept).body
    assert body.endswith(b"# EOF\n") and body.count(b"# EOF") == 1
    for path, field in (
        ("/flows", "flows"),
        ("/queue-pairs", "queue_pairs"),
        ("/diagnosis", "findings"),
    ):
        assert msgspec.json.decode(ask(agent, path).body)[field] == []
    assert ask(agent, "/healthy").status == 200
    assert b"/metrics" in ask(agent, "/").body
    assert ask(agent, "/etc/passwd").status == 404


def test_versions_that_are_no_number_get_text(readings):
    answer = ask(Agent(readings, 5), "/metrics", "application/openmetrics-text; version=x")
    assert answer.content_type.startswith("text/plain") and b"rocescope_blind" in answer.body


def test_metrics_are_encoded_once_per_reading(readings, monkeypatch):
    agent = Agent(readings, 5)
    calls = []
    whole = under_test.families

    def counted(state):
        calls.append(1)
        return whole(state)

    monkeypatch.setattr(under_test, "families", counted)
    for _ in range(5):
        ask(agent, "/metrics")
    assert len(calls) == 1


@pytest.mark.parametrize("top", ["0", "-1", "x", "201", "9" * 30, "", "²"])
def test_bad_numbers(readings, top):
    with pytest.raises(UsageError, match="1 to 200"):
        ask(Agent(readings, 5), "/flows", top=top)


def test_the_list_of_queue_pairs_may_be_longer(readings):
    agent = Agent(readings, 5)
    assert ask(agent, "/queue-pairs", top="4096").status == 200
    with pytest.raises(UsageError, match="1 to 4096"):
        ask(agent, "/queue-pairs", top="4097")


def test_old_readings_are_not_healthy(readings, monkeypatch):
    agent = Agent(readings, 0.1)
    now = under_test.time.monotonic()
    monkeypatch.setattr(under_test.time, "monotonic", lambda: now + 60)
    assert ask(agent, "/healthy").status == 503


def test_slow_readings_are_recent_for_longer(readings, monkeypatch):
    agent = Agent(readings, 0.1)
    cpu = iter([0.0, 0.2])
    monkeypatch.setattr(under_test.time, "thread_time", lambda: next(cpu))
    agent.run(agent.stop)
    assert b"rocescope_interval_seconds 12.0" in ask(agent, "/metrics").body
    now = under_test.time.monotonic()
    for age, status in ((40, 200), (50, 503)):
        monkeypatch.setattr(under_test.time, "monotonic", lambda age=age: now + age)
        assert ask(agent, "/healthy").status == status


def test_a_burst_keeps_readings_at_most_15_seconds_apart_and_is_said(readings, monkeypatch):
    agent = Agent(readings, 1)
    assert b"rocescope_slow_readings 0.0" in ask(agent, "/metrics").body
    cpu = iter([0.0, 1.75, 10.0, 10.001])
    monkeypatch.setattr(under_test.time, "thread_time", lambda: next(cpu))
    monkeypatch.setattr(agent._stopping, "wait", lambda seconds: bool(said))
    said = []
    agent.run(lambda: said.extend(readings.trouble()))
    metrics = ask(agent, "/metrics").body
    assert b"rocescope_interval_seconds 15.0" in metrics
    assert b"rocescope_slow_readings 1.0" in metrics
    assert len(said) == 1 and "readings are up to 15 s apart, not 1 s" in said[0]
    said.clear()
    agent.run(lambda: said.append(1))
    limits = msgspec.json.decode(ask(agent, "/diagnosis").body)["limits"]
    assert any("readings are up to 15 s apart" in line for line in limits)
    assert readings.trouble() == []
    assert b"rocescope_slow_readings 0.0" in ask(agent, "/metrics").body


def test_it_reads_until_it_is_stopped(readings, monkeypatch):
    times = []

    def read():
        times.append(1)
        return ["finding"]

    monkeypatch.setattr(readings, "read", read)
    recorded = []
    agent = Agent(readings, 0.01, recorded.append)
    thread = threading.Thread(target=agent.run)
    thread.start()
    until(lambda: len(times) >= 3)
    agent.stop()
    thread.join(300)
    assert not thread.is_alive() and len(recorded) == len(times)


def test_it_ends_when_nothing_is_left(readings, monkeypatch):
    monkeypatch.setattr(Readings, "all_gone", True)
    with pytest.raises(CaptureError, match="all interfaces have disappeared"):
        Agent(readings, 0.01).run()


# Adapters of a made-up /sys/class/infiniband, and what is read from them.


def pair(qp, state="RTS", device="mlx5_0", type="RC", pid=7):
    return Resource(device, 1, qp, 5, type, state, 0, 0, pid, "train")


@pytest.fixture
def sysfs(tmp_path):
    ndevs = tmp_path / "mlx5_0" / "ports" / "1" / "gid_attrs" / "ndevs"
    ndevs.mkdir(parents=True)
    (ndevs / "0").write_text("eth2\n")
    counters = tmp_path / "mlx5_0" / "ports" / "1" / "counters"
    counters.mkdir()
    (counters / "port_xmit_packets").write_text("30")
    (counters / "port_rcv_packets").write_text("12")
    (tmp_path / "rxe0").mkdir()
    (tmp_path / "rxe0" / "parent").write_text("eth3\n")
    return tmp_path


def test_adapters_of_interfaces(sysfs):
    adapters = Adapters(sysfs)
    assert adapters.of_interface("eth2") == [Adapter("mlx5_0", is_software=False)]
    assert adapters.of_interface("eth3") == [Adapter("rxe0", is_software=True)]
    assert adapters.of_interface("eth4") == adapters.of_interface("") == []
    assert Adapters(sysfs / "missing").of_interface("eth2") == []


def test_adapters_in_other_namespaces_are_unknown(sysfs):
    assert Adapters(sysfs).of_interface("eth2", "blue") is None, "not those of the host's eth2"
    assert Adapters(sysfs / "missing").of_interface("eth2", "blue") == []


def test_looks_are_rare(sysfs, monkeypatch):
    rows = [pair(1, type="GSI"), pair(0x11), pair(0x12, "ERR")]
    counted = [QueuePairCounters("mlx5_0", 1, (0x11,), 7, {"out_of_sequence": 3})]
    monkeypatch.setattr(under_test_adapters, "dump_queue_pairs", lambda: (rows, None))
    monkeypatch.setattr(under_test_adapters, "dump_counters", lambda: (counted, None))
    now = [100.0]
    monkeypatch.setattr(under_test_adapters.time, "monotonic", lambda: now[0])
    adapters = Adapters(sysfs)
    assert adapters.look() and not adapters.look()
    now[0] += 15
    assert adapters.look()
    state = adapters.state
    assert state.states() == {("mlx5_0", "RC", "RTS"): 1, ("mlx5_0", "RC", "ERR"): 1}
    assert [one.local_qp for one in state.in_error()] == [0x12]
    assert state.in_error("rxe0") == [] and len(state.in_error("mlx5_0")) == 1
    assert state.packets == {("mlx5_0", "out"): 30, ("mlx5_0", "in"): 12}
    assert state.counters == counted


def test_owner_is_of_this_interface():
    state = AdapterState([pair(0x11), pair(0x11, device="mlx5_1", pid=8)])
    assert state.owner([Adapter("mlx5_1", is_software=False)], 0x11).pid == 8
    assert state.owner([], 0x11) is None


def test_a_host_without_adapters(tmp_path):
    adapters = Adapters(tmp_path)
    assert adapters.look() and adapters.state == AdapterState()


# The HTTP server with friendly, slow and hostile readers.


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
    monkeypatch.setattr(under_test_server, "_SECONDS", 0.3)
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


def test_half_requests_make_room_for_others(server):
    """The oldest goes first; nobody waits until their time is over."""
    half = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
    for handle in half:
        handle.sendall(b"GET /x HTT")
    for _ in range(5):
        assert get(server.port)[0] == 200
    newest = half[-1]
    newest.sendall(b"P/1.1\r\n\r\n")
    assert newest.recv(12) == b"HTTP/1.1 200"
    for handle in half:
        handle.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_other_methods_are_not_allowed(server, method):
    status, body, response = get(server.port, "/x", method)
    assert (status, body) == (405, "method not allowed\n")
    assert (response.headers["Allow"], response.version) == ("GET, HEAD", 11)
    assert b"405" in raw(server.port, b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\nhello")


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


def test_the_port_is_free_again_when_a_server_has_ended():
    """The side that ends a connection first keeps its port in TIME_WAIT for a minute."""
    first = Server(Listening("127.0.0.1", 0))
    first.start(answer)
    assert get(first.port)[0] == 200
    first.close()
    again = Server(Listening("127.0.0.1", first.port))
    again.start(answer)
    assert get(again.port)[0] == 200
    again.close()


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
