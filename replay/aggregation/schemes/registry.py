"""The aggregation schemes by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ....analyzer.errors import UsageError
from ....analyzer.key_values import parse_options
from .atp import Atp
from .base import Scheme
from .esa import Esa
from .ideal import Ideal
from .none import NoAggregation
from .switchml import SwitchMl

SCHEMES: Mapping[str, Callable[[Mapping[str, str]], Scheme]] = {
    "switchml": SwitchMl,
    "atp": Atp,
    "esa": Esa,
    "ideal": Ideal,
    "none": NoAggregation,
}


def parse_schemes(specs: Sequence[str]) -> list[Scheme]:
    """Schemes of `NAME` or `NAME:key=value,...`; none given: all. UsageError for others."""
    found: list[Scheme] = []
    for spec in specs or tuple(SCHEMES):
        name, _, rest = spec.partition(":")
        if name not in SCHEMES:
            raise UsageError(f"there is no scheme {name!r}; there are {', '.join(SCHEMES)}")
        scheme = SCHEMES[name](parse_options(rest, f"scheme {name}"))
        if any(one.name == scheme.name for one in found):
            raise UsageError(f"scheme {scheme.name} is given twice")
        found.append(scheme)
    return found
