"""Imbalance numbers against reference values, exact sums, brute force and chance itself."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.measures.spraying import (
    best_fim,
    coefficient_of_variation,
    expected_fim,
    fim,
    imbalance_of,
    max_over_mean,
)
from rocescope.analyzer.statistics.shares import Carried

WEIGHTS = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(np.array)


def exact_expectation(flows, paths):
    """The mean over all outcomes of a binomial number, in fractions."""
    total, p = Fraction(0), Fraction(1, paths)
    fair = flows * p
    for n in range(flows + 1):
        chance = math.comb(flows, n) * p**n * (1 - p) ** (flows - n)
        total += chance * abs(n - fair) / fair
    return float(100 * total)


@pytest.mark.parametrize(
    ("loads", "expected"),
    [([5, 5, 5, 5], 0), ([8, 0], 100), ([4, 0, 0, 0], 150), ([3, 1], 50), ([1, 2, 3], 100 / 3)],
)
def test_fim_by_hand(loads, expected):
    assert fim(np.array(loads)) == pytest.approx(expected)


def test_fim_with_capacities():
    """A link of twice the capacity should carry twice as much."""
    assert fim(np.array([20, 10, 10]), np.array([2, 1, 1])) == 0
    assert fim(np.array([10, 10, 20]), np.array([2, 1, 1])) == pytest.approx(100 * 1.5 / 3)


def test_without_load_there_is_no_imbalance():
    assert fim(np.array([0, 0])) is None
    assert expected_fim(0, 4) is None
    assert best_fim(0, 4) is None


# Reference values for n flows on k links, in percent, to one decimal.
TABLE = """8/4 46.7 16/4 33.8 16/8 50.6 32/4 24.2 32/8 36.5 32/16 52.4 64/8 26.1 64/16 37.8
128/8 18.6 128/16 27.0 256/8 13.2 256/16 19.2 256/32 27.5 512/16 13.6 1024/32 13.8""".split()


@pytest.mark.parametrize(("case", "percent"), list(zip(TABLE[::2], TABLE[1::2], strict=True)))
def test_expected_fim_of_uniform_hashing(case, percent):
    flows, links = map(int, case.split("/"))
    assert expected_fim(flows, links) == pytest.approx(float(percent), abs=0.051)


@given(st.integers(1, 40), st.integers(1, 12))
def test_expected_fim_is_exact(flows, paths):
    expected = exact_expectation(flows, paths)
    assert expected_fim(flows, paths) == pytest.approx(expected, abs=1e-9)


def test_expected_fim_of_very_many_flows():
    """Against the normal limit sqrt(2 (1 - 1/k) / (pi mu))."""
    flows, links = 10_000_000, 64
    limit = 100 * math.sqrt(2 * (1 - 1 / links) / (math.pi * flows / links))
    assert expected_fim(flows, links) == pytest.approx(limit, rel=1e-3)


def test_one_path_is_never_unfair():
    assert (expected_fim(7, 1), best_fim(7, 1), fim(np.array([7]))) == (0, 0, 0)


def test_expected_fim_by_simulation():
    rng = np.random.default_rng(2410)
    counts = rng.multinomial(32, np.full(8, 1 / 8), size=20_000)
    simulated = np.mean([fim(c) for c in counts])
    assert simulated == pytest.approx(expected_fim(32, 8), abs=0.4)


@given(st.integers(1, 9), WEIGHTS)
def test_best_fim_by_brute_force(flows, weights):
    links = len(weights)
    placements = [
        np.array(c) for c in itertools.product(range(flows + 1), repeat=links) if sum(c) == flows
    ]
    assert best_fim(flows, links) == pytest.approx(min(fim(c) for c in placements))
    weighted = min(fim(c, weights) for c in placements)
    assert best_fim(flows, links, weights) == pytest.approx(weighted)


def test_other_numbers_by_hand():
    loads = np.array([1, 2, 3, 6])
    assert max_over_mean(loads) == 2
    assert coefficient_of_variation(loads) == pytest.approx(math.sqrt(14 / 4) / 3)


def test_weights_must_fit():
    with pytest.raises(ValueError, match="weight"):
        fim(np.array([1, 2]), np.array([1, 0]))


def records(*wire_bytes):
    return [Carried(b // 100, b, 0, 0, 5, 9) for b in wire_bytes]


def test_record_of_a_set_of_links():
    paths = records(100, 300, 0, 200)
    i = imbalance_of("uplinks", "tap", False, list("abcd"), paths, 5, np.array([1, 3, 0, 1]))
    assert (i.name, i.path_by, i.inferred, i.paths, i.flows) == ("uplinks", "tap", False, 4, 5)
    assert i.wire_bytes == 600
    assert i.fim_flows_percent == pytest.approx(100 / 4 * (0.25 + 1.75 + 1.25 + 0.25) / 1.25)
    assert i.fim_bytes_percent == pytest.approx(100 / 4 * (50 + 150 + 150 + 50) / 150)
    assert i.fim_flows_chance_percent == expected_fim(5, 4)
    assert i.fim_flows_best_percent == pytest.approx(100 * 2 * 1 * 3 / (4 * 5))
    assert i.max_over_mean == 2
    assert i.coefficient_of_variation == pytest.approx(math.sqrt(12500) / 150)
    assert i.jain == pytest.approx(600**2 / (4 * 140000))
    assert [(s.path, s.wire_bytes) for s in i.shares] == [
        ("b", 300),
        ("d", 200),
        ("a", 100),
        ("c", 0),
    ]
    assert (i.shares[0].first_time_ns, i.shares[0].last_time_ns) == (5, 9)
    assert (i.shares[3].first_time_ns, i.shares[3].last_time_ns) == (None, None)


def test_no_bytes_no_record():
    assert imbalance_of("x", "tap", False, ["a", "b"], records(0, 0), 0) is None


def test_many_paths_are_listed_in_part_and_counted_in_full():
    i = imbalance_of("x", "entropy", True, list(map(str, range(100))), records(*[100] * 100), 1)
    assert (i.paths, len(i.shares), i.shares[-1].path) == (100, 64, "37 more")
    assert sum(s.wire_bytes for s in i.shares) == 10_000
    assert i.fim_flows_percent is i.fim_flows_chance_percent is i.fim_flows_best_percent is None
