"""`rocescope trace --live` on a port of a real router: paths, new flows, counters of switches."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from job_logs import COMM, nccl
from router_namespaces import frames, mac
from traced_lab import lab

from rocescope import cli
from rocescope.analyzer.errors import CaptureError
from rocescope.discovery.follow import Follow
from rocescope.discovery.traffic import LiveTraffic
from rocescope.probes.live import LiveSource
from rocescope.replay.fabrics.files import yaml_bytes
from rocescope.replay.hashing.keys import address_text

pytestmark = pytest.mark.usefixtures("root")
PACKETS = 60
"""Of a flow: more bytes than neighbour discovery may cause on a port."""


@pytest.fixture(scope="module")
def case(need_tool, tmp_path_factory):
    need_tool("ip")
    folder = tmp_path_factory.mktemp("live")
    with lab() as routers:
        (folder / "fabric.yaml").write_bytes(yaml_bytes(routers.fabric(folder / "answers")))
        yield routers, folder


def arguments(case, *more, fabric="fabric.yaml"):
    routers, folder = case
    return [
        "trace", "--live", f"{routers.name('leaf1')}:swp1", "--fabric", str(folder / fabric),
        "--devices", f"netns:{routers.prefix}", "--format", "json", *more,
    ]  # fmt: skip


def started(case, *more, fabric="fabric.yaml"):
    """The running command, once it captures."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rocescope", *arguments(case, *more, fabric=fabric)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    while line := process.stderr.readline():
        if b"capturing on" in line:
            return process
    raise AssertionError("it did not begin")


def send(routers, count, seed, times=1):
    """Few at a time: a queue between namespaces holds a thousand packets."""
    sent = list(itertools.islice(frames(routers.flows(count, 4, seed), mac(1, 1, 1)), count))
    for _ in range(times):
        for frame in sent:
            routers._senders[1].send(frame)
        time.sleep(0.005)


@pytest.mark.thorough
def test_paths_of_captured_flows(case):
    routers, _ = case
    process = started(case, "--ask", "all", "--verify", "counters")
    with process:
        send(routers, 48, 1, PACKETS)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    result = json.loads(out)
    assert (process.returncode, result["flows_traced"], result["complete_flows"]) == (0, 48, 48)
    (leaf,) = [one for one in result["asked"]["switches"] if one["switch"] == "leaf1"]
    assert leaf["answers"] == leaf["agreeing"] == 48
    assert all(flow["packets"] == PACKETS for flow in result["flows"])
    counters = result["counters"]
    assert counters["disagreements"] == []
    assert counters["links_agreeing"] == counters["links_checked"] > 8
    assert counters["flows_too_small"] == 0


@pytest.mark.thorough
def test_ranks_and_counters_of_a_wrong_prediction(case):
    """Logs name the receiver of some flows. With another seed of leaf1 in the fabric file, counters
    of its ports disagree."""
    routers, folder = case
    text = (folder / "fabric.yaml").read_text()
    assert text.count("seed: 1000,") == 1
    (folder / "other.yaml").write_text(text.replace("seed: 1000,", "seed: 4711,"))
    keys = routers.flows(48, 4, 5)
    rank_1 = address_text(keys.dst[0])
    own = {
        int(qp)
        for qp, dst in zip(keys.dest_qp, keys.dst, strict=True)
        if (dst == keys.dst[0]).all()
    }
    (folder / "rank1.log").write_text("\n".join(nccl("h", 7, 1, 0, rank_1, sorted(own))) + "\n")
    more = ("--nccl-log", str(folder / "rank*.log"), "--verify", "counters")
    process = started(case, *more, fabric="other.yaml")
    with process:
        send(routers, 48, 5, PACKETS)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    result = json.loads(out)
    assert (process.returncode, result["complete_flows"]) == (0, 48)
    ranks = {flow["dest_qp"]: (flow["dst_rank"], flow["comm"]) for flow in result["flows"]}
    assert {qp for qp, found in ranks.items() if found == (1, COMM)} == own
    assert set(ranks.values()) == {(1, COMM), (None, None)}
    counters = result["counters"]
    assert counters["links_agreeing"] < counters["links_checked"]
    assert any(one["link"].startswith("leaf1>") for one in counters["disagreements"])


@pytest.mark.thorough
def test_new_flows_while_following(case):
    routers, _ = case
    process = started(case, "--follow")
    with process:
        send(routers, 32, 2)
        began = json.loads(process.stdout.readline())
        assert began["kind"] == "began"
        seen = began["flows"]
        send(routers, 8, 3)
        while seen < 40:
            event = json.loads(process.stdout.readline())
            assert event["kind"] == "flows"
            seen += event["new_flows"]
            assert event["flows"] == event["complete_flows"] == seen
        process.send_signal(signal.SIGINT)
        rest = [json.loads(line) for line in process.stdout.read().splitlines()]
        assert process.wait() == 0
    assert [event["kind"] for event in rest] == ["ended"]


@contextmanager
def sending(routers):
    """Flows, until the end."""
    ended = threading.Event()

    def run():
        while not ended.wait(0.1):
            send(routers, 16, 4)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (CaptureError("the ring cannot be read"), 3, "the ring cannot be read"),
        (OSError("no\nmemory"), 1, "the capture failed: OSError: no memory"),
    ],
)
def test_a_capture_that_fails_while_following(case, capfd, monkeypatch, error, code, told):
    capturing = LiveTraffic.run

    def run(self, check, grown):
        def fails():
            check()
            if any(thread.name == "follow leaf1" for thread in threading.enumerate()):
                raise error

        capturing(self, fails, grown)

    monkeypatch.setattr(LiveTraffic, "run", run)
    with sending(case[0]):
        assert cli.run(arguments(case, "--follow", "--duration", "60s")) == code
    out, err = capfd.readouterr()
    assert told in err
    assert "Traceback" not in err
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["kind"] for event in events] == ["began", "ended"]


@pytest.mark.thorough
def test_what_was_lost_and_the_rest_of_the_duration(case, capfd, monkeypatch):
    asked = []
    counted, events = LiveSource.loss, Follow.events

    def loss(self):
        return replace(counted(self), ring_full=7 if asked else 0)

    def noted(self, seconds):
        asked.append(seconds)
        return events(self, seconds)

    monkeypatch.setattr(LiveSource, "loss", loss)
    monkeypatch.setattr(Follow, "events", noted)
    with sending(case[0]):
        assert cli.run(arguments(case, "--follow", "--duration", "1500ms")) == 0
    (seconds,) = asked
    assert 0 <= seconds < 1.5
    assert "7 packets were lost because the ring was full" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["x.pcap"], "cannot be combined: give one of them"),
        (["--hosts", "x"], "cannot be combined: give one of them"),
        (["--concat"], "--concat is for captures"),
        (["--follow", "--map", "order"], "needs --map exact or a file"),
        (["--verify", "taps"], "needs captures of several taps"),
    ],
)
def test_mistakes(case, capfd, more, told):
    assert cli.run(arguments(case, *more)) == 2
    assert told in capfd.readouterr().err


def test_no_flow_of_the_fabric(case, capfd):
    assert cli.run(arguments(case, "--duration", "200ms", "--follow")) == 2
    assert "no flow between hosts of" in capfd.readouterr().err
