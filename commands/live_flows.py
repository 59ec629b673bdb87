"""`rocescope trace --live` and `--follow`: captured flows, and events until Ctrl-C."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..analyzer.errors import RocescopeError, UsageError
from .options.capturing import Ending, ended_by_signals, said_if_slow, say, say_what
from .options.output import ReportOutput, write_results

if TYPE_CHECKING:
    from ..analyzer.jobs.job import Job
    from ..discovery.asking import Line, Run
    from ..discovery.dialects.dialect import Dialect
    from ..discovery.follow import Follow
    from ..discovery.port_counters import Reading
    from ..discovery.traffic import LiveTraffic
    from ..probes.live import LiveOptions
    from ..replay.fabrics.fabric import Fabric
    from ..replay.traffic.traffic import Traffic

_COMPILING = "still compiling kernels (first run only)"


@contextmanager
def captured(
    interfaces: Sequence[str],
    options: LiveOptions,
    fabric: Fabric,
    mapping: str,
    job: Job | None,
) -> Iterator[LiveTraffic]:
    """A capture that has begun."""
    from ..discovery.traffic import LiveTraffic
    from ..probes.live import LiveSource

    with ExitStack() as stack:
        with said_if_slow(_COMPILING):
            live = LiveTraffic(LiveSource(interfaces, options), fabric, mapping, job)
            stack.enter_context(live.source)
        yield live


def counted_flows(
    live: LiveTraffic,
    seconds: float | None,
    run: Run | None,
    dialects: Mapping[str, Dialect],
    fabric: Fabric,
) -> tuple[Traffic, Reading | None]:
    """The flows until Ctrl-C, or the end of the duration.

    run: also asks the switches for their port counters before and after; the growth is returned.
    """
    from ..discovery.dialects.linux import LINUX
    from ..discovery.dialects.registry import read_counters_now
    from ..discovery.port_counters import growth

    switches = fabric.nodes.names[: fabric.switches]
    dialects = dialects or dict.fromkeys(switches, LINUX)
    before = None if run is None else read_counters_now(run, dialects, switches)
    with ended_by_signals(live.source):
        say_what(live.source)
        live.run(Ending(live.source, seconds).check)
    traffic = live.traffic()
    if run is None or before is None:
        return traffic, None
    after = read_counters_now(run, dialects, switches)
    silent = dict.fromkeys([*before[1], *after[1]])
    warned = replace(traffic, warnings=(*traffic.warnings, *silent))
    return warned, growth(before[0], after[0])


def follow_live(
    live: LiveTraffic,
    line: Line,
    dialects: Mapping[str, Dialect],
    fabric: Fabric,
    seconds: float | None,
    top: int,
    to: ReportOutput,
) -> int:
    """Follow the flows of interfaces, and new ones when they appear."""
    flows = GrowingFlows(live, fabric)
    end = None if seconds is None else time.monotonic() + seconds
    try:
        traffic = flows.first(end)
        grow = partial(flows.pass_on, traffic)
        rest = None if end is None else max(0.0, end - time.monotonic())
        code = follow_fabric(line, dialects, fabric, traffic, rest, top, to, grow)
    finally:
        flows.stop()
    for text in live.missing():
        say(text)
    flows.check()
    return code


class GrowingFlows:
    """Captures in its own thread, and passes on new flows."""

    def __init__(self, live: LiveTraffic, fabric: Fabric) -> None:
        self._live, self._fabric = live, fabric
        self._lock = threading.Lock()
        self._latest: Traffic | None = None
        self._follow: Follow | None = None
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._problem: RocescopeError | None = None

    def first(self, end: float | None) -> Traffic:
        """The first flows between hosts of the fabric.

        end: in seconds of time.monotonic(). UsageError if there are none until then or Ctrl-C.
        """
        with ended_by_signals(self._live.source):
            say_what(self._live.source)
            say(f"waiting for flows between hosts of {self._fabric.name}")
            self._thread.start()
            while self._thread.is_alive() and self._latest is None:
                self._thread.join(0.05)
                if end is not None and time.monotonic() > end:
                    self._live.source.stop()
        self.check()
        if self._latest is None:
            names = ", ".join(port.label for port in self._live.source.interfaces)
            raise UsageError(f"no flow between hosts of {self._fabric.name} on {names}: see --map")
        return self._latest

    def pass_on(self, known: Traffic, follow: Follow) -> None:
        """Give all later traffic to `follow`, and end it if the capture fails."""
        with self._lock:
            self._follow = follow
            if self._latest is not None and len(self._latest) > len(known):
                follow.add(self._latest)
            if self._problem is not None:
                follow.stop()

    def stop(self) -> None:
        """End the capture."""
        self._live.source.stop()
        self._thread.join()

    def check(self) -> None:
        """RocescopeError if the capture failed."""
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            self._live.run(Ending(self._live.source, None).check, self._grown)
        except RocescopeError as error:
            self._failed(error)
        except Exception as error:  # the thread would end unnoticed
            text = " ".join(f"{type(error).__name__}: {error}".split())
            self._failed(RocescopeError(f"the capture failed: {text}"))

    def _failed(self, problem: RocescopeError) -> None:
        with self._lock:
            self._problem = problem
            if self._follow is not None:
                self._follow.stop()

    def _grown(self, traffic: Traffic) -> None:
        if not ((traffic.src_host >= 0) & (traffic.dst_host >= 0)).any():
            return
        with self._lock:
            self._latest = traffic
            if self._follow is not None:
                self._follow.add(traffic)


def follow_fabric(
    line: Line,
    dialects: Mapping[str, Dialect],
    fabric: Fabric,
    traffic: Traffic,
    seconds: float | None,
    top: int,
    to: ReportOutput,
    growing: Callable[[Follow], None] | None = None,
) -> int:
    """Print events until Ctrl-C or the end of the duration; then a summary.

    growing: called once it follows; adds the traffic whenever it has new flows.
    """
    from ..discovery.follow import Follow
    from ..report.files import encode_json
    from ..report.terminal.discovery import FollowPrinter

    following = Follow(line, dialects, fabric, traffic)
    printer = FollowPrinter(sys.stdout, top, to.color) if to.chosen() == "table" else None
    last = None
    with ended_by_signals(following):
        for event in following.events(seconds):
            last = event
            if event.kind == "began" and growing is not None:
                growing(following)
            if printer is None:
                write_results(encode_json(event), None)
            elif event.kind != "ended":
                printer.event(event)
    if printer is not None and last is not None:
        printer.summary(last, following.summary())
    return 0
