"""The gate, behind a real sshd."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime

import jsonschema
import msgspec
import numpy as np
import pytest
from answers import recorded, traffic_of, truth
from examples import first
from router_namespaces import ip
from sshd import READER, LocalSshd
from traced_lab import lab, units_of, ways_of
from waiting import until

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.asking import Namespaces, Said
from rocescope.discovery.dialects.linux import LINUX
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.discover import discover_folder
from rocescope.discovery.follow import CurrentPaths, Follow, FollowEvent, Move, gate_script
from rocescope.discovery.tracing.paths import trace_paths
from rocescope.replay.fabrics.linux_tables import read_device
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.topology import Reread

# The gate, behind a real sshd.


@pytest.fixture(scope="module")
def server(root, need_tool, tmp_path_factory):
    need_tool("sshd")
    folder = tmp_path_factory.mktemp("gate")
    server = LocalSshd(folder)
    gate = folder / "gate"
    gate.write_text(gate_script(DIALECTS["linux"], READER))
    gate.chmod(0o755)
    server.add("device", "/run/lab/gate")
    shutil.copy(folder / "authorized_root", folder / f"authorized_{READER}")
    with server:
        yield server


def ask(server, command):
    return subprocess.run(
        ["ssh", "-F", server.config, "-o", f"UserKnownHostsFile={server.known_hosts}",
         "-o", "BatchMode=yes", "-l", READER, "device", *([command] if command else [])],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(server.home)},
    )  # fmt: skip


def test_the_commands_pass(server, need_tool):
    need_tool("ip")
    done = ask(server, "ip -j route")
    assert (done.returncode, done.stdout[:1], done.stderr) == (0, "[", "")
    assert "net.ipv4.ip_forward" in ask(server, "/sbin/sysctl -a").stdout


@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.parametrize(
    "command",
    [
        "ip -j route; id",
        "ip -j route show",
        "ip -j route\nid",
        " ip -j route",
        "ip  -j route",
        "$(id)",
        "`id`",
        "*",
        "ip*",
        "[a-z]*",
        "id",
        "",
        "/usr/sbin/lldpctl -f json0 & id",
    ],
)
def test_nothing_else_passes(command, server):
    done = ask(server, command)
    assert (done.returncode, done.stdout) == (126, "")
    assert "refused: not a command of rocescope discover" in done.stderr


@pytest.mark.parametrize("name", [n for n, d in DIALECTS.items() if d.role is None])
def test_the_script_holds_every_command(name):
    text = gate_script(DIALECTS[name], "reader")
    for question in DIALECTS[name].questions_for("host"):
        if question.root:
            assert "exec sudo -n /" in text
    checked = subprocess.run(["sh", "-n"], input=text, text=True, check=False, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    "user",
    [
        "",
        "reader\nroot",
        "reader\n",
        "ALL",
        "%wheel",
        "#0",
        "a b",
        "a,root",
        "a;id",
        "-a",
        "a" * 33,
    ],
)
def test_a_name_that_means_more_is_refused(user):
    with pytest.raises(UsageError, match="is not a user name"):
        gate_script(DIALECTS["linux"], user)


def test_sudoers_lines_have_full_paths_and_the_exact_arguments():
    lines = [li for li in gate_script(DIALECTS["frr"], "reader").splitlines() if "NOPASSWD" in li]
    assert lines == [
        "#   reader ALL=(root) NOPASSWD: /usr/sbin/lldpctl -f json0",
        "#   reader ALL=(root) NOPASSWD: /usr/bin/vtysh -c show ip route json",
    ]


# The JSON of events.


def test_an_event_fits_its_schema_and_comes_back():
    move = Move(
        flow=1, src="10.0.0.1", dst="10.0.0.2", src_port=49152, dest_qp=7,
        before=["h1>leaf1"], after=[], ends_because="no route",
    )  # fmt: skip
    event = FollowEvent(
        time="2026-01-01T00:00:00.000+00:00", kind="changed", devices=["leaf1"], flows=2,
        seconds=0.5, complete_flows=1, moved_flows=1, moves=[move], fim_percent=None,
        lost_devices=[],
    )  # fmt: skip
    data = msgspec.json.encode(event)
    jsonschema.validate(msgspec.json.decode(data), msgspec.json.schema(FollowEvent))
    assert msgspec.json.decode(data, type=FollowEvent) == event


# Paths of which only those through changed switches are walked again.


def test_paths_are_those_of_a_walk_of_all_flows(tmp_path):
    folder = recorded(tmp_path)
    state = Reread(discover_folder(folder / "healthy", 10**10, 500).fabric)
    current = CurrentPaths(traffic_of(state.fabric, truth(folder, "healthy")), state)
    for name in ("flapped", "healthy"):
        for switch in ("leaf1", "spine2"):
            state.update(read_device(folder / name, switch), "now")
            before, moved = current.retrace([switch])
            every = trace_paths(current.traffic, state.fabric)
            links = current.paths.placement.links
            width = every.placement.links.shape[1]
            assert (links[:, :width] == every.placement.links).all()
            assert (links[:, width:] == -1).all()
            for column in ("reason", "switch", "contradicted"):
                assert (getattr(current.paths, column) == getattr(every, column)).all()
            assert (current.paths.placement.dropped == every.placement.dropped).all()
            old = before.placement.links[:, :width]
            assert moved.tolist() == np.flatnonzero((old != every.placement.links).any(1)).tolist()
            assert len(moved)
    assert current.complete.all()
    assert current.fim_percent() > 0


def test_a_switch_that_loses_its_hash_ends_its_paths(tmp_path):
    folder = recorded(tmp_path)
    state = Reread(discover_folder(folder / "healthy", 10**10, 500).fabric)
    current = CurrentPaths(traffic_of(state.fabric, truth(folder, "healthy")), state)
    for switch in ("leaf1", "leaf2"):
        (folder / "healthy" / f"{switch}.sysctl").unlink()
        state.update(read_device(folder / "healthy", switch), "now")
        current.retrace([switch])
    assert not current.complete.any()
    assert current.fim_percent() is None


# Paths that follow the changes of real routers, against fresh traces.

FLOWS = 256


@pytest.fixture(scope="module")
def routers(need_tool):
    need_tool("ip")
    with lab() as made:
        yield made


class Recorded(Namespaces):
    """What was asked of which router."""

    def __init__(self, prefix):
        super().__init__(prefix)
        self.asked = []
        self.silent = set()
        self.full = set()
        self.failing = {}
        """By device: a command, and the part of its output that still comes."""

    def __call__(self, requests):
        self.asked += [one.device for one in requests]
        if any(one.device in self.full for one in requests):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/rocescope-x")
        return [
            Said(b"", "no route to host") if one.device in self.silent else self._cut(one, said)
            for one, said in zip(requests, super().__call__(requests), strict=True)
        ]

    def _cut(self, request, said):
        command, most_bytes = self.failing.get(request.device, ("", 0))
        if command != request.command:
            return said
        return Said(said.output[:most_bytes], "not finished within 30 s")


def followed(routers, fabric, traffic, line=None):
    """A running Follow, and its events."""
    line = line or Recorded(routers.prefix)
    following = Follow(line, dict.fromkeys(routers.routers, LINUX), fabric, traffic)
    events = following.events(300)
    assert next(events).kind == "began"
    return following, events, line


def settle(following, events, seconds=3.0, reached=lambda: True):
    """The events until that is reached, and then until no router was read for some time."""

    def wait():
        with suppress(AssertionError):  # what the test asserts then says more
            until(reached)
        last = -1
        while last != following._readings:
            last = following._readings
            time.sleep(seconds)
        following.stop()

    waiting = threading.Thread(target=wait)
    waiting.start()
    found = list(events)
    waiting.join()
    return found


def skip_second_readings(following, routers):
    """Wait until every router is to be read a second time, and read none of them."""
    notes = Counter()

    def due():
        while not following._heard.empty():
            notes[following._heard.get().device] += 1
        waits = any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
        return not waits and all(notes[name] >= 2 for name in routers.routers)

    until(due)


def moved(following, to=None):
    """A condition: the paths are not those of this moment, but those that `to` returns."""
    before = now(following)
    return lambda: before != now(following) and (to is None or now(following) == to())


def fresh(routers, folder, traffic):
    """Routers and ports of all flows, from answers of now."""
    fabric = routers.fabric(folder)
    return ways_of(trace_paths(traffic, fabric).placement.links, fabric)


def now(following):
    paths = following._current.paths
    return ways_of(paths.placement.links, following._state.fabric)


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
@pytest.mark.parametrize("family", [4, pytest.param(6, marks=pytest.mark.thorough)])
def test_a_link_that_fails_and_comes_back(routers, tmp_path, family):
    """Every event leaves the paths of a fresh trace; only its two routers are read."""
    fabric = routers.fabric(tmp_path / "first")
    traffic = units_of(routers.flows(FLOWS, family), fabric)
    first = fresh(routers, tmp_path / "again", traffic)
    for change in ("down", "up"):
        following, events, line = followed(routers, fabric, traffic)
        before = now(following)
        skip_second_readings(following, routers)
        away = moved(following, lambda folder=tmp_path / change: fresh(routers, folder, traffic))
        line.asked.clear()
        ip([f"link set down1-1 {change}"], routers.name("spine2"))
        if change == "up":  # IPv6 has lost addresses and routes
            ip(routers._commands("spine2"), routers.name("spine2"))
            routers.set_routes()

        found = settle(following, events, reached=away)
        changes = [event for event in found if event.kind == "changed"]
        expected = fresh(routers, tmp_path / change, traffic)
        assert now(following) == expected
        others = sum(a != b for a, b in zip(before, expected, strict=True))
        assert others
        if len(changes) == 1:
            assert changes[0].moved_flows == others
        numbers = {move.flow for event in changes for move in event.moves}
        assert {i for i, (a, b) in enumerate(zip(before, expected, strict=True)) if a != b} <= (
            numbers
        )
        assert {name for event in changes for name in event.devices} <= set(routers.routers)
        if change == "down":
            assert set(line.asked) == {"leaf1", "spine2"}
            assert changes[-1].fim_percent is not None
        assert found[-1].kind == "ended"
        assert found[-1].lost_devices == []
    assert now(following) == first


@pytest.mark.usefixtures("root")
def test_a_route_that_is_lost_and_one_that_changes(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "first")
    traffic = units_of(routers.flows(FLOWS, 4), fabric)
    following, events, _ = followed(routers, fabric, traffic)
    away = moved(following)
    ip(["route del 10.2.1.0/24"], routers.name("spine1"))
    found = settle(following, events, reached=away)
    assert [e.devices for e in found if e.kind == "changed"] == [["spine1"]]
    (event,) = [e for e in found if e.kind == "changed"]
    assert {move.ends_because for move in event.moves} == {"no route"}
    assert event.complete_flows == FLOWS - event.moved_flows
    assert now(following) == fresh(routers, tmp_path / "lost", traffic)
    routers.set_routes()


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
def test_the_port_of_a_host(routers, tmp_path):
    """Its flows end at the leaf, or do not begin, and come back."""
    fabric = routers.fabric(tmp_path / "first")
    traffic = units_of(routers.flows(FLOWS, 4), fabric)
    following, events, _ = followed(routers, fabric, traffic)
    away = moved(following)
    ip(["link set leaf2-1 down"], routers.name("hosts"))
    found = settle(following, events, reached=away)
    to_it = {f"10.2.1.{i}" for i in range(2, 12)}
    moves = [move for event in found for move in event.moves]
    assert moves
    assert {move.dst for move in moves} <= to_it
    assert all(move.ends_because == "no route" for move in moves)
    following, events, _ = followed(routers, fabric, traffic)
    ip(["link set leaf2-1 up"], routers.name("hosts"))
    found = settle(following, events, reached=lambda: following._current.complete.all())
    assert found[-1].complete_flows == FLOWS


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
def test_a_router_that_is_not_heard_is_named_and_comes_back(routers, tmp_path, monkeypatch):
    monkeypatch.setattr("rocescope.discovery.follow._FIRST_PAUSE_SECONDS", 0.2)
    fabric = routers.fabric(tmp_path / "first")
    traffic = units_of(routers.flows(32, 4), fabric)
    following, events, line = followed(routers, fabric, traffic)
    line.silent.add("spine1")
    for process in list(line._listening):
        if line._prefix + "spine1" in process.args:
            process.kill()
    lost = next(events)
    assert (lost.kind, lost.devices, lost.lost_devices) == ("lost", ["spine1"], ["spine1"])
    assert lost.problem
    line.silent.clear()
    back = next(event for event in events if event.kind != "changed")
    assert (back.kind, back.devices, back.lost_devices) == ("back", ["spine1"], [])
    assert settle(following, events, 0.1)[-1].kind == "ended"
    assert list(following.summary().ever_lost) == ["spine1"]


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("question", "most_bytes"),
    first(2, [("/sbin/sysctl -a", 1000), ("ip -j addr", 0), ("/sbin/sysctl -a", 0)]),
)
def test_an_answer_that_fails_is_no_change(routers, tmp_path, monkeypatch, question, most_bytes):
    monkeypatch.setattr("rocescope.discovery.follow._RETRY_SECONDS", 0.1)
    command = next(q.command for q in LINUX.questions if q.command.replace(" -d", "") == question)
    fabric = routers.fabric(tmp_path / "first")
    traffic = units_of(routers.flows(FLOWS, 4), fabric)
    following, events, line = followed(routers, fabric, traffic)
    before = now(following)
    line.failing["leaf1"] = (command, most_bytes)
    lost = next(events)  # with the second reading of all
    assert (lost.kind, lost.devices, lost.lost_devices) == ("lost", ["leaf1"], ["leaf1"])
    assert lost.problem == f"{command}: not finished within 30 s"
    line.failing.clear()
    back = next(events)
    assert (back.kind, back.devices, back.lost_devices) == ("back", ["leaf1"], [])
    assert now(following) == before
    assert [event.kind for event in settle(following, events, 0.1)] == ["ended"]
    assert following.summary().changes == 0


class HalfLinks(Recorded):
    """leaf1 ends its list of ports in the middle, and calls that a success."""

    half = False

    def __call__(self, requests):
        return [
            Said(said.output[:50], "")
            if self.half and one.device == "leaf1" and one.command.endswith("addr")
            else said
            for one, said in zip(requests, super().__call__(requests), strict=True)
        ]


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
def test_half_an_answer_is_no_change(routers, tmp_path, monkeypatch):
    monkeypatch.setattr("rocescope.discovery.follow._RETRY_SECONDS", 0.1)
    fabric = routers.fabric(tmp_path / "first")
    traffic, line = units_of(routers.flows(FLOWS, 4), fabric), HalfLinks(routers.prefix)
    following, events, _ = followed(routers, fabric, traffic, line)
    before = now(following)
    line.half = True
    lost = next(events)  # with the second reading of all
    assert (lost.kind, lost.devices) == ("lost", ["leaf1"])
    assert lost.problem.startswith("leaf1.addr.json: not the output of `ip -j -d addr`")
    line.half = False
    assert next(events).kind == "back"
    assert now(following) == before
    assert [event.kind for event in settle(following, events, 0.1)] == ["ended"]


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
def test_a_reading_that_fails_is_said(routers, tmp_path, monkeypatch):
    """A full disk, for example."""
    monkeypatch.setattr("rocescope.discovery.follow._RETRY_SECONDS", 0.1)
    fabric = routers.fabric(tmp_path / "first")
    following, events, line = followed(routers, fabric, units_of(routers.flows(32, 4), fabric))
    line.full.add("leaf1")
    lost = next(events)  # with the second reading of all
    assert (lost.kind, lost.devices, lost.lost_devices) == ("lost", ["leaf1"], ["leaf1"])
    assert lost.problem == "its answers could not be read: No space left on device"
    line.full.clear()
    back = next(events)
    assert (back.kind, back.devices, back.lost_devices) == ("back", ["leaf1"], [])
    following.stop()
    assert [event.kind for event in events] == ["ended"]


class Hung(Recorded):
    """A router whose answers do not come until `go`."""

    def __init__(self, prefix, name):
        super().__init__(prefix)
        self.name = name
        self.go, self.waits = threading.Event(), threading.Event()
        self.hangs = False

    def __call__(self, requests):
        if self.hangs and any(one.device == self.name for one in requests):
            self.waits.set()
            self.go.wait(300)
        return super().__call__(requests)


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
def test_a_router_that_hangs_delays_no_other(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "first")
    traffic = units_of(routers.flows(FLOWS, 4), fabric)
    line = Hung(routers.prefix, "spine2")
    following, events, _ = followed(routers, fabric, traffic, line)
    line.hangs = True
    ip(["route del 10.2.1.0/24"], routers.name("spine2"))
    ip(["route del 10.2.1.0/24"], routers.name("spine1"))
    first = next(event for event in events if event.kind == "changed")
    assert first.devices == ["spine1"]
    assert line.waits.wait(300)
    line.go.set()
    second = next(event for event in events if event.kind == "changed")
    assert second.devices == ["spine2"]
    assert second.seconds >= first.seconds
    following.stop()
    routers.set_routes()


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
def test_a_router_that_hangs_does_not_delay_the_beginning(routers, tmp_path, monkeypatch):
    monkeypatch.setattr("rocescope.discovery.follow.FIRST_SECONDS", 1.0)
    fabric = routers.fabric(tmp_path / "first")
    traffic = units_of(routers.flows(32, 4), fabric)
    line = Hung(routers.prefix, "spine2")
    line.hangs = True
    following = Follow(line, dict.fromkeys(routers.routers, LINUX), fabric, traffic)
    events = following.events(300)
    began = next(events)
    assert began.kind == "began"
    assert "spine2" in began.lost_devices  # on a busy machine maybe others, too
    line.hangs = False
    line.go.set()
    back = next(event for event in events if event.devices == ["spine2"])
    assert back.kind == "back"
    assert "spine2" not in back.lost_devices
    following.stop()
    assert [event.kind for event in events][-1] == "ended"
    assert "spine2" in following.summary().ever_lost


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
def test_new_flows_have_the_paths_of_a_fresh_trace(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "first")
    keys = routers.flows(FLOWS, 4)
    traffic = units_of(keys, fabric)
    following, events, _ = followed(routers, fabric, traffic.take(slice(0, 100)))
    following.add(traffic)
    event = next(events)
    assert (event.kind, event.new_flows, event.flows) == ("flows", FLOWS - 100, FLOWS)
    assert event.moved_flows == 0
    assert [move.before for move in event.moves] == [[]] * (FLOWS - 100)
    assert all(move.after for move in event.moves)
    assert now(following) == fresh(routers, tmp_path / "again", traffic)
    following.add(traffic)  # nothing new: no event
    following.stop()
    assert [event.kind for event in events] == ["ended"]


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
def test_nothing_happens_without_a_change(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "first")
    traffic = units_of(routers.flows(32, 4), fabric)
    following, events, _ = followed(routers, fabric, traffic)
    assert [event.kind for event in settle(following, events)] == ["ended"]
    assert following.summary().changes == 0


@pytest.mark.usefixtures("root")
def test_a_fabric_without_ports(routers):
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,rate=10G")
    traffic = units_of(routers.flows(1, 4), fabric)
    with pytest.raises(UsageError, match="does not name the ports"):
        Follow(Namespaces(), {}, fabric, traffic)


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
def test_a_router_that_is_read_twice_for_one_event_is_named_once(routers, tmp_path):
    """The event has the time at which it was first heard."""
    fabric = routers.fabric(tmp_path / "first")
    traffic = units_of(routers.flows(FLOWS, 4), fabric)
    following, events, _ = followed(routers, fabric, traffic)
    heard = following._began
    try:
        routers.hash_by("spine1", 1, 4242)
        once = following._asked("spine1", heard)
        routers.hash_by("spine1", 1, 4243)
        again = following._asked("spine1", heard + 1)
        (event,) = following._changed([once, again])
    finally:
        following.stop()
        list(events)
        routers.hash_by("spine1", 1, 1000 + routers.routers.index("spine1"))
    assert event.devices == ["spine1"]
    began = datetime.fromtimestamp(following._began_unix, UTC)
    assert event.time == began.isoformat(timespec="milliseconds")
