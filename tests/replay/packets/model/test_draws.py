"""The only source of randomness in strategies, hosts, links and failures."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

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
                found = re.search(r"default_rng|np\.random|import random", file.read_text())
                assert found is None, file
