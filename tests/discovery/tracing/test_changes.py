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


@pytest.mark.parametrize("output", [b"{", b"[1]", b"[" * 100_000, b"\xff"])
def test_a_device_without_a_readable_answer_is_not_watched(output):
    before = read_tables(lambda asked: [Said(output, "")] * len(asked), ["leaf1"])
    assert changed(before, before) == ([], ["leaf1"])
    gone = read_tables(lambda asked: [Said(b"[]", "no route to host")] * len(asked), ["leaf1"])
    assert changed(gone, gone) == ([], ["leaf1"])


def test_counters_of_routes_are_no_change():
    first, second = (
        read_tables(lambda asked, s=s: [Said(b'[{"dst":"::/0","expires":%d}]' % s, "")] * 3, ["r"])
        for s in (9, 8)
    )
    assert changed(first, second) == ([], [])
