"""In-network aggregation of the session's captures, or of jobs that are asked for.

Everything runs in one thread; `view` may be read at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ....analyzer.errors import UsageError
from ....analyzer.pipeline.options import AnalyzeOptions
from ....replay.aggregation.request import AggregationRequest, PreparedAggregation
from ....replay.compare.packets import COMPILING
from ....replay.compare.request import once, sorted_out
from ....replay.results.aggregation import AggregationResult
from .background import Background

_LISTS = ("jobs", "memory", "scheme")
_SINGLE = ("jitter", "loss", "buffer", "ecn", "silence", "window", "runs")


@dataclass(frozen=True, slots=True)
class AggregationView:
    """Progress and result."""

    words: str = ""
    """Fabric, host map and options, as they are typed; empty before the first run."""
    running: str = ""
    """The step in progress; empty if there is none."""
    done: float = 0.0
    """Progress of this step, 0 to 1."""
    error: str = ""
    result: AggregationResult | None = None


class Aggregations(Background[AggregationView]):
    """Comparisons of schemes, one at a time."""

    def __init__(self, paths: Sequence[str], options: AnalyzeOptions | None = None) -> None:
        """options: options for reading the captures, as for their analysis."""
        super().__init__("rocescope-aggregation", AggregationView())
        reading = options or AnalyzeOptions()
        self._captured = AggregationRequest(
            "",
            tuple(paths),
            tap_names=reading.tap_names,
            map="order",
            filter=reading.filter,
            concat=reading.concat,
            udp_ports=tuple(reading.udp_ports),
        )
        self._prepared: PreparedAggregation | None = None

    def set_words(self, text: str) -> None:
        """`FABRIC [MAP] [--jobs J]... [--memory N]... [--scheme S]...` and other options of the
        command. Without --jobs the jobs are those of the captures. UsageError as on the command
        line."""
        prepared = PreparedAggregation(with_words(self._captured, text))
        self.stop()
        self._prepared = prepared
        self.view = AggregationView(words=text)

    def run(self) -> None:
        """Run the schemes."""
        prepared = self._prepared
        if prepared is None or self.running:
            return
        self._stopping.clear()
        self._tell(running="reading the captures", done=0.0, error="")

        def ran(step: str, done: int, total: int) -> None:
            of_runs = f"run {min(done + 1, total)} of {total}"
            self._tell(running=step if step == COMPILING else of_runs, done=done / total)

        def work() -> None:
            prepared.read(self._tell_read)
            self._tell(running="schemes", done=0.0)
            with suppress(KeyboardInterrupt):  # stopped
                self._tell(result=prepared.run(ran, self._stopping))

        self._start(work)


def with_words(captured: AggregationRequest, text: str) -> AggregationRequest:
    """The request of a line; see `Aggregations.set_words`."""
    places, given = sorted_out(text, (*_LISTS, *_SINGLE))
    for name in _SINGLE:
        once(name, given.get(name, ()))
    single: dict[str, Any] = {
        name: _single(name, values[0]) for name, values in given.items() if name in _SINGLE
    }
    request = replace(
        captured,
        fabric=places[0],
        map=places[1] if len(places) > 1 else captured.map,
        jobs=tuple(given.get("jobs", ())),
        memory=tuple(_parse_whole("memory", size) for size in given.get("memory", ["4096"])),
        schemes=tuple(given.get("scheme", ())),
        **single,
    )
    if request.jobs:
        request = replace(request, captures=(), map="exact", filter=None, concat=False)
    return request


def _parse_whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise UsageError(f"--{name} is a whole number, not {text!r}")
    return int(text)


def _single(name: str, text: str) -> int | float | str:
    if name in ("window", "runs"):
        return _parse_whole(name, text)
    if name in ("jitter", "loss"):
        try:
            return float(text)
        except ValueError:
            raise UsageError(f"--{name} is a share, not {text!r}") from None
    return text
