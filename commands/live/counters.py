"""`rocescope capture --counters`: flow counters in the kernel, read at intervals."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...analyzer.errors import UsageError
from ..options.inputs import STANDARD_OUTPUT
from ..options.output import write_results
from .capturing import Told, say, say_what, writable_later

if TYPE_CHECKING:
    from ...analyzer.results.analysis import Analysis
    from ...probes.counters.counters import CounterOptions, CounterSource

Format: TypeAlias = Literal["table", "json"]
_POLL_S = 0.05
_CHECK_EVERY_S = 1.0


class Counting:
    """Running counters on interfaces; `stop` ends them cleanly."""

    def __init__(
        self,
        interfaces: Sequence[str],
        options: CounterOptions,
        format: Format | None,
        write: Path | None,
        seconds: float | None,
        interval: float | None,
    ) -> None:
        self._interfaces, self._options = interfaces, options
        to_file = write is not None and write != STANDARD_OUTPUT
        self._write = write if to_file else None
        self._format = format or ("table" if write is None else "json")
        if to_file and self._format != "json":
            raise UsageError("--format cannot be combined with -w: --counters writes JSON to files")
        self._seconds, self._interval = seconds, interval
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End after one last reading."""
        self._stopping.set()

    def run(self) -> int:
        """Count until the end condition; returns the exit code."""
        from ...probes.counters.counters import CounterSource
        from ...probes.rights.dropping import become_unprivileged

        with (
            writable_later(self._write) as self._write,
            CounterSource(self._interfaces, self._options) as source,
        ):
            become_unprivileged(source.privileges())
            say_what(source, "counting")
            self._wait(source)
            source.detach()
            self._report(source, True)
        return 0

    def _wait(self, source: CounterSource) -> None:
        begin = checked = time.monotonic()
        notes = Told()
        notes.say(source.others.lines())
        read = begin
        while not self._stopping.is_set():
            now = time.monotonic()
            if self._seconds is not None and now - begin >= self._seconds:
                return
            if self._interval is not None and now - read >= self._interval:
                read += self._interval
                self._report(source, False)
            if now - checked >= _CHECK_EVERY_S:
                checked = now
                source.note()
                notes.say(source.others.lines())
                if len(source.gone()) == len(source.interfaces):
                    say("all interfaces have disappeared or lost their probes")
                    return
            self._stopping.wait(_POLL_S)

    def _report(self, source: CounterSource, last: bool) -> None:
        from ...probes.counters.results import analysis_of

        reading = source.read()
        analysis = analysis_of(source, reading)
        if last:
            say(
                f"{reading.total('counted')} packets counted,"
                f" {int(reading.lost_packets.sum())} of them missing from the flows, because"
                " entries were evicted"
            )
        self._print(analysis)

    def _print(self, analysis: Analysis) -> None:
        if self._format == "json":
            from ...report.files import encode

            write_results(encode(analysis, "json"), self._write)
            return
        from ...report.terminal.page import page_on
        from ...report.terminal.report import Report

        Report(analysis, page_on(sys.stdout)).print()
