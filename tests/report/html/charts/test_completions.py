"""Completion times of flows."""

from __future__ import annotations

from msgspec.structs import replace

from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.report.html.charts.completions import completions
from rocescope.report.words import human

REQUEST = ReplayRequest(
    "leaf-spine:leaves=2,spines=2,hosts=4,rate=100G",
    ("jsq", "ecmp"),
    pattern="permutation:message-size=100kB",
)


def test_the_share_of_flows_that_are_complete() -> None:
    prepared = PreparedReplay(REQUEST)
    prepared.read(messages=True)
    result = prepared.by_packets(REQUEST.strategies)[0]
    chart = completions(result)
    assert chart is not None and chart.left_out == ""
    for one in result.strategies:
        assert one.packets is not None
        times = sorted(flow.completed_ns or 0 for flow in one.packets.flows)
        rows = [row[1:] for row in chart.rows if str(row[0]).startswith(one.name)]
        assert rows == [(100 * (i + 1) / len(times), time) for i, time in enumerate(times)]
    first = result.strategies[0]
    assert first.packets is not None
    flows = [replace(first.packets.flows[0], completed_ns=None), *first.packets.flows[1:]]
    stuck = replace(first, packets=replace(first.packets, flows=flows, flows_omitted=2))
    some = completions(replace(result, strategies=[stuck]))
    assert some is not None and "1 flow never" in some.svg()
    assert some.rows[0][1] == 30.0 and some.rows[-1][1] == 90.0  # of ten flows
    assert some.left_out == "Of the earliest 2 flows no times are kept."
    times = sorted(flow.completed_ns or 0 for flow in flows[1:])
    assert f"half by {human.duration(times[3])}, " in some.svg()  # the sixth of ten
    known = replace(first.packets, flows_omitted=20)
    late = completions(replace(result, strategies=[replace(first, packets=known)]))
    earliest = human.duration(min(flow.completed_ns or 0 for flow in known.flows))
    assert late is not None and f"more than half by {earliest}, the last" in late.svg()
    never = [replace(flow, completed_ns=None) for flow in known.flows[:5]] + known.flows[5:]
    dead = replace(first.packets, flows=never)
    most = completions(replace(result, strategies=[replace(first, packets=dead)]))
    assert most is not None and "5 flows never" in most.svg() and "half" not in most.svg()
    many = completions(replace(result, strategies=[first] * 6))
    assert many is not None and many.left_out == "2 strategies not shown."
    assert completions(replace(result, strategies=[replace(first, packets=None)])) is None
