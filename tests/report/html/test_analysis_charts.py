"""Lines over time."""

from __future__ import annotations

import re

import factories_results as factories
import msgspec
import replay_traffic

from rocescope.analyzer.results.base import HistogramBin, Imbalance, Series
from rocescope.analyzer.results.flow import Flow, Owner
from rocescope.analyzer.summary.ranks import ranks_of
from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.compare import compare
from rocescope.report.html.analysis_charts import (
    MOST,
    POINTS,
    SHARES_MOST,
    changes,
    extents,
    fabric,
    heat_map,
    hops,
    lines,
    links,
    over_time,
    paths,
    rank_completions,
    rank_losses,
    ranks,
    summed,
    taps_over_time,
)

# Lines over time.


def test_every_line_has_a_colour_and_a_name() -> None:
    named = [(f"<{number}>", [(0.0, 0.0), (1000.0, number)]) for number in range(MOST)]
    svg = lines(named, 3, lambda value: f"{value:g} B", "time").svg("t", "d", "x")
    for kind in ("wire", "wire two", "wire three", "wire four"):
        assert svg.count(f'<polyline class="{kind}"') == 2  # the line, and its place in the legend
    assert "&lt;3&gt;" in svg and "<3>" not in svg
    assert '<polyline class="wire four" points="92,202 710,12"/>' in svg  # from 0 to the most
    assert ">3 B<" in svg and ">1.00 us<" in svg


def test_nothing_took_any_time() -> None:
    assert "polyline" in lines([("x", [(0.0, 0.0)])], 0, str, "time").svg("t", "d", "x")


# Traffic over time.


def series(windows: int, **changes: list[int]) -> Series:
    names = [n for n in Series.__struct_fields__ if n not in ("window_ns", "start_ns")]
    empty = {name: [0] * windows for name in names} | {"tap_wire_bytes": {}}
    given = {"packets": [1] * windows, "wire_bytes": [125] * windows}
    return Series(window_ns=1_000_000, start_ns=factories.START_NS, **(empty | given | changes))  # type: ignore[arg-type]


def test_rates_and_only_the_troubles_that_there_are() -> None:
    made = factories.analysis(series=series(4, naks=[0, 2, 0, 1]))
    chart = over_time(made)
    assert chart is not None
    assert chart.columns == ("from, s", "wire rate, b/s", "NAKs")
    assert chart.rows == [(0, 1e6, 0), (0.001, 1e6, 2), (0.002, 1e6, 0), (0.003, 1e6, 1)]
    assert chart.svg().count('class="two"') == 2


def test_times_count_from_the_first_packet() -> None:
    """As in the sentences of findings: the first window may begin before it."""
    early = msgspec.structs.replace(series(4), start_ns=factories.START_NS - 400_000)
    chart = over_time(factories.analysis(series=early))
    assert chart is not None
    assert [row[0] for row in chart.rows] == [0, 0.0006, 0.0016, 0.0026]


def test_findings_are_marked_and_counted() -> None:
    found = factories.diagnosis().findings[0]
    many = msgspec.structs.replace(factories.diagnosis(), findings=[found] * 23)
    chart = over_time(factories.analysis(diagnosis=many))
    assert chart is not None
    assert chart.svg().count('class="mark ') == 20 and ">finding 20<" in chart.svg()
    assert chart.left_out == "3 further findings not marked."


def test_long_series_are_summed_without_a_loss() -> None:
    values = list(range(1_000))
    chart = over_time(factories.analysis(series=series(1_000, cnps=values)))
    assert chart is not None and len(chart.rows) <= POINTS
    assert sum(row[2] for row in chart.rows) == sum(values)
    assert summed([1, 2, 3], 2) == [3, 3]


def test_no_packet_is_no_chart() -> None:
    assert over_time(factories.analysis(series=series(3, packets=[0] * 3))) is None


def test_taps_over_time() -> None:
    loads = {f"tap{i}": [i, 0, i] for i in range(40)}
    chart = taps_over_time(
        factories.analysis(series=msgspec.structs.replace(series(3), tap_wire_bytes=loads))
    )
    assert chart is not None
    assert [row[0] for row in chart.rows] == [f"tap{i}" for i in range(8, 40)]
    assert chart.rows[-1][1:] == (39 * 8e3, 0, 39 * 8e3)
    assert chart.left_out == "8 taps with less traffic not shown."
    assert taps_over_time(factories.analysis(series=series(3))) is None


def test_taps_that_saw_no_packet_are_no_chart() -> None:
    quiet = msgspec.structs.replace(series(0), tap_wire_bytes={"lo": [], "eth0": []})
    assert taps_over_time(factories.analysis(series=quiet)) is None


# Bytes per path.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4")


def imbalance(sizes: list[int]) -> Imbalance:
    shares = [
        msgspec.structs.replace(factories.path(str(i), 1, size / sum(sizes)), wire_bytes=size)
        for i, size in enumerate(sizes)
    ]
    return msgspec.structs.replace(
        factories.imbalance(), paths=len(sizes), shares=shares, wire_bytes=sum(sizes)
    )


def test_columns_and_the_fair_line() -> None:
    chart = paths(imbalance([400, 100, 100, 0]))
    assert [row[:4] for row in chart.rows] == [
        ("0", 400, 150, 400 / 150), ("1", 100, 150, 100 / 150),
        ("2", 100, 150, 100 / 150), ("3", 0, 150, 0),
    ]  # fmt: skip
    svg = chart.svg()
    heights = [float(part.split('"')[0]) for part in svg.split('height="')[1:]]
    assert heights[0] == 4 * heights[1] and heights[3] == 0
    assert svg.count('class="fair"') == 1 and "dashed: fair share 150 B" in svg
    assert svg.count(">++<") == 1 and svg.count(">--<") == 3
    assert "The busiest is 0 with 400 B, 2.67 times its fair share" in chart.description


def test_of_many_paths_the_busiest_are_shown() -> None:
    chart = paths(imbalance(list(range(1, 101))))
    assert [row[1] for row in chart.rows] == list(range(100, 100 - SHARES_MOST, -1))
    assert chart.left_out == "The 64 busiest of 100 paths are shown."


def test_links_of_a_layer_with_a_strategy() -> None:
    traffic = replay_traffic.traffic(FABRIC, [0, 1, 2] * 4, [4, 5, 6] * 4)
    (one,) = replay(traffic, FABRIC, [parse_strategy("ecmp:seed=1")], ["x"]).strategies
    chart = links(one, "leaf-spine")
    assert chart is not None
    loads = {link.name: link.wire_bytes for link in one.links if link.layer == "leaf-spine"}
    assert {row[0]: row[1] for row in chart.rows} == loads
    assert links(one, "no such layer") is None
    assert ", placed by ecmp" in chart.description
    measured = links(
        msgspec.structs.replace(one, name="as captured", title="as captured"), "leaf-spine"
    )
    assert measured is not None and "of layer leaf-spine, as captured." in measured.description


# The distribution of the reordering extent.


def test_octaves_sum_over_flows() -> None:
    bins = [HistogramBin(1, 2, 5), HistogramBin(2, 3, 4), HistogramBin(3, 4, 3)]
    bins += [HistogramBin(8, 16, 8)]
    sprayed = factories.sprayed_flow(0)
    assert sprayed.reordering is not None
    record = msgspec.structs.replace(sprayed.reordering, extent_histogram=bins, max_extent=14)
    flow = msgspec.structs.replace(sprayed, reordering=record)
    chart = extents([flow, flow, factories.flow(1, 100)])
    assert chart is not None
    assert [(label, count) for label, count, *_ in chart.rows] == [
        ("1", 10), ("2 to 3", 14), ("4 to 7", 0), ("8 to 15", 16)
    ]  # fmt: skip
    assert [row[3] for row in chart.rows] == [25, 60, 60, 100]
    assert "40 late packets of 2 flows; half have an extent of at most 3 packets" in (
        chart.description
    )


def test_nothing_late_is_no_chart() -> None:
    assert extents([factories.flow(0, 100)]) is None
    assert extents([]) is None


# Heat maps.

HEAT_FABRIC = parse_fabric("leaf-spine:leaves=3,spines=4,hosts=4")


def shades(svg: str) -> list[float]:
    return [float(shade) for shade in re.findall(r'fill-opacity="([\d.]+)"', svg)]


def test_the_largest_value_is_the_darkest() -> None:
    values = [[0.0, 4.0], [None, 2.0]]
    chart = heat_map("T", "W", ["r1", "r2"], ["c1", "c2"], values, "row")
    assert shades(chart.svg()) == [0.03, 0.55, 0.03, 0.29]
    assert ">?<" in chart.svg()
    assert chart.rows == [("r1", 0.0, 4.0), ("r2", None, 2.0)]
    by_column = heat_map("T", "W", ["r"], ["a", "b"], [[1.0, 9.0]], "row", per_column=True)
    assert shades(by_column.svg()) == [0.55, 0.55]


def test_hops_with_losses_come_first() -> None:
    quiet = factories.hop(from_tap="leaf3-spine1", lost_packets=0, lost_percent=0, packets=9_000,
                          ce_marked_packets=90, queueing_ns=None)  # fmt: skip
    chart = hops([quiet, factories.hop()])
    assert chart is not None
    assert chart.rows == [
        ("leaf1-spine2 > leaf2-spine2", 0.898, 0, 0, 0, 7.6),
        ("leaf3-spine1 > leaf2-spine2", 0, 1, 0, 0, None),
    ]
    assert "2 hops, 1 with losses" in chart.description
    assert hops([]) is None


def test_long_queues_are_plain_numbers() -> None:
    some = factories.hop().queueing_ns
    assert some is not None
    slow = factories.hop(queueing_ns=msgspec.structs.replace(some, p99=128_345_678))
    chart = hops([slow])
    assert chart is not None and ">128,346<" in chart.svg()


def owned(id: int, sender: int, receiver: int, comm: str) -> Flow:
    owner = Owner(1, None, sender, "source", "n", None, comm, receiver)
    return factories.flow(id, 100 + id, owner=owner)


def test_ranks_of_the_largest_communicator() -> None:
    pairs = [(3, 11, "0xa"), (11, 3, "0xa"), (3, 40, "0xa"), (0, 1, "0xb")]
    found = ranks_of([owned(i, *pair) for i, pair in enumerate(pairs)], None)
    assert found is not None
    chart = ranks(found)
    assert chart is not None
    assert chart.columns == ("from", "rank 3", "rank 11", "rank 40")
    sizes = [(100 + i) * 1_082 for i in range(3)]
    assert chart.rows == [
        ("rank 3", 0, sizes[0], sizes[2]), ("rank 11", sizes[1], 0, 0), ("rank 40", 0, 0, 0)
    ]  # fmt: skip
    assert chart.left_out == "Left out: 1 other communicator."
    many = ranks_of([owned(i, i, i + 1, "0xa") for i in range(60)], None)
    assert many is not None
    big = ranks(many)
    assert big is not None and len(big.rows) == 32 and "29 ranks with fewer bytes" in big.left_out
    assert ranks(msgspec.structs.replace(found, pairs=[])) is None


def test_the_links_of_a_fabric_are_a_matrix() -> None:
    traffic = replay_traffic.traffic(HEAT_FABRIC, [0, 1, 4, 5] * 4, [4, 5, 8, 9] * 4)
    (one,) = replay(traffic, HEAT_FABRIC, [parse_strategy("ecmp:seed=1")], ["x"]).strategies
    chart = fabric(one, "leaf-spine")
    assert chart is not None
    assert chart.columns == ("from", "spine1", "spine2", "spine3", "spine4")
    loads = {link.name: link.over_mean for link in one.links}
    assert {
        f"{row[0]}>{column}": value
        for row in chart.rows
        for column, value in zip(chart.columns[1:], row[1:], strict=True)
        if value
    } == {name: load for name, load in loads.items() if load and name.startswith("leaf") and
          ">spine" in name}  # fmt: skip
    assert fabric(one, "no such layer") is None


def test_losses_and_completions_from_rank_to_rank() -> None:
    found = ranks_of(
        [owned(i, *pair) for i, pair in enumerate([(0, 1, "0xa"), (1, 0, "0xa")])], None
    )
    assert found is not None
    clean, lossy = found.pairs
    none = msgspec.structs.replace(
        clean, recovered_packets=0, missing_packets=0, completion_max_ns=None
    )
    bad = msgspec.structs.replace(
        lossy, recovered_packets=3, missing_packets=4, completion_max_ns=2_500_000.0
    )
    both = msgspec.structs.replace(found, pairs=[none, bad])
    losses, times = rank_losses(both), rank_completions(both)
    assert losses is not None and times is not None
    at = bad.sender, 1 + bad.receiver
    assert losses.rows[at[0]][at[1]] == 7 and "strongest is 7" in losses.description
    assert times.rows[at[0]][at[1]] == 2_500_000.0 and "? is not known" in times.description
    assert rank_losses(msgspec.structs.replace(found, pairs=[none])) is None
    assert rank_completions(msgspec.structs.replace(found, pairs=[none])) is None


# Figures before and after.


def test_shares_of_both_sides() -> None:
    before = factories.clean_analysis()
    result = compare(before, factories.analysis(), ("a", "b"))
    chart = changes(result)
    assert chart is not None
    shares = {row[0]: row[1:] for row in chart.rows}
    after = result.figures_after
    assert after.reordered_packets
    assert shares["reordered"] == (0, 100 * after.reordered_packets / after.packets)
    assert chart.svg().count('class="two"') == 1 + sum(
        bool(before or after) for before, after in shares.values()
    )


def test_nothing_wrong_is_no_chart() -> None:
    clean = factories.clean_analysis()
    assert changes(compare(clean, clean, ("a", "b"))) is None
