"""Seeds recovered from planted placements, and honest answers where none can be."""

from __future__ import annotations

import numpy as np
import pytest
from examples import thorough

from rocescope.analyzer.errors import UsageError
from rocescope.replay.hashing.keys import packet_keys
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.hashing.settings import Group, HashSettings
from rocescope.replay.results import Candidate
from rocescope.replay.seeds.recover import (
    Wanted,
    is_explained,
    parse_weights,
    recover,
    recover_all,
    settings_of,
)
from rocescope.replay.seeds.tapped import Direction, Seen

NARROW = SeedRange(1000, 60_000)


def planted(
    settings: HashSettings, weights: list[int], flows: int = 60, ipv6_every: int = 0, seed: int = 5
) -> Direction:
    """Flows on the links on which a switch with these settings puts them."""
    rng = np.random.default_rng(seed)
    ends = [
        [
            f"fd00:{side}::{x}" if ipv6_every and i % ipv6_every == 0 else f"10.{side}.0.{x}"
            for i, x in enumerate(rng.integers(1, 30, flows))
        ]
        for side in (0, 1)
    ]
    keys = packet_keys(
        ends[0], ends[1], rng.integers(49152, 65536, flows), dest_qp=rng.integers(0, 1 << 24, flows)
    )
    link = bind(keys, settings).choose([settings.seed], Group(np.array(weights)))[0]
    zeros = np.zeros(flows, np.int64)
    links = tuple(f"up{i}" for i in range(len(weights)))
    hops = zeros.astype(np.uint8)
    seen = Seen(links, keys, link.astype(np.int32), hops, zeros, zeros, ("10.0.0.1",))
    return Direction("from here", seen)


def found(direction: Direction, wanted: Wanted) -> Candidate:
    record, _ = recover(direction, wanted, (), None)
    assert record.candidates, record.conclusion
    return record.candidates[-1]


@pytest.mark.parametrize("weights", [[1, 1, 1, 1], [1, 2, 3, 4], [1, 1, 1, 1, 1]])
@pytest.mark.parametrize("policy", [0, 1])
def test_linux(weights: list[int], policy: int) -> None:
    settings = HashSettings("linux", seed=12_345, extra={"policy": policy})
    wanted = Wanted(group=Group(np.array(weights)), seeds=NARROW)
    candidate = found(planted(settings, weights), wanted)
    assert (candidate.hash, candidate.parameters) == ("linux", {"policy": str(policy)})
    assert (candidate.seed, candidate.seeds_that_fit) == (12_345, 1)
    assert candidate.validated_flows == candidate.held_back_flows >= 15
    assert is_explained(candidate)


def test_linux_with_both_address_families() -> None:
    direction = planted(HashSettings("linux", seed=50_000), [1, 1, 1, 1], 60, ipv6_every=3)
    candidate = found(direction, Wanted(seeds=NARROW))
    assert (candidate.seed, candidate.validated_flows) == (50_000, 20)


@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "links"),
    [
        (HashSettings("crc16-ccitt", "5-tuple+qpn", seed=0xBEEF), 4),
        (HashSettings("crc32", "5-tuple", seed=0xDEADBEEF), 8),
        (HashSettings("crc32c", "3-tuple", seed=3), 4),
        (HashSettings("toeplitz", "4-tuple", seed=99), 16),
        (HashSettings("crc16-bisync", "5-tuple", seed=4321, symmetric=True), 32),
        (HashSettings("xor16", "5-tuple", seed=77), 4),
        (HashSettings("crc16-bisync", "5-tuple", seed=1234), 6),
        (HashSettings("crc32-lo", "5-tuple", seed=123_456_789), 3),
    ],
    ids=lambda value: value if isinstance(value, int) else f"{value.model} of {value.field_set}",
)
def test_linear_hashes_are_solved(settings: HashSettings, links: int) -> None:
    """What is found places a thousand other flows as the planted hash does."""
    direction = planted(settings, [1] * links, 90)
    candidate = found(direction, Wanted(hash=settings.model, fields=settings.field_set))
    assert candidate.validated_flows == candidate.held_back_flows >= 25
    recovered = settings_of(candidate)
    assert recovered is not None and candidate.seed is not None
    others = planted(settings, [1] * links, 1000, seed=99).seen
    group = Group(np.ones(links, np.int64))
    again = bind(others.keys, recovered).choose([candidate.seed], group)[0]
    assert (again == others.link).all()


def test_every_fitting_seed_of_a_linear_hash_is_counted() -> None:
    direction = planted(HashSettings("crc16-ccitt", seed=700), [1] * 4)
    candidate = found(direction, Wanted(hash="crc16-ccitt", fields="5-tuple"))
    keys, group = direction.seen.keys, Group(np.ones(4, np.int64))
    chosen = bind(keys, HashSettings("crc16-ccitt")).choose(range(1 << 16), group)
    fitting = np.flatnonzero((chosen == direction.seen.link).all(1))
    assert (candidate.seed, candidate.seeds_that_fit) == (fitting[0], len(fitting))
    assert candidate.seeds_searched == 1 << 16


@pytest.mark.thorough
def test_hash_and_fields_are_found_without_a_hint() -> None:
    direction = planted(HashSettings("crc16-ccitt", "5-tuple+qpn", seed=1), [1] * 4)
    record, tried = recover(direction, Wanted(seeds=NARROW), (), None)
    candidate = record.candidates[0]
    assert (candidate.hash, candidate.field_set) == ("crc16-ccitt", "5-tuple+qpn")
    assert tried[0] == "linux policy 1" and tried[-1] == "crc16-ccitt of 5-tuple+qpn"


@pytest.mark.thorough
def test_an_unknown_linear_function_is_learned() -> None:
    direction = planted(HashSettings("crc32c", "5-tuple", rotate=7, seed=77), [1] * 8, 150)
    record, tried = recover(direction, Wanted(seeds=NARROW), (), None)
    assert tried[-1] == "an unknown linear function"
    assert record.candidates[0].hash == "unknown linear function"
    assert record.candidates[0].validated_flows > 90
    assert "unknown linear function fits" in record.conclusion


def test_other_hashes_when_asked_for() -> None:
    direction = planted(HashSettings("jenkins", "5-tuple+qpn", seed=40_000), [1] * 5, 30)
    wanted = Wanted(hash="jenkins", fields="5-tuple+qpn", seeds=NARROW)
    candidate = found(direction, wanted)
    assert (candidate.seed, candidate.seeds_that_fit) == (40_000, 1)


@pytest.mark.thorough
def test_chance_fits_nothing() -> None:
    direction = planted(HashSettings("random-oracle", seed=5), [1] * 4)
    record, tried = recover(direction, Wanted(seeds=NARROW), (), None)
    assert record.candidates == [] and record.conclusion.startswith("no hash fits")
    assert len(tried) > 50


def test_one_flow_on_the_wrong_link_is_enough() -> None:
    direction = planted(HashSettings("linux", seed=12_345), [1] * 4)
    direction.seen.link[7] = 3 - direction.seen.link[7]
    record, _ = recover(direction, Wanted(hash="linux", seeds=NARROW), (), None)
    assert not any(is_explained(one) for one in record.candidates)
    assert "no hash fits" in record.conclusion


def test_few_flows_are_refused_before_a_search() -> None:
    """All 2^32 seeds of Linux take a minute: 16 flows cannot tell the right one from chance."""
    direction = planted(HashSettings("linux", seed=12_345), [1] * 4, 16)
    told: list[str] = []
    wanted = Wanted(hash="linux")
    record, tried = recover(direction, wanted, (), lambda name, *_: told.append(name))
    assert (record.candidates, tried, told) == ([], [], [])
    # 2 hypotheses * 2^32 seeds / 4^n < 1/1000 from 22 flows on.
    assert record.flows_needed == {"linux": 22}
    assert record.conclusion == (
        "too few flows (16): any hash may fit by chance; 22 flows suffice for linux"
    )


@pytest.mark.parametrize("flows", [13, 14])
def test_as_many_flows_as_told_suffice(flows: int) -> None:
    direction = planted(HashSettings("linux", seed=12_345), [1] * 4, flows)
    record, _ = recover(direction, Wanted(hash="linux", seeds=NARROW), (), None)
    if flows == 13:  # 2 * 59,000 / 4^13 = 0.0018
        assert record.flows_needed == {"linux": 14} and not record.candidates
    else:
        assert is_explained(record.candidates[0]) and record.candidates[0].seed == 12_345
        assert record.candidates[0].expected_by_chance == pytest.approx(2 * 59_000 / 4**14)


@pytest.mark.parametrize(
    ("truth", "flows"),
    [
        ("linux", 5),
        ("random-oracle", 16),
        *(pytest.param("random-oracle", n, marks=pytest.mark.thorough) for n in (5, 10)),
    ],
)
@pytest.mark.parametrize("draw", [0, *thorough(range(1, 3))])
def test_no_claim_by_chance(truth: str, flows: int, draw: int) -> None:
    """All hypotheses with all seeds; the true one cannot be known from so few flows."""
    direction = planted(HashSettings(truth, seed=draw), [1] * 4, flows, seed=draw)
    record, _ = recover(direction, Wanted(), (), None)
    assert not any(is_explained(one) for one in record.candidates)
    assert record.flows_needed["linux"] == 25


@pytest.mark.thorough
@pytest.mark.parametrize("draw", [0, 1, *thorough(range(2, 10))])
def test_no_claim_by_chance_with_many_flows(draw: int) -> None:
    direction = planted(HashSettings("random-oracle", seed=draw), [1] * 4, 50, seed=draw)
    for name in ("crc16-ccitt", "crc16-bisync", "crc32", "xor16", "toeplitz"):
        record, _ = recover(direction, Wanted(hash=name), (), None)
        assert not record.candidates, name
    record, _ = recover(direction, Wanted(hash="linux", seeds=NARROW), (), None)
    assert not any(is_explained(one) for one in record.candidates)


def test_flows_whose_links_follow_from_each_other_prove_nothing() -> None:
    """Eight source ports between two hosts: any linear function of three bits places them alike."""
    keys = packet_keys(["10.0.0.1"] * 8, ["10.1.0.1"] * 8, 50_000 + np.arange(8))
    one = HashSettings("crc32", seed=1)
    link = bind(keys, one).choose([1], Group(np.ones(2, np.int64)))[0].astype(np.int32)
    zeros = np.zeros(8, np.int64)
    seen = Seen(("a", "b"), keys, link, zeros.astype(np.uint8), zeros, zeros, ("10.0.0.1",))
    repeated = seen.take(np.tile(np.arange(8), 4))
    record, _ = recover(Direction("from here", repeated), Wanted(hash="crc32"), (), None)
    assert not any(is_explained(one) for one in record.candidates)


def test_flows_on_several_links_are_told_and_left_out() -> None:
    direction = planted(HashSettings("linux", seed=12_345), [1] * 4)
    direction.seen.link[:5] = -1
    result = recover_all([direction], Wanted(hash="linux", seeds=NARROW), ["x"], None)
    switch = result.switches[0]
    assert (switch.flows, switch.flows_on_several_links) == (55, 5)
    assert switch.candidates[0].seed == 12_345
    assert "5 flows were captured on several links" in result.warnings[0]
    assert result.warnings[0].endswith("or the links are not those of one switch")


def test_a_seed_of_one_direction_is_tried_in_the_other() -> None:
    settings = HashSettings("linux", seed=12_345)
    there, back = planted(settings, [1] * 4), planted(settings, [1] * 4, seed=6)
    result = recover_all([there, back], Wanted(hash="linux", seeds=NARROW), ["x"], None)
    assert [one.candidates[0].seed for one in result.switches] == [12_345, 12_345]
    assert result.switches[1].candidates[0].seeds_searched == 1
    other = planted(HashSettings("linux", seed=54_321), [1] * 4, seed=6)
    result = recover_all([there, other], Wanted(hash="linux", seeds=NARROW), ["x"], None)
    assert [one.candidates[-1].seed for one in result.switches] == [12_345, 54_321]


@pytest.mark.thorough
@pytest.mark.parametrize("flows", [1, 3])
def test_too_few_flows(flows: int) -> None:
    record, _ = recover(planted(HashSettings(), [1, 1], flows), Wanted(), (), None)
    assert "too few" in record.conclusion and record.candidates == []


def test_one_used_link_shows_no_choice() -> None:
    direction = planted(HashSettings(), [1, 1])
    direction.seen.link[:] = 1
    record, _ = recover(direction, Wanted(), (), None)
    assert "one link" in record.conclusion


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (Wanted(hash="md5"), "no hash 'md5'"),
        (Wanted(hash="linux", fields="5-tuple"), "policy selects them"),
        (Wanted(hash="crc32", fields="6-tuple"), "unknown hash field"),
        (Wanted(group=Group(np.ones(3, np.int64))), "3 weights for 2 links"),
    ],
)
def test_impossible_wishes(wanted: Wanted, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        recover(planted(HashSettings(), [1, 1]), wanted, (), None)


@pytest.mark.parametrize("text", ["", "1,x", "0,0", "1;2", "-1,2"])
def test_impossible_weights(text: str) -> None:
    with pytest.raises(UsageError, match="--weights"):
        parse_weights(text)
