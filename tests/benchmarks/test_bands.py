"""Figures outside their bands end a reproduction with exit code 1."""

from __future__ import annotations

import pytest
from bands import Bands


def test_figures_within_their_bands(capsys: pytest.CaptureFixture[str]) -> None:
    bands = Bands()
    bands.within("a", 1.0, 1.0, 2.0)
    bands.holds("b is larger", True)
    with pytest.raises(SystemExit) as ended:
        bands.end()
    assert (ended.value.code, capsys.readouterr().out) == (0, "")


@pytest.mark.parametrize("value", [0.9, 2.1, float("nan")])
def test_a_figure_outside(value: float, capsys: pytest.CaptureFixture[str]) -> None:
    bands = Bands()
    bands.within("a", value, 1.0, 2.0)
    bands.holds("b is larger", False)
    with pytest.raises(SystemExit) as ended:
        bands.end()
    assert ended.value.code == 1
    assert capsys.readouterr().out.count("OUTSIDE ITS BAND") == 2
