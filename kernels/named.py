"""NamedTuple without its checks of annotations.

typing.NamedTuple compiles every annotation, which for the wide tuples of arrays that
kernels take adds up to a tenth of the start-up time. What it makes is the same otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple

    class _Declaration(type):
        """Makes a class statement with NamedTuple as its base declare a namedtuple."""

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
