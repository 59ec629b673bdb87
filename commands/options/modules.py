"""Which module holds which command."""

from __future__ import annotations

from collections.abc import Mapping

MODULES: Mapping[str, str] = {
    "analyze": "analyze",
    "capture": "live.capture",
    "check": "check",
    "doctor": "live.doctor",
    "export": "export",
    "fabric": "replay.fabric",
    "generate": "replay.generate",
    "live": "live.live",
    "recover-seed": "replay.recover_seed",
    "replay": "replay.replay",
    "schema": "schema",
    "sweep": "replay.sweep",
    "tui": "tui",
}
"""Modules below `commands`, by command; the function has the name of the command."""
