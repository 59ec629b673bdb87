"""Tuples and records with named fields for arguments of kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

# NamedTuple without checks of annotations.
#
# typing.NamedTuple compiles every annotation; for the wide tuples of arrays of kernels this takes a
# tenth of the start-up time. The resulting class is otherwise the same.

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple

    class _Declaration(type):
        """Turns a class statement with the base NamedTuple into a namedtuple."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body.get("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for key, value in body.items():
                if key != "__module__":
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Declaration):
        """Base of a class statement whose annotations are the fields of a tuple."""


# Types for the records of structured arrays in kernels: fields by name.


class Record:
    """One element of a structured array inside a kernel; one subclass per dtype.

    It has no instances: it lets mypy distinguish the records of different arrays.
    """

    def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None: ...


Records: TypeAlias = Any
"""A structured array with elements as records in kernels; numpy's types treat them as arrays."""
