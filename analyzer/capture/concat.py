"""A rotated series of capture files, read as one capture."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, Self, TypeVar

from ...kernels.named import NamedTuple
from ..errors import UsageError
from ..wire.frames import FrameBatch
from ..wire.taps import Taps
from .pcapng import SharedTaps
from .source import Capture, open_capture


class Part(NamedTuple):
    """One file of a series."""

    path: str
    first_frame_number: int
    """Number of the file's first frame in the series."""


class SeriesFile(NamedTuple):
    """One file of a series before it is read."""

    path: str
    format: str
    compression: str | None
    first_time_ns: int
    """Below all times when the file has no frame."""
    bytes: int
    """As stored."""


class ConcatenatedCapture:
    """The files of a series in sequence, as one `Capture`.

    Frame numbers continue from file to file, so that a tap and a frame number identify one frame.
    `parts` gives its file; offsets count within that file. Interfaces with the same name and link
    type are one tap.
    """

    _one_name = False
    """See `open_capture`."""

    def __init__(self, files: Sequence[SeriesFile], taps: Taps, batch_frames: int) -> None:
        self.paths = [file.path for file in files]
        self.format = _common([file.format for file in files])
        """The format of the files, "mixed" if they differ."""
        self.compression = _common([file.compression for file in files])
        """Their compression, None for none, "mixed" if they differ."""
        names = [os.path.basename(path) for path in self.paths]
        self.tap_name = names[0] if names else ""
        self.name = f"{names[0]} to {names[-1]}" if len(names) > 1 else self.tap_name
        self.total_bytes: int | None = sum(file.bytes for file in files)
        """Sizes of all files as stored."""
        self.parts: list[Part] = []
        """The files read so far."""
        self._taps = taps
        self._batch_frames = batch_frames
        self._shared: SharedTaps = {}
        self._captures: list[Capture] = []
        self._out_of_order_between = 0
        self._stopped = False

    def batches(self) -> Iterator[FrameBatch]:
        """Every frame of the series; to be iterated once. See `Capture.batches`."""
        last_ns: int | None = None
        for path in self.paths:
            if self._stopped:
                return
            before = self.frames
            self.parts.append(Part(path, before + 1))
            with self._open(path) as capture:
                self._captures.append(capture)
                for batch in self._frames_of(capture):
                    if last_ns is not None and batch.time_ns[0] < last_ns:
                        if batch.first_frame_number == 1:
                            self._out_of_order_between += 1
                    last_ns = int(batch.time_ns[-1])
                    yield replace(batch, first_frame_number=batch.first_frame_number + before)

    def _open(self, path: str) -> Capture:
        return open_capture(
            path,
            self._taps,
            batch_frames=self._batch_frames,
            shared=self._shared,
            tap_name=self.tap_name,
            one_name=self._one_name,
        )

    def _frames_of(self, capture: Capture) -> Iterator[FrameBatch]:
        return capture.batches()

    def stop(self) -> None:
        """End after the current file."""
        self._stopped = True

    def close(self) -> None:
        """Release the current file."""
        if self._captures:
            self._captures[-1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def warnings(self) -> list[str]:
        """The warnings of all files read so far."""
        return [line for capture in self._captures for line in capture.warnings]

    @property
    def owner_comments(self) -> list[str]:
        """Comments of all files read so far that name owners of queue pairs."""
        return [line for capture in self._captures for line in capture.owner_comments]

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, as stored."""
        return sum(capture.bytes_read for capture in self._captures)

    @property
    def frames(self) -> int:
        """Frames read so far."""
        return sum(capture.frames for capture in self._captures)

    @property
    def out_of_order_frames(self) -> int:
        """Frames with a capture time below that of the previous frame, also across files."""
        within = sum(capture.out_of_order_frames for capture in self._captures)
        return within + self._out_of_order_between

    @property
    def truncated_frames(self) -> int:
        """See `Capture.truncated_frames`."""
        return sum(capture.truncated_frames for capture in self._captures)

    @property
    def damaged_places(self) -> int:
        """See `Capture.damaged_places`."""
        return sum(capture.damaged_places for capture in self._captures)


def concatenated(
    paths: Sequence[str], taps: Taps, *, batch_frames: int = 1 << 17
) -> ConcatenatedCapture:
    """The files of a rotated series as one capture, in the order of their first frames.

    Files that begin at the same time keep their order, files without frames come first.
    Raises UnreadableInput if one of them cannot be read, UsageError for standard input, a pipe
    or no file.
    """
    check_files(paths, "--concat")
    files = sorted((look(path) for path in paths), key=lambda file: file.first_time_ns)
    return ConcatenatedCapture(files, taps, batch_frames)


def check_files(paths: Sequence[str], option: str) -> None:
    """UsageError for standard input, a pipe or no file: the files of a series are opened twice."""
    if not paths or "-" in paths:
        raise UsageError(f"{option} joins files and cannot read standard input: name the files")
    for path in paths:
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            raise UsageError(f"{option} joins files and cannot read the pipe {path}: name files")


def look(path: str) -> SeriesFile:
    """What its beginning tells; UnreadableInput if it cannot be read."""
    with open_capture(path, Taps(), batch_frames=1) as capture:
        first = next(capture.batches(), None)
        time_ns = -(1 << 63) if first is None else int(first.time_ns[0])
        bytes = capture.total_bytes or 0
        return SeriesFile(path, capture.format, capture.compression, time_ns, bytes)


Value = TypeVar("Value", bound=str | None)


def _common(values: Sequence[Value]) -> Value | Literal["mixed"]:
    return values[0] if len(set(values)) == 1 else "mixed"
