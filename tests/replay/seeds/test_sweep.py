"""A fabric on which captured links can be replayed at once."""

from __future__ import annotations

import threading
from random import Random

import numpy as np
import pytest
import replay_traffic
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.measures.spraying import expected_fim, fim
from rocescope.replay.compare.captured import sweep_result
from rocescope.replay.compare.flows import random_sweep
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.loads import link_loads
from rocescope.replay.flows.placement import Walk, place
from rocescope.replay.flows.shares import split_evenly
from rocescope.replay.hashing.seeded import PerSwitch, SeedRange, switch_seeds
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.results import SweepResult
from rocescope.replay.seeds import sweep as module
from rocescope.replay.seeds.sweep import (
    Extremes,
    Measure,
    Scores,
    Tally,
    in_chunks,
    small_fabric,
    sweep,
)
from rocescope.replay.seeds.tapped import Direction, Seen

# A fabric on which captured links can be replayed at once.


def direction(names: list[str], links: int = 4) -> Direction:
    """One flow from each of the first half of the hosts to each of the others."""
    half = len(names) // 2
    source, destination = (
        ends.ravel() for ends in np.meshgrid(range(half), range(half, len(names)))
    )
    keys = replay_traffic.random_traffic(
        parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2"), len(source)
    ).keys
    zeros = np.zeros(len(source), np.int64)
    taps = tuple(f"up{i}" for i in range(links))
    link, limit = zeros.astype(np.int32), zeros.astype(np.uint8)
    return Direction("", Seen(taps, keys, link, limit, source, destination, tuple(names)))


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["10.1.1.10", "10.1.2.10", "10.2.3.10", "10.2.4.10"], "hosts=2 subnets"),
        (["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"], "hosts=2 order"),
        (["fd10:1:1::1", "fd10:1:1::2", "fd10:2:1::1", "fd10:2:1::2"], "hosts=2 subnets"),
        (["10.1.0.1", "10.1.0.9", "10.1.0.2", "10.1.0.5"], None),
    ],
)
def test_each_side_is_one_leaf(names: list[str], told: str | None) -> None:
    found = small_fabric([direction(names)])
    expected = None if told is None else f"leaf-spine:leaves=2,spines=4,{told}"
    assert (None if found is None else f"{found.fabric} {found.map}") == expected


def test_nothing_to_build_from_or_too_much_is_no_fabric() -> None:
    assert small_fabric([]) is None
    names = ["10.1.1.10", "10.1.2.10", "10.2.3.10", "10.2.4.10"]
    assert small_fabric([direction(names, links=1 << 20)]) is None


# Work in chunks: every number once, errors of workers, and the end after an interrupt.


@pytest.mark.parametrize("cores", [1, 3, 50])
def test_every_chunk_once(cores, monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: cores)
    lock, done, told = threading.Lock(), [], []

    def work(worker, number):
        with lock:
            done.append((worker, number))

    in_chunks(20, work, lambda: told.append(len(done)))
    assert sorted(number for _, number in done) == list(range(20))
    assert {worker for worker, _ in done} <= set(range(cores))
    assert told[-1] == 20


def test_no_chunk():
    told = []
    in_chunks(0, lambda worker, number: pytest.fail("there is no work"), lambda: told.append(1))
    assert told


def test_an_error_ends_the_work(monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: 1)
    done = []

    def work(_worker, number):
        done.append(number)
        if number == 2:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        in_chunks(100, work)
    assert done == [0, 1, 2]


def test_an_interrupt_ends_the_work(monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: 2)
    monkeypatch.setattr(module, "_TELL_EVERY_S", 0.001)
    begun, interrupted = [], threading.Event()

    def work(_worker, number):
        begun.append(number)
        interrupted.wait(30)

    def tell():
        interrupted.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_chunks(1000, work, tell)
    assert len(begun) < 1000


# Distributions without keeping values, against numpy on all of them.

VALUES = st.lists(st.integers(0, 1000).map(lambda v: v / 10), min_size=1, max_size=200)


@given(VALUES, st.integers(1, 50))
def test_quantiles_extremes_and_mean(values: list[float], cut: int) -> None:
    array = np.array(values)
    whole, other = Tally(100), Tally(100)
    whole.add(array[:cut])
    other.add(array[cut:])
    whole.merge(other)
    found = whole.distribution()
    assert (found.min, found.max) == (array.min(), array.max())
    assert found.mean == pytest.approx(array.mean())
    assert sum(one.count for one in found.histogram) == len(array)
    assert found.histogram[0].low <= found.min + 1e-9  # bins have rounded borders
    assert found.max < found.histogram[-1].high + 1e-9
    for name, value in found.quantiles.items():
        exact = np.percentile(array, int(name[1:]), method="inverted_cdf")
        assert abs(value - exact) <= found.resolution
    distinct = len(np.unique(array))
    assert found.distinct == (distinct if distinct <= 64 else None)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=40), st.randoms())
def test_the_mean_does_not_depend_on_the_order_of_parts(values: list[float], order: Random) -> None:
    def mean() -> float:
        whole = Tally(100)
        for value in values:
            part = Tally(100)
            part.add(np.array([value]))
            whole.merge(part)
        return whole.mean

    before = mean()
    order.shuffle(values)
    assert mean() == before


@given(VALUES, st.integers(1, 20), st.integers(1, 50), st.booleans())
def test_extreme_seeds(values: list[float], keep: int, cut: int, largest: bool) -> None:
    array = np.array(values)
    seeds = np.arange(len(array), dtype=np.uint64) + 7
    found, other = Extremes(keep, largest), Extremes(keep, largest)
    found.add(seeds[:cut], array[:cut])
    other.add(seeds[cut:], array[cut:])
    found.merge(other)
    sign = -1 if largest else 1
    expected = sorted(zip(sign * array, seeds.tolist(), strict=True))[:keep]
    assert [(sign * one.value, one.seed) for one in found.records()] == expected


# Sweeps against placing seed by seed, chance against its closed form, and what is explained.

TREE = parse_fabric("fat-tree:k=4")
CLOS = parse_fabric("leaf-spine:leaves=2,spines=8,hosts=8,slow=leaf1-spine1:100G")


def swept(
    options: dict[str, str], per_switch: PerSwitch = "different", flows: int = 300, **more: object
) -> SweepResult:
    fabric = parse_fabric("fat-tree:k=8")
    traffic = replay_traffic.random_traffic(fabric, flows)
    return sweep_result(
        traffic, fabric, options, SeedRange(0, 500), per_switch, "fim-flows",
        more.get("production"), ["test"],  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("measure", ["fim-flows", "fim-bytes", "max-over-mean"])
@pytest.mark.parametrize("per_switch", ["equal", "different"])
@pytest.mark.parametrize("fabric", [TREE, CLOS], ids=["even", "a slow link"])
def test_a_sweep_is_every_seed_placed_by_itself(
    measure: Measure, per_switch: PerSwitch, fabric: object
) -> None:
    assert isinstance(fabric, type(TREE))
    traffic = replay_traffic.random_traffic(fabric, 40)
    settings = [HashSettings("linux")] * fabric.switches
    span = SeedRange(5, 65, 3)
    scores = Scores(traffic, fabric, measure)
    even = split_evenly(traffic, fabric)
    expected = []
    for seed in range(5, 65, 3):
        row = switch_seeds(np.array([seed], np.uint64), fabric.switches, per_switch)
        seeds = np.broadcast_to(row.reshape(1, -1), (1, fabric.switches))[0]
        own = [HashSettings("linux", seed=int(s)) for s in seeds]
        loads = link_loads(place(traffic, fabric, own), traffic, len(fabric.links.source))
        values = []
        for number, name in enumerate(fabric.layers):
            if "host" in name:
                continue
            links = fabric.links.layer == number
            amount = (loads.flows if measure == "fim-flows" else loads.wire_bytes)[links]
            rates = fabric.links.rate_bits_per_second[links]
            over = (amount / rates).max() / (even[links] / rates).max()
            values.append(over if measure == "max-over-mean" else fim(amount, rates) or 0.0)
        expected.append((round(float(max(values)), 9), seed))
    found = sweep(Walk(traffic, fabric, settings), scores, span, per_switch, expected[3][0])
    assert [(b.value, b.seed) for b in found.best] == sorted(expected)[:10]
    worst = sorted((-value, seed) for value, seed in expected)[:10]
    assert [(-w.value, w.seed) for w in found.worst] == worst
    assert found.below == sum(value < expected[3][0] - 1e-9 for value, _ in expected)
    assert found.score.mean == pytest.approx(np.mean([value for value, _ in expected]))


def test_chance_is_the_closed_form() -> None:
    """E[FIM] of n flows on k links, de Moivre's formula, within four standard errors."""
    for hosts, spines in ((8, 4), (32, 8), (64, 16)):
        fabric = parse_fabric(f"leaf-spine:leaves=2,spines={spines},hosts={hosts}")
        src = list(range(hosts)) * 2
        traffic = replay_traffic.traffic(fabric, src, [hosts + i // 2 for i in range(2 * hosts)])
        found = random_sweep(traffic, fabric, Scores(traffic, fabric, "fim-flows"), 4000)
        exact = expected_fim(2 * hosts, spines)
        assert exact is not None
        # One leaf sends, so the layer up holds the idle links of the other leaf as well: none
        # can be reached, so none counts.
        for layer in found.layers:
            spread = layer.quantile(84) - layer.quantile(16)
            assert layer.mean == pytest.approx(exact, abs=4 * spread / 2 / 4000**0.5)


@pytest.mark.thorough
def test_memory_is_that_of_a_chunk() -> None:
    """A thousand times more seeds than are looked at: the range itself takes no memory."""
    import tracemalloc

    traffic = replay_traffic.random_traffic(TREE, 100)
    walk = Walk(traffic, TREE, [HashSettings("crc32")] * TREE.switches)
    scores = Scores(traffic, TREE, "fim-flows")
    peaks = []
    for seeds in (2_000, 40_000):
        tracemalloc.start()
        sweep(walk, scores, SeedRange(0, seeds), "equal")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_linear_hashes_only_rename() -> None:
    found = swept({"hash": "crc16-ccitt"}, "equal")
    assert found.distribution.min == found.distribution.max
    assert any("only permutes the links" in text for text in found.findings)
    assert not any("renames" in text for text in swept({"hash": "linux"}).findings)


def test_a_linear_hash_and_seeds_that_matter() -> None:
    """Groups of three are no power of two, so a new seed does change who collides."""
    fabric = parse_fabric("leaf-spine:leaves=2,spines=3,hosts=8")
    traffic = replay_traffic.random_traffic(fabric, 60)
    found = sweep_result(
        traffic, fabric, {"hash": "crc16-ccitt"}, SeedRange(0, 500), "equal", "fim-flows", None, []
    )
    assert found.distribution.max > found.distribution.min
    assert not any("renames" in text for text in found.findings)


def test_equal_seeds_polarise() -> None:
    for options in ({"hash": "linux"}, {"hash": "crc16-ccitt"}):
        text = swept(options, "equal").findings[0]
        # k = 8: a spine gets only the flows whose hash led to it, and sends all to one core.
        assert "polarisation" in text and "25 % of the spine-core links" in text
        assert "same seed" in text
    assert swept({"hash": "linux"}, "different").findings == []


def test_linear_hashes_polarise_in_spite_of_different_seeds() -> None:
    text = swept({"hash": "crc16-ccitt"}, "different").findings[0]
    assert "polarisation" in text and "crc16-ccitt is linear" in text


def test_rotation_in_one_tier_cures_a_linear_hash() -> None:
    fabric = parse_fabric("fat-tree:k=8")
    traffic = replay_traffic.random_traffic(fabric, 1000)
    settings = [
        HashSettings("crc16-ccitt", rotate=8 if tier == 2 else 0)
        for tier in fabric.nodes.tier[: fabric.switches]
    ]
    scores = Scores(traffic, fabric, "fim-flows")
    found = sweep(Walk(traffic, fabric, settings), scores, SeedRange(0, 50), "different")
    assert found.used[scores.names.index("spine-core")] > 0.98


def test_production_is_ranked() -> None:
    found = swept({"hash": "linux"}, production=17)
    own = found.production
    assert own is not None and own.seed == 17
    better = swept({"hash": "linux"}).best  # the ten best of the same sweep
    assert own.better_seeds >= sum(one.value < own.value for one in better)
    assert own.equal_seeds >= 1
    worse = 500 - own.better_seeds - own.equal_seeds
    assert own.percentile == pytest.approx(100 * worse / 500)


def test_best_seed_is_the_best_when_replayed() -> None:
    found = swept({"hash": "linux"})
    again = swept({"hash": "linux"}, production=found.best[0].seed)
    assert again.production is not None
    assert again.production.better_seeds == 0
    assert again.production.value == found.distribution.min


def test_nothing_to_choose() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=1,hosts=2")
    with pytest.raises(UsageError, match="no switch .* has a choice"):
        Scores(replay_traffic.traffic(fabric, [0], [2]), fabric, "fim-flows")


def test_other_leaves_links_do_not_count() -> None:
    """Links that no flow can reach are no sign of imbalance."""
    fabric = parse_fabric("leaf-spine:leaves=8,spines=4,hosts=4")
    traffic = replay_traffic.traffic(fabric, [0, 1, 2, 3], [4, 5, 6, 7])
    assert Scores(traffic, fabric, "fim-flows").links.tolist() == [4, 4]
