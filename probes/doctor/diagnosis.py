"""What `rocescope doctor` finds."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from ...analyzer.results.base import Record

SUDO: Final = "run with sudo"
NO_OWNERS: Final = "the processes that own queue pairs are not named, or fewer of them"


class Check(Record, frozen=True):
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "limited", "missing"]
    found: Annotated[str, Meta(description="what is there")]
    needed: Annotated[bool, Meta(description="without it there is no live capture")] = False
    meaning: Annotated[str | None, Meta(description="what does not work because of it")] = None
    remedy: Annotated[str | None, Meta(description="what to install or run")] = None


class Diagnosis(Record, frozen=True):
    """What `rocescope doctor` found."""

    live_capture_works: bool
    checks: list[Check]
