"""Queues over time."""

from __future__ import annotations

from msgspec.structs import replace

from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.report.html.charts.queues import queues

REQUEST = ReplayRequest(
    "leaf-spine:leaves=2,spines=1,hosts=4,rate=100G",
    ("jsq",),
    pattern="incast:fan-in=7,message-size=100kB",
)


def test_the_longest_queue_of_each_layer() -> None:
    prepared = PreparedReplay(REQUEST)
    prepared.read(messages=True)
    (one,) = prepared.by_packets(REQUEST.strategies)[0].strategies
    chart = queues(one)
    assert chart is not None and one.packets is not None
    assert chart.title.startswith("Queues over time, jsq") and chart.left_out == ""
    longest: dict[str, int] = {}
    for link in one.links:
        most = max(link.queue_bytes_over_time or [0])
        longest[link.layer] = max(longest.get(link.layer, 0), most)
    drawn = [max(column) for column in zip(*chart.rows, strict=True)][1:]
    assert drawn == sorted((most for most in longest.values() if most), reverse=True)
    series = {link.name: link.queue_bytes_over_time for link in one.links}
    for column, name in enumerate(chart.columns[1:], 1):
        assert [row[column] for row in chart.rows] == series[name.removesuffix(", B")]
    starts = [row[0] for row in chart.rows]
    assert starts == [one.packets.load_stretch_ns * i for i in range(len(starts))]
    empty = [replace(link, queue_bytes_over_time=[0] * len(starts)) for link in one.links]
    assert queues(replace(one, links=empty)) is None
    assert queues(replace(one, packets=None)) is None
