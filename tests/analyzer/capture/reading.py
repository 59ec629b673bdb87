"""How the tests of this folder read: whole captures into plain tuples, streams in small bites."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rocescope.analyzer.capture.source import Capture, open_capture
from rocescope.analyzer.wire.packets import FrameBatch
from rocescope.analyzer.wire.taps import Taps


class Row(NamedTuple):
    """A frame as read."""

    number: int
    time_ns: int
    captured: int
    wire: int
    tap: int
    link_type: int
    offset: int
    data: bytes


def rows_of(batches: Iterable[FrameBatch]) -> list[Row]:
    """Every frame of `batches`; checks that each lies inside its buffer."""
    rows = []
    for batch in batches:
        assert len(batch) > 0
        for i in range(len(batch)):
            at, held = int(batch.offset[i]), int(batch.captured[i])
            assert 0 <= at and at + held <= len(batch.data)
            rows.append(
                Row(
                    batch.first_frame_number + i,
                    int(batch.time_ns[i]),
                    held,
                    int(batch.wire[i]),
                    int(batch.tap[i]),
                    int(batch.link_type[i]),
                    batch.base_offset + at,
                    batch.data[at : at + held].tobytes(),
                )
            )
    return rows


def read(path: Path, taps: Taps | None = None, **options: object) -> tuple[list[Row], Capture]:
    """All frames of a file, and the capture with its counts."""
    with open_capture(str(path), Taps() if taps is None else taps, **options) as capture:  # type: ignore[arg-type]
        return rows_of(capture.batches()), capture


class Bites:
    """A live byte stream that hands out `data` in pieces of the given sizes, over and over."""

    live = True

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._data = data
        self._at = 0
        self._sizes = sizes
        self._turn = 0

    def read_into(self, view: memoryview) -> int:
        size = self._sizes[self._turn % len(self._sizes)]
        self._turn += 1
        piece = self._data[self._at : self._at + min(size, len(view))]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def silent(self) -> bool:
        return True

    def close(self) -> None:
        pass
