"""Options of strategies."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import collective
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies.base import Configured
from rocescope.replay.strategies.registry import parse_packet_strategy

# Options of strategies.


class Some(Configured):
    name = "some"


def test_values_and_defaults():
    given = Some({"k": "7", "mode": "b", "gap": "5us"})
    assert (given.whole("k", 1, 1, 9), Some({}).whole("k", 1, 1, 9)) == (7, 1)
    assert (given.word("mode", "a", "b"), Some({}).word("mode", "a", "b")) == ("b", "a")
    assert given.duration_ps("gap", "1ms") == (5 * 10**6, "5us")
    assert Some({}).duration_ps("gap", "1ms") == (10**9, "1ms")
    given.known("k", "mode", "gap")


def test_a_default_that_another_strategy_sets():
    assert Some({"k": "7"}).with_default("k", "3").options == {"k": "7"}
    assert Some({}).with_default("k", "3").options == {"k": "3"}
    assert Some({}, "other").name == "other" and Some({}).name == "some"


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda s: s.whole("k", 1, 1, 9), "some: k '10' is not a whole number from 1 to 9"),
        (lambda s: s.word("k", "a", "b"), "some: k=10: use a or b"),
        (lambda s: s.known("x"), "some has no option 'k'; it has x"),
        (lambda s: s.known(), "some has no option 'k'; it has no options"),
        (lambda s: s.duration_ps("k", "1s"), "some: k"),
    ],
)
def test_mistakes(read, message):
    with pytest.raises(UsageError, match=message):
        read(Some({"k": "10"}))


# Whole-flow strategies on the packet engine where hosts have several ports.


def test_subflows_spread_in_the_plane_of_their_flow() -> None:
    """Each of 64 parts was placed in one of two planes, but all of a flow leave by one port."""
    fabric = parse_fabric("multi-plane:planes=2,leaves=2,spines=4,hosts=1,rate=100G")
    model = Model(ack_every=1 << 14, pfc=None)  # the last packet alone is acknowledged
    load = collective("permutation", fabric, model, 1 << 20, 1)  # 256 packets each way
    result = run_open_loop(load, fabric, parse_packet_strategy("subflow:k=64"), model)
    up = [
        result.link_packets[fabric.find_links(f"plane1.leaf1>plane1.spine{i}")[0]]
        for i in range(1, 5)
    ]
    assert sum(up) == 257 and max(up) < 128
    assert result.link_packets[fabric.find_links("plane2.leaf1>plane2.spine1")[0]] == 0
