"""Which files of a ring of captures stay: those around findings, within a size."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..analyzer.errors import UsageError

SERIES: Final = "rocescope-agent.pcapng"
LOG: Final = "rocescope-agent.findings.jsonl"
BEFORE_S: Final = 30.0
AFTER_S: Final = 30.0
EVERY_S: Final = 10.0
"""Time of a file."""
_FILES = 40
"""Files in the size of the folder: a file has at most this part of it."""
LEAST_BYTES: Final = 40 << 20
_NAME = re.compile(r"rocescope-agent_\d{5,}_\d{14}\.pcapng")


@dataclass(slots=True)
class _Wanted:
    """A finding whose files are kept."""

    from_s: float
    until_s: float
    files: list[Path]


class Evidence:
    """The files of the ring and the findings that need them.

    keep_bytes: of all files in the folder, with those of earlier runs.
    """

    def __init__(self, keep_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        if keep_bytes < LEAST_BYTES:
            raise UsageError(f"--keep must be {LEAST_BYTES >> 20}MiB or more")
        self.file_bytes = keep_bytes // _FILES
        self._left = keep_bytes
        self._clock = clock
        self._began: dict[Path, float] = {}
        self._wanted: list[_Wanted] = []

    def adopt(self, folder: Path) -> None:
        """Count the files of earlier runs; remove the oldest beyond half of the size."""
        files = []
        for path in folder.iterdir():
            if _NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        files.sort()
        total = sum(size for _, size, _ in files)
        while total > self._left // 2:
            _, size, path = files.pop(0)
            path.unlink(missing_ok=True)
            total -= size
        self._left -= total

    def want(self) -> list[Path]:
        """Keep what is recorded around this moment; the list grows as files begin."""
        now = self._clock()
        wanted = _Wanted(now - BEFORE_S, now + AFTER_S, [])
        wanted.files += [path for path in self._began if self._ended(path) >= wanted.from_s]
        self._wanted.append(wanted)
        return wanted.files

    def _ended(self, path: Path) -> float:
        """When a file ended: when the next one began."""
        times = list(self._began.values())
        after = list(self._began).index(path) + 1
        return times[after] if after < len(times) else self._clock()

    def surplus(self, sizes: Mapping[Path, int]) -> Iterable[Path]:
        """The files to remove, when the last of these begins."""
        now = self._clock()
        *older, current = sizes
        self._began[current] = now
        for wanted in self._wanted:
            if now <= wanted.until_s:
                wanted.files.append(current)
        kept = {path for wanted in self._wanted for path in wanted.files}
        gone = [p for p in older if p not in kept and self._ended(p) < now - BEFORE_S]
        total = sum(sizes.values()) - sum(sizes[path] for path in gone)
        for path in older:
            if total + self.file_bytes <= self._left:
                break
            if path not in gone:
                gone.append(path)
                total -= sizes[path]
        self._forget(gone)
        return gone

    def unwanted(self, names: Iterable[Path]) -> list[Path]:
        """Files that no finding needs."""
        kept = {path for wanted in self._wanted for path in wanted.files}
        return [path for path in names if path not in kept]

    def _forget(self, gone: Iterable[Path]) -> None:
        for path in gone:
            self._began.pop(path, None)
            for wanted in self._wanted:
                if path in wanted.files:
                    wanted.files.remove(path)
        self._wanted = [w for w in self._wanted if w.files or self._clock() <= w.until_s]
