"""The registry: every model under every setting that all models share."""

from __future__ import annotations

import re
import zlib

import numpy as np
import pytest
from examples import examples
from hash_keys import SEEDS, some_keys
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.hashing.keys import fields_matrix
from rocescope.replay.hashing.models import MODELS, bind
from rocescope.replay.hashing.seeded import LinearHash
from rocescope.replay.hashing.settings import REDUCTIONS, SEED_USES, Group, HashSettings, equal_cost

ASIC = [name for name in MODELS if name != "linux"]
LINEAR = [name for name in ASIC if re.match("crc|xor|toeplitz", name)]


def texts(keys, field_set="5-tuple"):
    data, lengths = fields_matrix(keys, field_set)
    return [row[:n].tobytes() for row, n in zip(data, lengths, strict=True)]


def test_the_registry_holds_what_switches_offer():
    assert set(MODELS) == {
        *("linux", "crc16-ccitt", "crc16-bisync", "crc-xor", "toeplitz", "fnv1a", "random-oracle"),
        *(
            f"{name}{half}"
            for name in ("crc32", "crc32c", "jenkins")
            for half in ("", "-lo", "-hi")
        ),
        *(f"xor{bits}" for bits in (1, 2, 4, 8, 16, 32)),
    }
    for model in MODELS.values():
        assert model.help and model.source


@pytest.mark.thorough
@examples(30)
@given(SEEDS, st.integers(0, 31), st.integers(0, 31), st.integers(0, 9))
def test_halves_seeds_rotation_and_offset_of_crc32(seed, rotate, offset, number):
    keys = some_keys(5, 0, number)
    for half, width, shift in (("", 32, 0), ("-lo", 16, 0), ("-hi", 16, 16)):
        turn, drop = rotate % width, offset % width
        expected = {use: [] for use in SEED_USES}
        for text in texts(keys):
            for use, value in (
                ("init", zlib.crc32(text, seed)),
                ("prepend", zlib.crc32(seed.to_bytes(4, "big") + text)),
                ("xor", zlib.crc32(text) ^ (seed << shift)),
            ):
                part = (value >> shift) % (1 << width)
                part = (part >> turn | part << (width - turn)) % (1 << width)
                expected[use].append(part >> drop)
        for use in SEED_USES:
            chosen = HashSettings("crc32" + half, seed_use=use, rotate=turn, offset=drop)
            bound = bind(keys, chosen)
            assert bound.bits == width - drop
            assert bound.values(seed).tolist() == [expected[use]]


@pytest.mark.thorough
@examples(12)
@given(SEEDS, SEEDS, st.sampled_from(SEED_USES), st.integers(0, 9))
@pytest.mark.parametrize("name", ASIC)
def test_values_by_unit_are_those_of_each_seed(name, one, other, use, number):
    keys = some_keys(7, 0, number)
    bound = bind(keys, HashSettings(name, seed_use=use))
    both = bound.values([one, other])
    which = np.array([[0, 1, 0, 1, 1, 0, 0], [1, 0, 1, 0, 0, 1, 1]])
    found = np.empty(which.shape, np.uint32)
    bound.fill_at(np.array([one, other], np.uint64), which.astype(np.int32), found)
    np.testing.assert_array_equal(found, np.take_along_axis(both, which, axis=0))
    assert both.max() < 1 << bound.bits


@pytest.mark.thorough
@examples(12)
@given(SEEDS, st.integers(0, 9))
@pytest.mark.parametrize("use", SEED_USES)
@pytest.mark.parametrize("name", LINEAR)
def test_linear_models_are_hashed_anew_under_any_seed(name, use, seed, number):
    """The one XOR per value is the function itself, evaluated with that seed."""
    keys = some_keys(7, 0, number)
    chosen = HashSettings(name, seed_use=use, rotate=0)
    bound = bind(keys, chosen)
    assert isinstance(bound, LinearHash) and bound.is_linear
    data = fields_matrix(keys, "5-tuple")
    np.testing.assert_array_equal(bound.values(seed)[0], bound.evaluate(data, seed))


@pytest.mark.parametrize("name", ["jenkins", "fnv1a", "random-oracle"])
def test_mixed_in_at_the_end_a_seed_is_linear_in_any_model(name):
    keys = some_keys(9)
    assert not bind(keys, HashSettings(name)).is_linear
    bound = bind(keys, HashSettings(name, seed_use="xor"))
    assert bound.is_linear
    plain = bind(keys, HashSettings(name)).values(0)
    np.testing.assert_array_equal(bound.values(0xABCD), plain ^ 0xABCD)


# The upper bits of an XOR fold see only parts of the fields, which are not spread evenly.
@pytest.mark.thorough
@pytest.mark.parametrize("name", [n for n in MODELS if not n.startswith("xor")])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_choosing_is_spread_over_all_members(name, reduction):
    """4,000 units in 5 members under 20 seeds: each near its weight, none missing."""
    group = Group(np.array([1, 2, 1, 4, 1]))
    bound = bind(some_keys(4000), HashSettings(name, reduction=reduction))
    for row in bound.choose(range(100, 120), group):
        share = np.bincount(row, minlength=5) / 4000
        np.testing.assert_allclose(share, group.weights / 9, atol=0.06)


@pytest.mark.parametrize("name", ["crc16-ccitt", "crc32-hi", "toeplitz", "xor16"])
def test_a_new_seed_of_a_linear_hash_keeps_the_collisions(name):
    bound = bind(some_keys(60), HashSettings(name))
    assert bound.seed_permutes(equal_cost(16))
    assert not bound.seed_permutes(equal_cost(12))
    assert not bound.seed_permutes(Group(np.array([1, 2, 1])))
    members = bound.choose(range(50), equal_cost(16))
    loads = [sorted(np.bincount(row, minlength=16)) for row in members]
    assert all(load == loads[0] for load in loads)


def test_the_low_bits_of_fnv_know_the_low_bits_of_the_seed_alone():
    bound = bind(some_keys(60), HashSettings("fnv1a"))
    one, other = bound.choose([3, 3 + 16 * 12345], equal_cost(16))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["linux", "jenkins", "random-oracle"])
def test_a_new_seed_of_other_hashes_changes_the_collisions(name):
    bound = bind(some_keys(60), HashSettings(name))
    assert not bound.seed_permutes(equal_cost(16))
    members = bound.choose(range(50), equal_cost(16))
    assert len({tuple(sorted(np.bincount(row, minlength=16))) for row in members}) > 10


@pytest.mark.parametrize("name", ASIC)
def test_symmetric_settings_hash_both_directions_alike(name):
    keys = some_keys(30, 0)
    back = keys._replace(src=keys.dst, dst=keys.src, sport=keys.dport, dport=keys.sport)
    chosen = HashSettings(name, symmetric=True)
    np.testing.assert_array_equal(bind(keys, chosen).values(3), bind(back, chosen).values(3))


def test_the_field_set_decides_what_counts():
    keys = some_keys(30)
    other = keys._replace(dest_qp=keys.dest_qp ^ 1)
    for field_set, same in (("5-tuple", True), ("5-tuple+qpn", False), ("udp[13:3]", False)):
        values = [bind(k, HashSettings("crc32", field_set)).values(1)[0] for k in (keys, other)]
        assert (values[0] == values[1]).all() == same
        assert (values[0] != values[1]).all() != same
    ports = [bind(keys, HashSettings("crc32", "5-tuple+ingress"), p).values(1) for p in (1, 2)]
    assert (ports[0] != ports[1]).all()


def test_large_sweeps_on_all_cores_are_the_small_ones():
    keys = some_keys(700)
    for name in ("linux", "crc32", "jenkins"):
        bound = bind(keys, HashSettings(name))
        seeds = np.arange(1000) * 4_000_037
        whole = bound.values(seeds)
        members = bound.choose(seeds, equal_cost(7))
        for row in (0, 1, 499, 500, 999):
            np.testing.assert_array_equal(whole[row], bound.values(seeds[row])[0])
            np.testing.assert_array_equal(members[row], bound.choose(seeds[row], equal_cost(7))[0])


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (HashSettings("md5"), "unknown hash 'md5': use linux"),
        (HashSettings("crc32", "6-tuple"), "unknown hash field '6-tuple'"),
        (HashSettings("crc32", seed_use="post"), "seed use 'post'"),
        (HashSettings("crc32", reduction="fold"), "reduction 'fold'"),
        (HashSettings("crc32", rotate=32), "rotate and offset are 0 to 31"),
        (HashSettings("xor1", offset=1), "rotate and offset are 0 to 0"),
        (HashSettings("crc32", extra={"key": "x"}), "hash crc32 has no setting 'key'"),
        (HashSettings("crc-xor", extra={"fold": 3}), "fold=3: use 1, 2, 4, 8, 16"),
        (HashSettings("crc32", "5-tuple+ingress"), "ingress port"),
    ],
)
def test_settings_that_make_no_sense_are_named(chosen, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        bind(some_keys(2), chosen)


def test_no_unit_at_all():
    nothing = some_keys(3).take(np.zeros(0, np.int64))
    for name in MODELS:
        assert bind(nothing, HashSettings(name)).choose([1, 2], equal_cost(4)).shape == (2, 0)
