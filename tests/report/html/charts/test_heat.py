"""Heat maps."""

from __future__ import annotations

import re

import factories_results as factories
import msgspec
import replay_traffic

from rocescope.analyzer.results.flow import Flow, Owner
from rocescope.analyzer.summary.ranks import ranks_of
from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.html.charts.heat import (
    fabric,
    heat_map,
    hops,
    rank_completions,
    rank_losses,
    ranks,
)

FABRIC = parse_fabric("leaf-spine:leaves=3,spines=4,hosts=4")


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
    traffic = replay_traffic.traffic(FABRIC, [0, 1, 4, 5] * 4, [4, 5, 8, 9] * 4)
    (one,) = replay(traffic, FABRIC, [parse_strategy("ecmp:seed=1")], ["x"]).strategies
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
