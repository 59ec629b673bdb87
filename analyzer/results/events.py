"""Events."""

from __future__ import annotations

from .base import Record


class Event(Record, frozen=True):
    """Something worth a look, with where to find it."""

    time_ns: int
    kind: str
    flow: int | None
    frame_number: int | None
    tap: str | None
    text: str
