"""The aggregation schemes by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ....analyzer.errors import UsageError
from ....analyzer.spec import parse_options
from ....analyzer.words import choices
from ...results.aggregation import ALL_REDUCES
from .a2tp import a2tp
from .atp import atp
from .base import AllReduce, Scheme
from .esa import esa
from .ideal import ideal
from .none import no_aggregation
from .options import Options
from .switchml import switchml

SCHEMES: Mapping[str, Callable[[Mapping[str, str]], Scheme]] = {
    "switchml": switchml,
    "atp": atp,
    "esa": esa,
    "a2tp": a2tp,
    "ideal": ideal,
    "none": no_aggregation,
}


def parse_schemes(specs: Sequence[str]) -> list[Scheme | AllReduce]:
    """Schemes of `NAME` or `NAME:key=value,...`; none given: all. UsageError for others."""
    found: list[Scheme | AllReduce] = []
    every = (*SCHEMES, *ALL_REDUCES)
    for spec in specs or every:
        name, _, rest = spec.partition(":")
        if name not in every:
            raise UsageError(f"there is no scheme {name!r}; {choices(name, every)}")
        given = parse_options(rest, f"scheme {name}", len(name) + 2)
        scheme: Scheme | AllReduce
        if name in SCHEMES:
            scheme = SCHEMES[name](given)
        else:
            scheme = AllReduce(name, Options(name, given, {}).values)
        if any(one.name == scheme.name for one in found):
            raise UsageError(f"scheme {scheme.name} is given twice")
        found.append(scheme)
    return found
