"""`rocescope agent` as users run it, scraped by a real Prometheus."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from counted import ack, packet, traffic
from processes import status_of_threads
from waiting import until

from rocescope import cli
from rocescope.agent.adapters import Adapters
from rocescope.agent.readings import Readings
from rocescope.commands import agent as under_test


@contextmanager
def running(*arguments: str, prefix: tuple[str, ...] = ()):
    """An agent on a free port; `.url` is its address."""
    process: Any = subprocess.Popen(
        [
            *(*prefix, sys.executable, "-m", "rocescope", "agent", *arguments),
            *("--listen", "127.0.0.1:0"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        process.said = process.stderr.readline()
        process.url = re.search(r"(https?://\S+)/metrics", process.said)[1]
        yield process
    finally:
        process.kill()
        process.communicate()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=300) as answer:
        return answer.read()


def value(url: str, series: str) -> float | None:
    for line in get(f"{url}/metrics").decode().splitlines():
        if line.startswith(f"{series} "):
            return float(line.split()[-1])
    return None


@pytest.fixture
def prometheus(need_tool, tmp_path):
    """A function: start Prometheus with these scrape targets, return a function for queries."""
    need_tool("promtool")
    started = []

    def start(target: str, rules: str | None = None):
        config = {
            "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
            "rule_files": [rules] if rules else [],
            "scrape_configs": [
                {"job_name": "rocescope", "static_configs": [{"targets": [target]}]}
            ],
        }
        path = tmp_path / "prometheus.yml"
        path.write_text(json.dumps(config))
        words = [
            *(need_tool("prometheus"), f"--config.file={path}", "--log.level=error"),
            *(f"--storage.tsdb.path={tmp_path / 'data'}", "--enable-feature=exemplar-storage"),
        ]
        port = 0

        def begin() -> None:
            nonlocal port
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            started.append(subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{port}"]))

        def query(expression: str, api: str = "query") -> Any:
            parameters = urllib.parse.urlencode(
                {"query": expression, "start": time.time() - 600, "end": time.time() + 60}
            )
            answer = json.loads(get(f"http://127.0.0.1:{port}/api/v1/{api}?{parameters}"))["data"]
            return answer["result"] if api == "query" else answer

        def up() -> bool:
            if started[-1].poll() is not None:  # another process has taken the port
                assert len(started) < 5
                begin()
            try:
                return bool(query("up == 1"))
            except OSError:
                return False

        begin()
        until(up)
        return query

    yield start
    for process in started:
        process.terminate()
        process.wait(300)


def test_a_real_prometheus_scrapes_it(network, prometheus):
    net = network()
    label = net.interface("left")
    with running(label, "--interval", "100ms") as agent:

        def findings():
            return json.loads(get(f"{agent.url}/diagnosis"))["findings"]

        query = prometheus(urllib.parse.urlsplit(agent.url).netloc)
        net.send(traffic())
        net.send([ack(1, 0x60) for _ in range(30)], "right")
        whole = f'rocescope_packets_total{{device="{label}",direction="out"}}'
        until(lambda: [r["value"][1] for r in query(whole)] == [str(len(traffic()))])
        late = f'rocescope_late_packets_total{{device="{label}",direction="out"}}'
        until(lambda: [r["value"][1] for r in query(late)] != ["0"])
        until(lambda: query(late, "query_exemplars"))
        exemplar = query(late, "query_exemplars")[0]["exemplars"][0]
        assert exemplar["labels"]["peer"] == "10.0.0.2"
        assert re.fullmatch("0x0000..", exemplar["labels"]["dest_qp"])
        # The NAKs may be read later than the late packets.
        until(lambda: "naks" in [finding["kind"] for finding in findings()])
        assert findings()[0]["kind"] == "naks"
        flows = json.loads(get(f"{agent.url}/flows?top=3"))["flows"]
        assert len(flows) == 3
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(300) == 0 and agent.stderr.read() == ""


ABSENT = ("rocescope_queue_pairs", "rocescope_queue_pair_counter_max", "rocescope_blind")
"""Series that the agent does not have here: no RDMA adapter, and it is not blind."""


def expressions(deploy) -> list[str]:
    """Those of the alert rules and the dashboard, with the variables of Grafana filled in."""
    rules = yaml.safe_load((deploy / "prometheus/rocescope-alerts.yml").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((deploy / "grafana/rocescope.json").read_text())
    for panel in dashboard["panels"]:
        found += [target["expr"] for target in panel["targets"]]
    for name, text in (("instance", ".*"), ("device", ".*"), ("__rate_interval", "1m")):
        found = [expression.replace(f"${name}", text) for expression in found]
    assert not [expression for expression in found if "$" in expression]
    return found


@pytest.mark.thorough
def test_alert_rules_and_dashboard(network, prometheus, checkout, need_tool, tmp_path):
    deploy = checkout / "deploy"
    rules = deploy / "prometheus/rocescope-alerts.yml"
    done = subprocess.run([need_tool("promtool"), "check", "rules", rules], capture_output=True)
    assert done.returncode == 0, done.stdout
    shutil.copy(rules, tmp_path)
    cases = shutil.copy(checkout / "tests/data/alerts.test.yml", tmp_path)
    done = subprocess.run([need_tool("promtool"), "test", "rules", cases], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    net = network()
    with running(net.interface("left"), "--interval", "100ms") as agent:
        query = prometheus(urllib.parse.urlsplit(agent.url).netloc, str(rules))
        until(lambda: query("rocescope_packets_total"))
        for side in ("left", "right"):
            net.send([*traffic(), *(ack(1, 0x60) for _ in range(30))], side)
            net.send([packet(psn, qp=0x55) for psn in (*range(100), *range(150, 300))], side)
        until(lambda: query("rate(rocescope_late_packets_total[1m]) > 0"))
        until(lambda: query('rocescope_findings{kind="loss"}'))
        text = get(f"{agent.url}/metrics").decode()
        known = {*re.findall(r"^rocescope_\w+", text, re.MULTILINE), *ABSENT}
        for expression in expressions(deploy):
            names = set(re.findall(r"rocescope_\w+", expression))
            assert names <= known, expression
            whole = re.sub(r" *[=>]=? *[0-9.]+$", "", expression)  # the value, not the alert
            if not names & {*ABSENT}:
                until(lambda whole=whole: query(whole))
        until(lambda: query('ALERTS{alertname="RocescopeNaks"}'))


def test_files_for_kubernetes_and_systemd(checkout, need_tool):
    from rocescope.commands.agent import agent

    options = set(inspect.signature(agent).parameters)
    text = (checkout / "deploy/kubernetes/daemonset.yaml").read_text()
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    used = {word[2:].split("=")[0].replace("-", "_") for word in container["args"][2:]}
    assert used <= options
    capabilities = container["securityContext"]["capabilities"]
    assert capabilities == {
        "drop": ["ALL"],
        "add": ["BPF", "PERFMON", "NET_ADMIN", "SETUID", "SETGID", "SETPCAP"],
    }
    verify = [need_tool("systemd-analyze"), "verify", "--man=no"]
    unit = checkout / "deploy/systemd/rocescope-agent.service"
    done = subprocess.run([*verify, unit], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "${" not in unit.read_text(), "systemd expands nothing inside values of variables"
    ignored = (checkout / ".dockerignore").read_text().splitlines()
    assert {".git", "**/.venv", "**/*.key", "**/*.pem"} <= set(ignored)


@pytest.mark.thorough
def test_the_capabilities_of_the_daemon_set_suffice(network, need_tool):
    net = network()
    held = "-all,+bpf,+perfmon,+net_admin,+setuid,+setgid,+setpcap"
    # Others may not read the folders of this checkout; namespaces are for the test.
    held += ",+dac_read_search,+sys_admin"
    prefix = (need_tool("setpriv"), "--bounding-set", held)
    with running(net.interface("left"), prefix=prefix) as agent:
        net.send(traffic())
        series = f'rocescope_packets_total{{device="{net.interface("left")}",direction="out"}}'
        until(lambda: value(agent.url, series) == len(traffic()))
        for thread in status_of_threads(agent.pid):
            assert 0 not in thread.users and thread.kept == {"CAP_BPF", "CAP_DAC_READ_SEARCH"}


@pytest.mark.thorough
def test_privileges_are_given_up(network):
    net = network()
    with running(net.interface("left")) as agent:
        threads = status_of_threads(agent.pid)
        assert len(threads) >= 2
        for thread in threads:
            assert 0 not in thread.users | thread.groups and thread.no_new_privileges
            assert thread.kept == {"CAP_BPF", "CAP_DAC_READ_SEARCH"}


@pytest.mark.thorough
def test_recordings_in_a_folder_of_root(network, tmp_path):
    net = network()
    tmp_path.chmod(0o700)
    label = net.interface("left")
    with running(label, "--interval", "100ms", "--record", str(tmp_path), "--keep", "1GB") as agent:
        until(lambda: value(agent.url, "rocescope_recordings_total") == 0)
        net.send([ack(1, 0x60) for _ in range(30)], "right")
        until(lambda: value(agent.url, "rocescope_recordings_total") == 1)
        (finding,) = json.loads(get(f"{agent.url}/diagnosis"))["findings"]
        (name,) = finding["recordings"]
        for thread in status_of_threads(agent.pid):
            assert 0 not in thread.users and thread.kept == {"CAP_BPF", "CAP_DAC_READ_SEARCH"}
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(300) == 0 and agent.stderr.read() == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [name, "rocescope-agent.findings.jsonl"]
    )
    line = json.loads((tmp_path / "rocescope-agent.findings.jsonl").read_text())
    assert line["recordings"] == [name]


@pytest.mark.thorough
def test_it_ends_when_the_interface_goes(network):
    net = network()
    with running(net.interface("left"), "--interval", "100ms") as agent:
        net.ip("link", "del", "left")
        assert agent.wait(300) == 3
        said = agent.stderr.read().splitlines()
        assert said[-1] == "rocescope: all interfaces have disappeared or lost their probes"


@pytest.mark.usefixtures("root")
def test_without_probes():
    with running("lo", "--source", "queue-pairs") as agent:
        assert value(agent.url, 'rocescope_blind{device="lo",reason="not_attached"}') == 1
        assert "rocescope_packets" not in get(f"{agent.url}/metrics").decode()
        assert "lo: no probes are attached" in agent.stderr.readline()


@pytest.mark.parametrize("cpus", [1, 2, 8, 9, 64, 256])
def test_rings_are_bounded_on_many_processors(cpus):
    size = under_test._ring_bytes(cpus)
    assert size <= 8 << 20 and size * cpus <= 64 << 20 and size & size - 1 == 0


def test_a_recording_that_needs_probes_is_not_dropped_in_silence():
    note = under_test._NO_RECORDING
    readings = Readings(["eth2"], None, Adapters(Path("/nowhere")), notes=[note])
    assert note in readings.diagnosis().limits
    assert note in under_test._lines(None, readings)


@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--listen", "0.0.0.0:0"], 2, "0.0.0.0 is reachable from other hosts"),
        (["--listen", "nowhere"], 2, "give ADDRESS:PORT"),
        (["--client-ca", "x"], 2, "--client-ca needs"),
        (["--tls-key", "x"], 2, "must be given together"),
        (["--tls-key", "/x", "--tls-certificate", "/x"], 1, "/x or its key: no such file"),
        (["--peers", "257"], 2, "0 to 256"),
        (["--record", "/x", "--source", "queue-pairs"], 2, "--record needs probes"),
        (["--record", "/x", "--keep", "1MB", "--listen", "127.0.0.1:0"], 2, "40MiB or more"),
        (["--record", "/nowhere", "--listen", "127.0.0.1:0"], 1, "cannot record to /nowhere"),
        (["--interval", "1ms"], 2, "100ms or more"),
        (["--interval", "31s"], 2, "30s or less"),
        (["--max-flows", "1", "--listen", "127.0.0.1:0"], 2, "--max-flows"),
    ],
)
def test_options_that_make_no_sense(capsys, root, live_capture, arguments, code, message):
    assert cli.run(["agent", "lo", *arguments]) == code
    said = capsys.readouterr().err
    assert message in said and len(said.splitlines()) == 1


def test_port_in_use(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cli.run(["agent", "lo", "--listen", f"127.0.0.1:{port}"]) == 1
    assert capsys.readouterr().err == (
        f"rocescope: 127.0.0.1 port {port} is in use: give another --listen\n"
    )


def test_prometheus_client_is_an_extra(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert cli.run(["agent", "lo"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("rocescope: the agent needs prometheus-client, which is not installed: ")
    assert said.endswith("install prometheus-client\n")


def test_interface_that_does_not_exist(capsys, root, live_capture):
    assert cli.run(["agent", "nowhere0", "--listen", "127.0.0.1:0"]) == 3
    assert "there is no interface nowhere0" in capsys.readouterr().err
    assert os.geteuid() == 0
