"""The findings of `rocescope doctor`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from ...analyzer.results.base import Record, about

SUDO: Final = "run with sudo"
NO_OWNERS: Final = "owner processes of some or all queue pairs are unknown"


class Check(Record, frozen=True):
    """One check."""

    name: str
    state: Literal["ok", "limited", "missing"]
    found: Annotated[str, about("what was found")]
    needed: Annotated[bool, about("without it there is no live capture")] = False
    meaning: Annotated[str | None, about("what does not work as a result")] = None
    remedy: Annotated[str | None, about("what to install or run")] = None


class Diagnosis(Record, frozen=True):
    """The result of `rocescope doctor`."""

    live_capture_works: bool
    checks: list[Check]
