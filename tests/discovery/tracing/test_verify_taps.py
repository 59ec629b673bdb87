"""Predictions against captures of real routers: agreement, and hops that disagree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from replay_traffic import random_traffic, traffic

from rocescope.discovery.tracing.paths import trace_paths
from rocescope.discovery.tracing.verify_taps import verify_taps
from rocescope.replay.compare.summaries import mapped
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.replay.traffic.traffic import Seen

SEED = 305_419_896


def fabric_of(spec, seed=7):
    fabric = parse_fabric(spec)
    own = tuple(HashSettings("linux", seed=seed) for _ in range(fabric.switches))
    return replace(fabric, hash_settings=own)


@pytest.fixture
def fabric():
    return fabric_of("leaf-spine:leaves=2,spines=4,hosts=2")


def with_seen(units, rows):
    taps = tuple(dict.fromkeys(tap for tap, _ in rows))
    unit = np.array([unit for _, unit in rows], np.int32)
    tap = np.array([taps.index(name) for name, _ in rows], np.int32)
    ones = np.ones(len(rows), np.int64)
    return replace(units, seen=Seen(taps, unit, tap, ones, ones))


def captured(units, fabric, keep=lambda name: True):
    """The units on all links between switches, as taps on the links see them."""
    links = trace_paths(units, fabric).placement.links
    rows = [
        (_tap(fabric, link & ~1), unit)
        for unit, row in enumerate(links.tolist())
        for link in row
        if link >= 0 and max(fabric.links.source[link], fabric.links.target[link]) < fabric.switches
    ]
    return with_seen(units, [row for row in rows if keep(row[0])])


def _tap(fabric, link):
    name = fabric.link_name(link).replace(">", "-")
    return name if "#" in name else f"{name}#1"


@pytest.mark.parametrize("seed", [SEED, 1])
def test_captures_of_real_routers(data, seed):
    files = sorted(map(str, (data / "leafspine" / "r01_clean_write").glob("*.pcap.*z")))
    fabric = fabric_of("leaf-spine:leaves=2,spines=4,hosts=2,rate=10G", seed)
    units, _ = mapped(traffic_from_capture(files, fabric, "order"), fabric)
    check = verify_taps(units, fabric)
    assert check.hops_checked == 96  # the four uplinks of leaf1
    if seed == SEED:
        assert (check.hops_agreeing, check.disagreeing_flows) == (96, 0)
    else:  # by chance one of four links is the right one
        assert 10 < check.hops_agreeing < 40
        assert check.disagreeing_flows == 96 - check.hops_agreeing
    assert "leaf2>spine1" in check.links_not_checked
    assert [tap.split("-")[0].rpartition("/")[2] for tap in check.taps_not_used] == [
        "H1", "H2", "H3", "H4"
    ]  # fmt: skip


def test_every_hop_agrees_on_parallel_links():
    fabric = fabric_of("leaf-spine:leaves=3,spines=2,hosts=2,uplinks=2")
    units = captured(random_traffic(fabric, 60), fabric)
    check = verify_taps(units, fabric)
    assert check.hops_agreeing == check.hops_checked > 60
    assert not check.disagreements
    assert not check.taps_not_used
    access = [name for name in check.links_not_checked if "host" not in name]
    assert not access


def test_a_flow_on_another_link_is_one_disagreement(fabric):
    units = traffic(fabric, [0, 0], [2, 3])
    own = [fabric.link_name(link) for link in trace_paths(units, fabric).placement.links[0]]
    other = next(f"leaf1-spine{i}" for i in range(1, 5) if f"leaf1>spine{i}" != own[1])
    rows = [(other, 0), (other.replace("leaf1", "leaf2"), 0)]
    everywhere = [(f"leaf{i}-spine{s}", 1) for i in (1, 2) for s in range(1, 5)]
    check = verify_taps(with_seen(units, rows + everywhere), fabric)
    first, second = check.disagreements
    assert (first.predicted, first.captured) == (own[1], [other.replace("-", ">")])
    # The other flow was on its predicted links and on all others: sprayed.
    assert len(second.captured) == 3
    assert check.disagreeing_flows == 2


def test_a_tap_that_saw_nothing(fabric):
    units = traffic(fabric, [0, 1], [2, 3])
    own = fabric.link_name(int(trace_paths(units, fabric).placement.links[0, 1]))
    check = verify_taps(with_seen(units, [(own.replace(">", "-"), 1)]), fabric)
    assert ("", own) in [("".join(one.captured), one.predicted) for one in check.disagreements]


def test_only_taps_further_on_show_the_other_way(fabric):
    units = traffic(fabric, [0], [2])
    path = [fabric.link_name(link) for link in trace_paths(units, fabric).placement.links[0]]
    other = next(f"spine{i}" for i in range(1, 5) if f"leaf1>spine{i}" != path[1])
    check = verify_taps(with_seen(units, [(f"leaf2-{other}", 0)]), fabric)
    assert check.hops_checked == 0
    (one,) = check.disagreements
    assert (one.predicted, one.captured) == (path[2], [f"{other}>leaf2"])


def test_a_path_that_is_not_known_predicts_nothing(fabric):
    blind = replace(fabric, hash_settings=(None,) * fabric.switches)
    units = traffic(fabric, [0], [2])
    check = verify_taps(with_seen(units, [("leaf1-spine1", 0), ("leaf1-spine2", 0)]), blind)
    assert (check.hops_checked, check.disagreeing_flows) == (0, 0)
    assert check.links_not_checked == ["host1>leaf1"]


def test_without_taps_nothing_is_checked(fabric):
    check = verify_taps(traffic(fabric, [0], [2]), fabric)
    assert (check.hops_checked, check.hops_not_checked) == (0, 4)
