"""The findings of `rocescope doctor`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from ...analyzer.results.base import Record

SUDO: Final = "run with sudo"
NO_OWNERS: Final = "owner processes of some or all queue pairs are unknown"


class Check(Record, frozen=True):
    """One check."""

    name: str
    state: Literal["ok", "limited", "missing"]
    found: Annotated[str, Meta(description="what was found")]
    needed: Annotated[bool, Meta(description="without it there is no live capture")] = False
    meaning: Annotated[str | None, Meta(description="what does not work as a result")] = None
    remedy: Annotated[str | None, Meta(description="what to install or run")] = None


class Diagnosis(Record, frozen=True):
    """The result of `rocescope doctor`."""

    live_capture_works: bool
    checks: list[Check]
