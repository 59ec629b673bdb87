"""Events."""

from __future__ import annotations

from .base import Record


class Event(Record, frozen=True):
    """A notable event and its place in the capture."""

    time_ns: int
    kind: str
    flow: int | None
    frame_number: int | None
    tap: str | None
    text: str
