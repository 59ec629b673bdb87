"""Numbers in `--jobs`."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.jobs.numbers import number, whole


def test_numbers_of_their_range() -> None:
    assert [whole("qps", text, 1, 64) for text in ("1", "064")] == [1, 64]
    assert [number("scale", text, 0, 8) for text in ("0", "1e-3", "8")] == [0, 0.001, 8]


@pytest.mark.parametrize("text", ["0", "65", "-1", "1.5", "", " 1", "\uff11", "1" * 40, "x"])
def test_other_whole_numbers_name_the_range(text: str) -> None:
    with pytest.raises(UsageError, match="--jobs: qps is 1 to 64, not "):
        whole("qps", text, 1, 64)


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "9", "", "x", "1,5"])
def test_other_numbers_name_the_range(text: str) -> None:
    with pytest.raises(UsageError, match="--jobs: skew is a number of 0 to 8, not "):
        number("skew", text, 0, 8)
