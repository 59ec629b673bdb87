"""Which screens there are; each is imported when it is first shown."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from textual.screen import Screen

SCREENS = {
    "diagnosis": "DiagnosisScreen",
    "evidence": "EvidenceScreen",
    "qps": "QpsScreen",
    "hops": "HopsScreen",
    "paths": "PathsScreen",
    "reorder": "ReorderScreen",
    "recovery": "RecoveryScreen",
    "ranks": "RanksScreen",
    "packets": "PacketsScreen",
    "events": "EventsScreen",
    "replay": "ReplayScreen",
    "aggregation": "AggregationScreen",
    "fabric": "FabricScreen",
    "doctor": "DoctorScreen",
}
"""Module under `screens` and class of each screen."""
_OF_REPLAYS = {"replay", "aggregation", "fabric"}
"""Screens whose modules take some 40 MB."""


def modes() -> dict[str, str | Callable[[], Screen[None]]]:
    """The modes of the app: how to make each screen."""
    return {name: _maker(name, made) for name, made in SCREENS.items()}


def prepared(shown: str, can_replay: bool) -> list[str]:
    """Screens to make before their first visit: not the one shown, nor any without a use."""
    left_out = {shown} if can_replay else {shown, *_OF_REPLAYS}
    return [name for name in SCREENS if name not in left_out]


def _maker(module: str, name: str) -> Callable[[], Screen[None]]:
    def make() -> Screen[None]:
        screen: Screen[None] = getattr(import_module(f"{__package__}.{module}"), name)()
        return screen

    return make
