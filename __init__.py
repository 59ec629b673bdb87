"""rocescope: what every RoCEv2 queue pair did, from packet headers.

    import rocescope

    result = rocescope.analyze("capture.pcap")
    result.flows.to_polars()

Nothing is loaded before it is used.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import replay
from .version import VERSION as __version__

if TYPE_CHECKING:
    from . import plots
    from .api import (
        Aggregation,
        Analysis,
        Fabric,
        Replay,
        Sweep,
        aggregate,
        analyze,
        fabric,
        live,
        packets,
        sweep,
    )

_API = (
    "Aggregation", "Analysis", "Fabric", "Replay", "Sweep",
    "aggregate", "analyze", "fabric", "live", "packets", "sweep",
)  # fmt: skip
__all__ = [
    "Aggregation",
    "Analysis",
    "Fabric",
    "Replay",
    "Sweep",
    "__version__",
    "aggregate",
    "analyze",
    "fabric",
    "live",
    "packets",
    "plots",
    "replay",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name == "plots":
        return import_module(f".{name}", __name__)
    if name not in _API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import api

    return getattr(api, name)


class _Room(ModuleType):
    """The room `rocescope.replay`, which is also the function of that name in the public API."""

    def __call__(self, *arguments: Any, **options: Any) -> Replay:
        from . import api

        return api.replay(*arguments, **options)


replay.__class__ = _Room


def __dir__() -> list[str]:
    return __all__
