"""Tables of real routers that change while their flows are traced."""

from __future__ import annotations

import numpy as np
import pytest
from router_namespaces import ip
from traced_lab import lab, units_of

from rocescope.discovery.asking.commands import Said
from rocescope.discovery.asking.namespaces import Namespaces
from rocescope.discovery.tracing.asking import Asking
from rocescope.discovery.tracing.changes import changed, read_tables
from rocescope.discovery.tracing.trace import trace

pytestmark = pytest.mark.usefixtures("root")


@pytest.fixture(scope="module")
def routers(need_tool):
    need_tool("ip")
    with lab() as made:
        yield made


def test_flows_through_a_switch_that_changed_are_marked(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    real, changes = Namespaces(routers.prefix), []

    def run(requests):
        """The link between leaf1 and spine2 fails when spines are asked."""
        if not changes and requests[0].device == "spine1" and requests[0].stdin:
            ip(["link set down1-1 down"], routers.name("spine2"))
            changes.append(1)
        return real(requests)

    units = units_of(routers.flows(200, 4), fabric)
    result = trace(units, fabric, [], ["x"], asking=Asking(run, "all"), watch=run)
    assert changes
    assert set(result.changed_switches) == {"leaf1", "spine2"}  # both ends lost the link
    assert result.changed_flows == 200  # all begin at leaf1
    assert all(flow.switch_changed for flow in result.flows)
    assert result.unwatched_switches == []
    ip(["link set down1-1 up"], routers.name("spine2"))


def test_a_quiet_trace_marks_nothing(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    units = units_of(routers.flows(100, 6), fabric)
    result = trace(units, fabric, [], ["x"], watch=Namespaces(routers.prefix))
    assert result.changed_switches == []
    assert result.changed_flows == 0
    assert not any(flow.switch_changed for flow in result.flows)


def test_only_flows_through_the_changed_spine_are_marked(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    real, calls = Namespaces(routers.prefix), []

    def run(requests):
        calls.append(requests)
        if len(calls) == 2:
            ip(["route add 10.99.0.0/24 dev down1-2"], routers.name("spine1"))
        return real(requests)

    units = units_of(routers.flows(200, 4), fabric)
    result = trace(units, fabric, [], ["x"], watch=run)
    assert result.changed_switches == ["spine1"]
    over = np.array([any(">spine1" in link for link in flow.links) for flow in result.flows])
    marked = np.array([flow.switch_changed for flow in result.flows])
    assert 0 < over.sum() < 200
    assert (over == marked).all()


def test_flows_of_which_nothing_was_compared_are_not_called_unchanged(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    units = units_of(routers.flows(200, 4), fabric)
    blind = trace(units, fabric, [], ["x"])
    assert {flow.switch_changed for flow in blind.flows} == {None}
    assert (blind.changed_flows, blind.changed_switches) == (None, None)
    real = Namespaces(routers.prefix)

    def run(requests):
        return [
            Said(b"", "no route to host") if one.device == "spine1" else real([one])[0]
            for one in requests
        ]

    result = trace(units, fabric, [], ["x"], watch=run)
    assert result.unwatched_switches == ["spine1"]
    for flow in result.flows:
        over = any(">spine1" in link for link in flow.links)
        assert flow.switch_changed is (None if over else False)


def test_idle_times_of_real_buckets_are_no_change(routers):
    leaf1 = routers.name("leaf1")
    cables = [cable for cable in routers.cables if cable.leaf == 1][:2]
    hops = [
        f"nexthop add id {10 + i} via {routers.address(cable, 1, 4)} dev {routers.up(cable)}"
        for i, cable in enumerate(cables)
    ]
    group = "nexthop add id 20 group 10/11 type resilient buckets 8 idle_timer 1000"
    ip([*hops, group], leaf1)
    run = Namespaces(routers.prefix)
    before = read_tables(run, ["leaf1"])
    assert len(before["leaf1"][-1]) == 8
    idle = routers.command("leaf1", "ip", "-j", "nexthop", "bucket")
    now = (routers.command("leaf1", "ip", "-j", "nexthop", "bucket") for _ in range(1000))
    assert any(one != idle for one in now)
    assert changed(before, read_tables(run, ["leaf1"])) == ([], [])
    ip(["nexthop replace id 20 group 10 type resilient idle_timer 1000"], leaf1)
    assert changed(before, read_tables(run, ["leaf1"])) == (["leaf1"], [])
    ip(["nexthop del id 20", "nexthop del id 10", "nexthop del id 11"], leaf1)


RESILIENT = b"""[{"id":10,"group":[{"id":1},{"id":2}],"type":"resilient",
    "resilient_args":{"buckets":2,"unbalanced_time":%d},"flags":[]}]"""
BUCKETS = b"""[{"id":10,"bucket":{"index":0,"idle_time":%d,"nhid":1},"flags":[]},
    {"id":10,"bucket":{"index":1,"idle_time":%d,"nhid":%d},"flags":[]}]"""


def told(groups, buckets):
    """The tables of a device that prints these groups and buckets (iproute2 6.1)."""
    answers = {"ip -j nexthop": groups, "ip -j nexthop bucket": buckets}

    def run(asked):
        return [answers.get(one.command, Said(b"[]", "")) for one in asked]

    return read_tables(run, ["r"])


def test_a_bucket_that_moves_is_a_change():
    first = told(Said(RESILIENT % 0, ""), Said(BUCKETS % (1, 1, 1), ""))
    later = told(Said(RESILIENT % 3, ""), Said(BUCKETS % (4, 4, 1), ""))
    moved = told(Said(RESILIENT % 0, ""), Said(BUCKETS % (2, 0, 2), ""))
    assert changed(first, later) == ([], [])
    assert changed(first, moved) == (["r"], [])


def test_a_device_without_the_command_for_buckets():
    """It is watched unless a group has buckets."""
    failed = Said(b"", 'exit status 255: Command "bucket" is unknown')
    plain = told(Said(b'[{"id":10,"group":[{"id":1},{"id":2}]}]', ""), failed)
    assert changed(plain, plain) == ([], [])
    blind = told(Said(RESILIENT % 0, ""), failed)
    assert changed(blind, blind) == ([], ["r"])


@pytest.mark.parametrize("output", [b"{", b"[1]", b"[" * 100_000, b"\xff"])
def test_a_device_without_a_readable_answer_is_not_watched(output):
    before = read_tables(lambda asked: [Said(output, "")] * len(asked), ["leaf1"])
    assert changed(before, before) == ([], ["leaf1"])
    gone = read_tables(lambda asked: [Said(b"[]", "no route to host")] * len(asked), ["leaf1"])
    assert changed(gone, gone) == ([], ["leaf1"])


def test_counters_of_routes_are_no_change():
    first, second = (
        read_tables(lambda asked, s=s: [Said(b'[{"dst":"::/0","expires":%d}]' % s, "")] * 4, ["r"])
        for s in (9, 8)
    )
    assert changed(first, second) == ([], [])
