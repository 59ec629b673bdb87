"""The rule that defines each strategy, on cases small enough to be worked out by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from rocescope.kernels.kernel import Int, Ints, kernel
from rocescope.replay.compare.specs import generated
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.model import LINK, EngineResult, Model, Workload
from rocescope.replay.packets.model.records import table
from rocescope.replay.packets.model.rules import Choice, Rules, choose_at
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies import adaptive, ofan
from rocescope.replay.strategies.registry import parse_packet_strategy, parse_strategy
from rocescope.replay.strategies.shortest_queue import NONE, random_least

THREE = parse_fabric("leaf-spine:leaves=3,spines=4,hosts=4,rate=100G,delay=500ns")
MODEL = Model(pfc=None)


def messages(pairs: list[tuple[int, int]], packets: int) -> Workload:
    src, dst = np.array(pairs).T
    return workload_of(src, dst, np.full(len(pairs), packets * 4096), None, MODEL)  # type: ignore[arg-type]


def run(spec: str, load: Workload, fabric: Fabric = THREE, seed: int = 7) -> EngineResult:
    return run_open_loop(load, fabric, parse_packet_strategy(spec), MODEL, seed)


def links(names: str) -> list[int]:
    return [int(THREE.find_links(names.format(i))[0]) for i in range(1, 5)]


@kernel
def _chosen(address: Int, state: Ints, queues: Ints, at: Choice) -> Int:
    choose = choose_at(address)
    return choose(state, queues, at)


def choose_of(rules: Rules) -> Callable[[Ints, Choice], int]:
    """The compiled choice of a strategy."""
    return lambda queues, at: int(_chosen(rules.choose, rules.state, queues, at))


UP, DOWN_2, DOWN_3 = links("leaf1>spine{}"), links("spine{}>leaf2"), links("spine{}>leaf3")


def order_of(spec: str, packets: int) -> list[int]:
    """Which uplink the first packets take, from what one more packet adds to the links."""
    counts = [run(spec, messages([(0, 4)], n)).link_packets[UP] for n in range(1, packets + 1)]
    steps = np.diff(np.stack([np.zeros(4, np.int64), *counts]), axis=0)
    assert (steps.sum(1) == 1).all()
    return steps.argmax(1).tolist()


def test_round_robin_draws_its_order_anew_every_five_rounds() -> None:
    sent = order_of("switch-rr:acks=own", 64)
    rounds = [tuple(sent[i : i + 4]) for i in range(0, 64, 4)]
    assert all(sorted(one) == [0, 1, 2, 3] for one in rounds)
    fives = [set(rounds[i : i + 5]) for i in (0, 5, 10)]
    assert [len(five) for five in fives] == [1, 1, 1]
    assert len(set.union(*fives)) > 1
    never = order_of("switch-rr:acks=own,reshuffle=0", 24)
    assert never == never[:4] * 6


@pytest.mark.parametrize(
    ("spec", "even"), [("ofan", True), ("host-dr", True), ("switch-rr:reshuffle=0,acks=own", False)]
)
def test_rotation_per_destination_evens_the_links_down(spec: str, even: bool) -> None:
    """Packets to leaf 2 and leaf 3 alternate; one pointer for both sends each over two spines."""
    result = run(spec, messages([(0, 4), (0, 8)], 40))
    assert result.link_packets[UP].tolist() == [20] * 4
    for down in (DOWN_2, DOWN_3):
        expected = [10, 10, 10, 10] if even else [0, 0, 20, 20]
        assert sorted(result.link_packets[down].tolist()) == expected


def test_ofan_keeps_data_and_acks_apart() -> None:
    """Leaf 1 sends 40 packets and 40 ACKs to leaf 2: ten of either over every link."""
    load = messages([(0, 4), (5, 1)], 40)
    assert run("ofan", load).link_bytes[UP].tolist() == [10 * (4160 + 64)] * 4
    assert len(set(run("switch-rr:reshuffle=0", load).link_bytes[UP].tolist())) > 1


def test_ofan_starts_its_pointers_anywhere_in_any_order() -> None:
    tree = parse_fabric("fat-tree:k=8")
    _, keys = ofan.pointer_table("ofan", tree)
    begins, rows = ofan._schedules(tree, keys, 3)
    assert len(begins) == 2 * (32 * 31 + 32 * 7)
    starts = Counter(int(rows[at]) for at in begins)
    orders = Counter(tuple(rows[at + 2 : at + 6].tolist()) for at in begins)
    assert sorted(starts) == [0, 1, 2, 3] and len(orders) == 24
    assert all(abs(n - 608) < 5 * 21.4 for n in starts.values())  # binomial: 2,432 times 1/4
    assert all(abs(n - 101.3) < 5 * 9.9 for n in orders.values())


def test_ofan_weighs_a_link_of_half_the_rate_by_half() -> None:
    slow = parse_fabric(
        "leaf-spine:leaves=3,spines=4,hosts=4,rate=100G,delay=500ns,slow=leaf1-spine4:50G"
    )
    result = run("ofan", messages([(0, 4)], 70), slow)
    assert result.link_packets[UP].tolist() == [20, 20, 20, 10]


def test_shortest_queue_is_exact_and_first_wins_ties() -> None:
    """One host alone always finds every link idle; of two in step the second finds one busy."""
    alone = run("jsq:ties=first", messages([(0, 4)], 50)).link_packets[UP]
    assert alone.tolist() == [50, 0, 0, 0]
    both = run("jsq:ties=first", messages([(0, 4), (1, 5)], 50)).link_packets[UP]
    assert both.tolist() == [50, 50, 0, 0]
    assert run("jsq", messages([(0, 4)], 50)).link_packets[UP].min() > 0


def test_drill_takes_the_shortest_of_two_draws_and_its_memory() -> None:
    rules = parse_packet_strategy("drill").rules(messages([(0, 4)], 1), THREE, 1)
    queues = table(len(THREE.links.source), LINK)
    members = np.arange(4, dtype=np.int32)
    call = choose_of(rules)
    queues["waiting_data"][:4] = 4000, 3000, 2000, 1000
    found = [call(queues, Choice(members, 0, 4, 0, 0, packet, 0, 0)) for packet in range(200)]
    # Never worse than the packet before: once the shortest is found it is remembered.
    assert found == sorted(found) and found[-1] == 3
    queues["waiting_data"][3] = 5000
    later = [call(queues, Choice(members, 0, 4, 0, 0, packet, 0, 0)) for packet in range(300, 500)]
    assert later[-1] == 2 and set(later) <= {0, 1, 2, 3}
    # Without memory the shortest of two uniform draws: 7/16, 5/16, 3/16 and 1/16.
    rules = parse_packet_strategy("drill:memory=0").rules(messages([(0, 4)], 1), THREE, 1)
    queues["waiting_data"][:4] = 4000, 3000, 2000, 1000
    call = choose_of(rules)
    drawn = Counter(call(queues, Choice(members, 0, 4, 0, 0, p, 0, 0)) for p in range(4000))
    assert all(abs(drawn[i] - 4000 * (2 * i + 1) / 16) < 160 for i in range(4))


def test_random_ports_are_uniform() -> None:
    counts = run("switch-random", messages([(0, 4)], 4000)).link_packets[UP]
    assert counts.sum() == 4000
    assert (abs(counts - 1000) < 5 * 27.4).all()  # binomial


@pytest.mark.thorough
def test_adaptive_bands_of_5_10_and_20_percent_are_stale_for_100_ns() -> None:
    rules = parse_packet_strategy("adaptive").rules(messages([(0, 4)], 1), THREE, 1)
    state, queues = rules.state, table(len(THREE.links.source), LINK)
    members = np.arange(4, dtype=np.int32)

    def chosen(time_ps: int, packet: int = 0) -> int:
        at = Choice(members, 0, 4, 0, 0, packet, 0, time_ps)
        return int(adaptive.least_band(state, queues, at))

    # Of 800 kB: bands 2, 3, 0 and 1, each a byte beside the boundary.
    queues["waiting_data"][:4] = 159_999, 160_000, 39_999, 40_000
    assert {chosen(0, packet) for packet in range(50)} == {2}
    queues["waiting_data"][2] = 800_000
    assert chosen(99_999) == 2
    assert chosen(100_000) == 3
    queues["waiting_data"][:4] = 80_000, 79_999, 79_999, 80_000
    assert {chosen(200_000, packet) for packet in range(50)} == {1, 2}


def test_least_levels_keep_what_is_among_them() -> None:
    state = np.array([9, 9, 3, 1, 1, 2, 1], np.int64)

    def chosen(size: int, kept: int) -> set[int]:
        return {int(random_least(state, 2, size, 1, what, 0, kept)) for what in range(50)}

    assert chosen(4, NONE) == {1, 2}
    assert chosen(4, 2) == {2}
    assert chosen(4, 0) == {1, 2}
    assert chosen(4, 4) == {1, 2}  # as good, but not of this group
    assert chosen(1, NONE) == {0}


@pytest.mark.thorough
def test_spraying_in_turns_uses_every_entropy_value_once_per_turn() -> None:
    """A value keeps its link, so that every turn loads the links alike, in another order."""
    sent = order_of("host-spray:evs=8,order=turns", 32)
    turns = [sent[i : i + 8] for i in range(0, 32, 8)]
    assert all(Counter(turn) == Counter(turns[0]) for turn in turns)
    assert len({tuple(turn) for turn in turns}) == 4
    drawn = order_of("host-spray:evs=8", 32)
    assert len({tuple(sorted(Counter(drawn[i : i + 8]).items())) for i in range(0, 32, 8)}) > 1


def test_bands_of_adaptive_are_of_the_buffer_of_the_model() -> None:
    small = Model(buffer_bytes=100_000)
    of_model = parse_packet_strategy("adaptive").under(small)
    load = messages([(0, 4)], 4)
    assert of_model.rules(load, THREE, 1).parameters["buffer"] == "100000"
    given = parse_packet_strategy("adaptive:buffer=1MB").under(small)
    assert given.rules(load, THREE, 1).parameters["buffer"] == "1000000"
    assert parse_packet_strategy("adaptive").under(MODEL).rules(load, THREE, 1).parameters[
        "buffer"
    ] == str(adaptive.BUFFER_BYTES)


def test_static_srv6_takes_the_uplink_that_the_entropy_value_names() -> None:
    traffic = generated("permutation:qps=8,acks=no", THREE, None)
    placed = parse_strategy("srv6").place(traffic, THREE).placement
    crosses = traffic.src_host // 4 != traffic.dst_host // 4
    assert crosses.sum() > 20 and not placed.dropped.any()
    for unit in np.flatnonzero(crosses).tolist():
        leaf, spine = traffic.src_host[unit] // 4 + 1, traffic.keys.sport[unit] % 4 + 1
        (uplink,) = THREE.find_links(f"leaf{leaf}>spine{spine}")
        assert uplink in placed.links[unit]
