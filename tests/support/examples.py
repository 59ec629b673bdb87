"""How many examples a property gets in `make test`, and what waits for `make thorough`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

USUAL = 100
"""Examples of a property that states no number, in a run with all of them."""


def examples(number: int, **more: Any) -> settings:
    """Decorator: so many examples, and fewer with `--few-examples`, which `make test` has.

    more: other settings of hypothesis.
    """
    return settings(max_examples=max(1, number * settings.default.max_examples // USUAL), **more)


def thorough(values: Iterable[Any]) -> list[Any]:
    """Parameters of a test that only `make thorough` runs."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=pytest.mark.thorough) for row in rows]


def first(number: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: `make test` runs the first ones, `make thorough` the others."""
    every = list(values)
    return [*every[:number], *thorough(every[number:])]
