"""Recordings around findings: captures as evidence, limited in size and number."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ..analyzer.errors import RocescopeError, UsageError
from ..analyzer.words import printable_json
from ..probes.capture_files import CaptureFiles, Rotation, names_of_series
from ..probes.file_maker import maker_for
from ..probes.file_maker_process import Use
from ..probes.live import LiveSource
from .findings import AgentFinding

# Which files of a ring of captures stay: those around findings, within a size.

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


_POLL_S = 0.2
_LARGEST_LOG = 16 << 20


class Recorder:
    """A ring of captures, in a thread; files around findings leave the ring and stay.

    Make it before privileges are given up, `start` it afterwards. `error` says why it has ended.
    """

    def __init__(self, source: LiveSource, folder: Path, keep_bytes: int) -> None:
        self.error = ""
        self.count = 0
        """Findings whose packets were recorded."""
        self._evidence = Evidence(keep_bytes)
        self._source, self._folder = source, folder
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._log: list[tuple[float, AgentFinding, list[Path]]] = []
        self._files_of: dict[tuple[str, str, str], list[Path]] = {}
        self._thread: threading.Thread | None = None
        self._closing = False
        self._begin()

    def _begin(self) -> None:
        folder, source = self._folder, self._source
        try:
            self._evidence.adopt(folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._log_fd = os.open(folder / LOG, flags, 0o644)
            if os.fstat(self._log_fd).st_size > _LARGEST_LOG:
                os.ftruncate(self._log_fd, 0)
        except OSError as error:
            what = (error.strerror or str(error)).lower()
            raise RocescopeError(f"cannot record to {folder}: {what}") from None
        self._stack.callback(os.close, self._log_fd)
        series = folder / SERIES
        maker = maker_for(folder, names_of_series(series), Use.SERIES)
        if maker is not None:
            self._stack.enter_context(maker)
        try:
            self._stack.enter_context(source)
            about = ["agent: a ring of packet headers around critical findings"]
            if source.options.filter:
                about.append(f"filter: {source.options.filter}")
            self._files = CaptureFiles(
                series,
                source.head(),
                source.loss_by_tap,
                Rotation(self._evidence.file_bytes, EVERY_S),
                about,
                maker=maker,
                surplus=self._evidence.surplus,
            )
        except BaseException:
            self._stack.close()
            raise

    def start(self) -> None:
        """Write from now on."""
        self._thread = threading.Thread(target=self._write, name="rocescope-record", daemon=True)
        self._thread.start()

    def record(self, finding: AgentFinding) -> None:
        """Keep the packets before and after this moment."""
        if self.error:
            return
        with self._lock:
            files = self._evidence.want()
            self.count += 1
            self._files_of[finding.kind, finding.interface, finding.direction] = files
            self._log.append((time.monotonic() + AFTER_S + EVERY_S, finding, files))

    def files_of(self, finding: AgentFinding) -> list[str]:
        """The files around the beginning of a finding."""
        key = (finding.kind, finding.interface, finding.direction)
        with self._lock:
            return [path.name for path in self._files_of.get(key, ())]

    def _write(self) -> None:
        try:
            for blocks in self._source.blocks(_POLL_S):
                with self._lock:
                    self._files.write(blocks)
                self._tell(time.monotonic())
        except (RocescopeError, OSError) as error:
            self.error = str(error)
        finally:
            if not self._closing:
                self.error = self.error or "the capture has ended"
            self._source.finish()

    def _tell(self, now: float) -> None:
        """Write findings whose files are complete to the log."""
        while self._log and self._log[0][0] <= now:
            _, finding, files = self._log.pop(0)
            with self._lock:
                named = [path.name for path in files]
            line = msgspec.structs.replace(finding, recordings=named)
            os.write(self._log_fd, printable_json(msgspec.json.encode(line)) + b"\n")

    def close(self) -> None:
        """End the capture; files that no finding needs are removed."""
        self._closing = True
        self._source.stop()
        if self._thread is not None:
            self._thread.join()
        try:
            self._tell(float("inf"))
            self._files.close()
            self._files.remove(self._evidence.unwanted(self._files.names))
        except (RocescopeError, OSError) as error:
            self.error = self.error or str(error)
        finally:
            self._stack.close()
