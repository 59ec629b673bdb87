"""rocescope: what every RoCEv2 queue pair did, from packet headers.

    import rocescope

    result = rocescope.analyze("capture.pcap")
    result.flows.to_polars()

Nothing is loaded before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import VERSION as __version__

if TYPE_CHECKING:
    from .api import Analysis, Fabric, Replay, analyze, fabric, live, packets, replay

_API = ("Analysis", "Fabric", "Replay", "analyze", "fabric", "live", "packets", "replay")
"""What `api` holds; importing it also lets the package `replay` be called."""
__all__ = [
    "Analysis",
    "Fabric",
    "Replay",
    "__version__",
    "analyze",
    "fabric",
    "live",
    "packets",
    "replay",
]


def __getattr__(name: str) -> Any:
    if name not in _API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return __all__
