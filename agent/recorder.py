"""Packet headers around critical findings, in files that are there when somebody looks."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec

from ..analyzer.errors import RocescopeError
from ..analyzer.words import printable_json
from ..probes.files.capture_files import CaptureFiles, Rotation, names_of_series
from ..probes.live import LiveSource
from ..probes.rights.file_maker import maker_for
from ..probes.rights.file_maker_process import Use
from .evidence import AFTER_S, EVERY_S, LOG, SERIES, Evidence
from .results import AgentFinding

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
