"""Records against dataclasses of the standard library, field by field and call by call."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any

import pytest

from rocescope.kernels.record import dataclass


def declared(decorate: Callable[[type], type]) -> Any:
    """A class with every kind of field."""

    class Example:
        """An example."""

        first: int
        second: str = "two"
        third: list[int] = field(default_factory=list)
        fourth: int = field(default=4, compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.first < 0:
                raise ValueError("negative")

    return decorate(Example)


OURS, THEIRS = (
    {
        (frozen, eq): declared(made(frozen=frozen, eq=eq))
        for frozen in (True, False)
        for eq in (True, False)
    }
    for made in (dataclass, dataclasses.dataclass)
)


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the kind of its error."""
    try:
        return call()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((1,), {}),
        ((1, "x", [5], 6), {}),
        ((1,), {"third": [7]}),
        ((), {"first": 3, "fourth": 9}),
        ((), {}),
        ((1, "x", [], 4, 5), {}),
        ((1,), {"first": 2}),
        ((1,), {"fifth": 2}),
        ((-1,), {}),
    ],
)
def test_an_object_is_made_shown_and_replaced_as_in_the_standard_library(
    kind: tuple[bool, bool], arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    results = []
    for made in (OURS[kind], THEIRS[kind]):
        one = outcome(lambda made=made: made(*arguments, **named))
        if isinstance(one, type):
            results.append(one)
            continue
        changed = replace(one, second="changed")
        results.append((repr(one), asdict(one), repr(changed), vars(changed)))
    assert results[0] == results[1]


@pytest.mark.parametrize("kind", OURS)
def test_equality_hash_and_frozen_fields(kind: tuple[bool, bool]) -> None:
    def seen(made: Any) -> list[Any]:
        one, same, other = made(1, "x", (), 5), made(1, "x", (), 6), made(2, "x", ())
        return [
            one == same,
            one == other,
            one == (1, "x", (), 5),
            outcome(lambda: hash(one) == hash(same)),
            outcome(lambda: setattr(one, "first", 3)),
            outcome(lambda: delattr(one, "first")),
            [entry.name for entry in fields(made)],
        ]

    assert seen(OURS[kind]) == seen(THEIRS[kind])


def test_default_lists_are_not_shared() -> None:
    made = OURS[True, True]
    made(1).third.append(5)
    assert made(1).third == []


@dataclass(frozen=True)
class Stored:
    """Found by its name in the module."""

    value: int


@dataclass(frozen=True)
class More(Stored):
    """A record of more fields."""

    other: int = 2


def test_records_are_pickled_and_inherited() -> None:
    assert pickle.loads(pickle.dumps(Stored(5))) == Stored(5)
    assert More(1) == More(1, 2) != Stored(1)
    with pytest.raises(FrozenInstanceError):
        More(1).other = 5  # type: ignore[misc]
