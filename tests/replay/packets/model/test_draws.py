"""The only source of randomness in strategies, hosts, links and failures."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.packets.model import draws
from rocescope.replay.packets.model.draws import drawn, generator, purpose


def test_a_purpose_of_a_strategy_is_none_of_the_shared_ones() -> None:
    own = purpose("two-choices")
    assert own == purpose("two-choices") and 1 << 8 <= own < 1 << 63
    assert own != purpose("two-choices again")
    shared = (draws.SWITCH_PORT, draws.HOST_LABEL, draws.TIE, draws.ECN, draws.SHUFFLE)
    assert max(*shared, draws.FAILURE) < 1 << 8


def test_draws_of_different_purposes_have_nothing_in_common() -> None:
    uses = (draws.TIE, draws.ECN, purpose("a"), purpose("b"))
    drawn_for = np.array([[drawn(7, use, what, 0, 1 << 20) for what in range(400)] for use in uses])
    assert np.allclose(drawn_for.mean(1) / (1 << 19), 1, atol=0.12)
    seen = np.corrcoef(drawn_for)
    assert (abs(seen[~np.eye(len(uses), dtype=bool)]) < 0.2).all()


def test_draws_are_those_of_splitmix64() -> None:
    """Reproduced figures rest on these: mixed(0) is the first output of seed 0 in the paper."""
    assert int(draws.mixed(0)) == 0xE220A8397B1DCDAF
    assert [drawn(1, draws.SWITCH_PORT, what, 3, 1000) for what in range(4)] == [44, 414, 923, 50]
    assert generator(3, 0x4641).random() == np.random.default_rng([3, 0x4641]).random()


def test_nothing_else_draws(checkout: Path) -> None:
    for room in ("packets", "strategies", "compare"):
        for file in sorted((checkout / "replay" / room).rglob("*.py")):
            if file.name != "draws.py":
                found = re.search(r"default_rng|np\.random|import random\b", file.read_text())
                assert found is None, file


@examples(60)
@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(1, 300))
def test_an_order_has_every_number_once(seed: int, what: int, n: int) -> None:
    order = [int(draws.permuted(seed, 3, what, place, n)) for place in range(n)]
    assert sorted(order) == list(range(n))
    if n > 20:
        assert order != [int(draws.permuted(seed, 3, what + 1, place, n)) for place in range(n)]


def test_every_place_of_an_order_is_equally_likely() -> None:
    found = np.zeros((5, 5), int)
    for what in range(4_000):
        for place in range(5):
            found[place, draws.permuted(7, 3, what, place, 5)] += 1
    assert abs(found - 800).max() < 150  # more than five standard deviations of 25
