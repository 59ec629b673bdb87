"""Parameters of PFC."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.model.pfc import Pfc, headroom_needed


def test_headroom_of_a_cable() -> None:
    """100 Gb/s is 80 ps per byte; 2 us there and back and a reaction of 0.8 us are 35 kB."""
    assert headroom_needed(4160, 80.0, 1_000_000, 800_000) == 4 * 4160 + 64 + 35_000 + 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"alpha": 0.0}, "alpha must be 1/1024 to 64"),
        ({"shared_bytes": -1}, "shared_bytes must be"),
        ({"xoff_bytes": 10, "xon_bytes": 11}, "xon_bytes .* above xoff_bytes"),
        ({"reaction_ps": -1}, "reaction_ps"),
    ],
)
def test_mistakes_name_the_parameter(values: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Pfc(**values)  # type: ignore[arg-type]


def test_queues_that_drop_and_pfc_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="cannot be combined"):
        Model(buffer_bytes=100_000, pfc=Pfc())


def test_only_the_thresholds_in_force_are_told() -> None:
    assert Pfc().described() == {"lossless": "pfc", "alpha": "0.125", "pause_reaction": "100ns"}
    told = Pfc(xoff_bytes=5, xon_bytes=1).described()
    assert "alpha" not in told and told["xoff_bytes"] == "5"
