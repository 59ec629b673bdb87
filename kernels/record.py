"""dataclass without code generation.

`dataclasses.dataclass` compiles six functions per class, half a millisecond for ten fields; the
records of a replay together take as long as a small replay. Here all classes share the functions.
`dataclasses.fields`, `replace` and `asdict` work as usual. Not supported: slots, order, InitVar and
arguments only by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from dataclasses import MISSING, FrozenInstanceError, fields
    from dataclasses import dataclass as _dataclass

    def dataclass(cls=None, /, *, frozen=False, eq=True):
        """Make a class with annotations a dataclass."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq)
        _dataclass(init=False, repr=False, eq=False)(cls)
        every = fields(cls)
        cls.__init__ = _init(every, hasattr(cls, "__post_init__"))
        cls.__repr__ = _repr
        if frozen:
            cls.__setattr__, cls.__delattr__ = _set, _delete
        if eq:
            compared = [field.name for field in every if field.compare]
            hashed = [f.name for f in every if (f.compare if f.hash is None else f.hash)]
            cls.__eq__ = _eq(compared)
            cls.__hash__ = _hash(hashed) if frozen else None
        return cls

    def _init(every, post):
        names = [field.name for field in every if field.init]
        given = {f.name: f.default for f in every if f.default is not MISSING}
        made = [(f.name, f.default_factory) for f in every if f.default_factory is not MISSING]
        required = [name for name in names if name not in given and name not in dict(made)]
        known = frozenset(names)

        def init(self, *arguments, **named):
            values = dict(zip(names, arguments, strict=False))
            if len(arguments) > len(names) or not named.keys() <= known - values.keys():
                raise TypeError(f"{type(self).__name__} takes {', '.join(names)}, each once")
            values |= named
            if missing := [name for name in required if name not in values]:
                raise TypeError(f"{type(self).__name__} needs {', '.join(missing)}")
            fresh = {name: make() for name, make in made if name not in values}
            self.__dict__.update(given | fresh | values)
            if post:
                self.__post_init__()

        return init

    def _repr(self):
        values = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
        return f"{type(self).__qualname__}({', '.join(values)})"

    def _set(self, name, value):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _delete(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def _eq(names):
        def equal(self, other):
            if other.__class__ is not self.__class__:
                return NotImplemented
            return [getattr(self, n) for n in names] == [getattr(other, n) for n in names]

        return equal

    def _hash(names):
        def hashed(self):
            return hash(tuple([getattr(self, name) for name in names]))

        return hashed
