"""The lines of log files, compressed or not, in constant memory."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from ..capture.bytestream import RawStream, compression
from ..errors import UsageError

if TYPE_CHECKING:
    from ..capture.decompress import DecompressedStream

_PIECE_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 14
_MAGIC_BYTES = 16
_ROTATED = re.compile(
    r"(.+?)(?:\.(\d{1,9})|-(\d{8})(?:-?\d{2,10})?)?(?:\.(?:gz|zst|xz|bz2|lz4))?", re.DOTALL
)


def named(patterns: Sequence[str]) -> tuple[str, ...]:
    """The files that patterns name, sorted: rotated parts of a log are in order of their age.

    Of what a wildcard finds only regular files count: a pipe of somebody else has no end.
    UsageError for a pattern without a file, and for a device, which has no end either.
    """
    paths: dict[str, None] = {}
    for pattern in patterns:
        names = oldest_first(glob.glob(pattern, recursive=True)) or glob.glob(glob.escape(pattern))
        names = [
            path
            for path in names
            if os.path.isfile(path) or (path == pattern and not os.path.isdir(path))
        ]
        if not names:
            raise UsageError(f"--nccl-log: no file is named {pattern}")
        for path in names:
            if _is_device(path):
                raise UsageError(f"--nccl-log: {path} is a device: give files, pipes or folders")
        paths.update(dict.fromkeys(names))
    return tuple(paths)


def _is_device(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:  # reading it says why
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def oldest_first(paths: Iterable[str]) -> list[str]:
    """Paths in order of their names; parts that logrotate makes (job.log.2.gz, job.log.1, job.log;
    job.log-20261123, job.log) in order of their age."""

    def age(path: str) -> tuple[str, bool, int, str]:
        match = _ROTATED.fullmatch(path)
        assert match is not None
        base, number, date = match.groups()
        return base, not (number or date), int(date or -int(number or 0)), path

    return sorted(paths, key=age)


def lines(path: str) -> Iterator[bytes]:
    """The complete lines of a file without their ends; errors as `open_capture`.

    Lines beyond LONGEST_LINE_BYTES and a last line without an end say nothing for certain: they are
    left out.
    """
    raw = RawStream(path)
    kind = compression(raw.peek(_MAGIC_BYTES))
    stream: RawStream | DecompressedStream = raw
    if kind is not None:
        from ..capture.decompress import DecompressedStream  # its libraries load slowly

        stream = DecompressedStream(raw, kind)
    with closing(stream):
        piece = memoryview(bytearray(_PIECE_BYTES))
        rest, too_long = b"", False
        while got := stream.read_into(piece):
            first, *others = bytes(piece[:got]).split(b"\n")
            rest = b"" if too_long else rest + first
            if others:
                if not too_long and len(rest) <= LONGEST_LINE_BYTES:
                    yield rest
                *complete, rest = others
                yield from (line for line in complete if len(line) <= LONGEST_LINE_BYTES)
                too_long = False
            if len(rest) > LONGEST_LINE_BYTES:
                rest, too_long = b"", True
