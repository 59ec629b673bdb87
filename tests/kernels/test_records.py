"""NamedTuple without checks, beside that of typing."""

from __future__ import annotations

import pickle
import typing

import pytest

from rocescope.kernels.records import NamedTuple


class Ours(NamedTuple):
    """A point."""

    x: int
    y: int = 5
    """With a default."""

    @property
    def total(self) -> int:
        return self.x + self.y


class Theirs(typing.NamedTuple):
    """A point."""

    x: int
    y: int = 5

    @property
    def total(self) -> int:
        return self.x + self.y


def test_the_class_is_the_same():
    assert Ours._fields == Theirs._fields
    assert Ours._field_defaults == Theirs._field_defaults
    assert (Ours.__name__, Ours.__module__, Ours.__doc__) == ("Ours", __name__, Theirs.__doc__)
    assert Ours.__annotations__ == {"x": "int", "y": "int"}
    assert issubclass(Ours, tuple)


def test_its_values_are_the_same():
    ours, theirs = Ours(1), Theirs(1)
    assert ours == theirs == (1, 5) and ours.total == theirs.total == 6
    assert ours._replace(y=2) == theirs._replace(y=2)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert pickle.loads(pickle.dumps(ours)) == ours
    kinds: list[typing.Any] = [Ours, Theirs]
    for made in kinds:
        with pytest.raises(TypeError):
            made()
        with pytest.raises(TypeError):
            made(1, z=2)
