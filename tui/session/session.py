"""The headless core of the terminal UI: data, filter, selection and marks, without screens.

A feed (captures, live probes) is read in its own thread; `snapshot` may be
called from another thread at any time and returns frozen columns. Screens draw
these and change the session through its methods.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from ...analyzer.errors import RocescopeError, UsageError
from ...analyzer.filtering.compiler import Ranks
from ...analyzer.measures.spraying import entropy_name
from ...analyzer.pipeline.options import AnalyzeOptions
from ...analyzer.pipeline.pipeline import Pipeline
from ...analyzer.pipeline.threads import give_back_freed
from ...analyzer.results.analysis import Analysis
from ...analyzer.results.base import Event
from ...analyzer.results.flow import Flow
from ...analyzer.statistics.per_flow import Kept
from ...analyzer.track import state as st
from ...analyzer.words import printable
from ...kernels.kernel import Bools
from .columns import (
    MrcView,
    RateMeter,
    flow_bins,
    flow_columns,
    path_columns,
    timeline,
    usage_copy,
    with_hops,
)
from .diagnosing import Diagnosing, Marks
from .feeds import CaptureFeed, Feed
from .history import STEP_NS, History, as_then, between
from .judged import Judged
from .snapshot import FlowKey, Snapshot, SourceState, kept_events
from .words import analyze_command, wireshark_filter

if TYPE_CHECKING:
    from .flow_filter import FlowFilter

CLOSING_S = 3.0
HURRIED_FROM = 0.25
"""Used share of the buffer of unmeasured packets from which screens are drawn less often."""
LONGEST_NS = 60_000_000_000
"""Of the windows of a live session."""

MakeFeed = Callable[[str | None], Feed]
"""Opens a feed with a packet filter."""


class Taken:
    """State between snapshots of one feed, events, rates, MRC: the next feed begins anew."""

    def __init__(self, feed: Feed | None = None) -> None:
        self.feed = feed
        self.rates = RateMeter()
        self.mrc = MrcView()
        self._events: list[Event] = []
        self._cm_events: list[Event] = []

    def update(self, pipeline: Pipeline, running: bool) -> int:
        """Take the new events while the engine is paused; returns the number of omitted events."""
        measuring = pipeline.measuring
        used = measuring.tracker.state.used
        have, known = int(used[st.USED_EVENTS]), len(self._events)
        if have > known:
            self._events += pipeline.glance().events_between(known, have)
        if len(measuring.cm.messages) > len(self._cm_events):
            self._cm_events = pipeline.glance().cm_events()
        self.mrc.update(measuring, running, pipeline.glance)
        return int(used[st.OMITTED_EVENTS])

    def keep(self, kept: Kept) -> None:
        """Only these flows are left in the feed."""
        self.rates.keep(kept)
        self.mrc = MrcView()
        self._events = list(kept_events(self._events, kept))

    def events(self) -> tuple[Event, ...]:
        """All of them in order of time."""
        together = self._cm_events + self._events + self.mrc.events
        return tuple(sorted(together, key=attrgetter("time_ns")))


class Session:
    """One source of packets, with the user's filter, selection and marks."""

    def __init__(
        self,
        make_feed: MakeFeed,
        name: str,
        kind: str,
        paths: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.paths = tuple(paths)
        self.marks = Marks()
        self.selected: FlowKey | None = None
        self.filter: FlowFilter | None = None
        self.packet_filter = ""
        self.window: tuple[int, int] | None = None
        """Only packets of this time span, ns since the epoch; None: all."""
        self._make_feed = make_feed
        self._clock = clock
        self._feed: Feed | None = None
        self._thread: threading.Thread | None = None
        self.options = AnalyzeOptions()
        """Options for reading files."""
        self.name, self.kind = printable(name), kind
        self._source = SourceState(name, kind)
        self._error = ""
        self._taken = Taken()
        self._seen: tuple[Feed | None, int, bool, str] = (None, 0, False, "")
        """What `_reading` was at the last snapshot."""
        self._whole: tuple[int, int] | None = None
        self._generation = 0
        self._at_close: list[Callable[[], None]] = []
        self.diagnosing = Diagnosing(clock)
        self.history = History()
        """Of a live session."""
        self.looking_at: int | None = None
        """In a live session: the displayed time, ns since the epoch; None: live."""
        self.until_now = False
        """Whether `focus` covers more than the displayed time."""
        self._keep_record = False
        self.length_ns: int | None = None
        """In a live session: length of the window before that time; None: all."""

    @classmethod
    def open(
        cls,
        paths: Sequence[str],
        options: AnalyzeOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Session:
        """A session on capture files; `start` starts to read them."""
        base = options or AnalyzeOptions()

        def make(keep: str | None) -> Feed:
            together = " and ".join(f"({t})" for t in (base.filter, keep) if t)
            return CaptureFeed(
                paths, replace(base, filter=together or None, ranks=session.known_ranks())
            )

        name = paths[0].rpartition("/")[2] if len(paths) == 1 else f"{len(paths)} captures"
        session = cls(make, name, "capture", paths, clock)
        session.options = base
        return session

    # --- reading -------------------------------------------------------------

    def start(self) -> None:
        """Start to read, or restart after a change of the packet filter or the time window."""
        self.stop()
        self._error, self.looking_at = "", None
        self.diagnosing.begin()
        thread = threading.Thread(
            target=self._read, args=(self._generation,), name="rocescope-session", daemon=True
        )
        self._thread = thread
        thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Stop reading, wait at most `timeout` seconds; results so far stay."""
        self._generation += 1  # keeps a reader without a feed from starting
        thread, feed = self._thread, self._feed
        if feed is not None and thread is not None and thread.is_alive():
            feed.stop()
        if thread is not None:
            thread.join(timeout)
            if not thread.is_alive():
                self._thread = None

    def close(self) -> None:
        """End reading and release files and probes.

        Does not wait for kernels in compilation; the thread is a daemon.
        """
        self.stop(CLOSING_S)
        if self._feed is not None and not self.running:
            self._feed.close()
            self._feed = None
        self._finish()

    def halt(self) -> None:
        """Detach the probes, or stop reading; results so far stay.

        Packets captured until then are still read; a second call does not wait for that.
        """
        if self._at_close:
            self._finish()
            self.wait()
        self.stop()

    def _finish(self) -> None:
        while self._at_close:
            self._at_close.pop()()

    def on_close(self, work: Callable[[], None]) -> None:
        """Register a call for the end of the session or the detachment of its probes."""
        self._at_close.append(work)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until everything is read; False on timeout."""
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.running

    @property
    def running(self) -> bool:
        """Whether packets are still being read."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def hurried(self) -> bool:
        """Whether packets arrive faster than they are measured; screens then draw less often."""
        return self._feed is not None and self._feed.backlog() > HURRIED_FROM

    @property
    def has_news(self) -> bool:
        """Whether reading began or ended, or packets were measured, since the last snapshot."""
        return self._reading() != self._seen

    def _reading(self) -> tuple[Feed | None, int, bool, str]:
        feed = self._feed
        batches = 0 if feed is None else feed.pipeline.measuring.batches
        return feed, batches, self.running, self._error

    def _read(self, generation: int) -> None:
        try:
            feed = self._make_feed(self._keep())
            if self._feed is not None:
                self._feed.close()
            self._feed = feed
            if generation == self._generation:
                feed.read()
        except RocescopeError as error:
            self._error = str(error)
        except Exception as error:  # a vanished file, a failed probe: the screens must continue
            self._error = f"{type(error).__name__}: {' '.join(str(error).split())}"

    def _keep(self) -> str | None:
        parts = [f"({self.packet_filter})"] if self.packet_filter else []
        if self.window is not None:
            low, high = (f"{t // 10**9}.{t % 10**9:09d}" for t in self.window)
            parts.append(f"frame.time_epoch in {{{low}..{high}}}")
        return " and ".join(parts) or None

    # --- settings of the user ---------------------------------------------------

    def set_filter(self, text: str) -> bool:
        """Filter flows or packets; True if packets are read again. UsageError if it is invalid."""
        from .flow_filter import (
            FlowFilter,
            needs_packets,  # loads a grammar
        )

        text = text.strip()
        if text and needs_packets(text):
            from ...analyzer.filtering.compiler import Filter

            of_job = Filter(text).of_job
            if of_job is not None and self.kind == "live":
                raise UsageError(
                    f"filter: {of_job} cannot be combined with fields of packets in a live session"
                )
            again = text != self.packet_filter
            self.packet_filter, self.filter = text, None
        else:
            self.filter = FlowFilter(text) if text else None
            again = bool(self.packet_filter)
            self.packet_filter = ""
        if again:
            self.start()
        return again

    @property
    def filter_text(self) -> str:
        """The filter in force."""
        return self.packet_filter or (self.filter.text if self.filter else "")

    def packet_options(self) -> AnalyzeOptions:
        """Options of other passes over the files, with the filters in force, and with the names of
        devices as this one found them.

        The time window is not included: the verdict on a packet depends on earlier packets.
        """
        texts = (self.options.filter, self.packet_filter)
        together = " and ".join(f"({text})" for text in texts if text)
        devices = {} if self._feed is None else self._feed.pipeline.registry.devices
        return replace(
            self.options,
            filter=together or None,
            ranks=self.known_ranks(),
            ethers={**devices, **self.options.ethers},
        )

    def known_ranks(self) -> Ranks | None:
        """Ranks of the packets, if a filter needed them."""
        return None if self._feed is None else self._feed.pipeline.ranks

    def passing(self, snapshot: Snapshot) -> Bools:
        """Which flows of a snapshot pass the filter of flows."""
        if self.filter is None:
            return np.ones(len(snapshot.flows), np.bool_)
        return self.filter.mask(snapshot)

    def set_window(self, window: tuple[int, int] | None) -> None:
        """Restrict the session to the packets of a time span."""
        if window != self.window:
            self.window = window
            self.start()

    def whole(self) -> tuple[int, int] | None:
        """The time span of all packets read so far."""
        return self._whole

    # --- the past of a live session -----------------------------------------------

    def step(self, way: int) -> bool:
        """Go back (-1) or forward (1) in time by a tenth of the window, at least a second.

        After the last stored time the session is live again. False if there is no further time.
        """
        span = self.history.span()
        if span is None or (way > 0 and self.looking_at is None):
            return False
        step = max(STEP_NS, (self.length_ns or 0) // 10)
        at = (span[1] if self.looking_at is None else self.looking_at) + way * step
        if way < 0 and at < span[0]:
            return False
        self.look_at(at)
        return True

    def look_at(self, time_ns: int) -> None:
        """Go to a time, the nearest stored one; a future time is live."""
        span = self.history.span()
        if span is not None:
            self.looking_at = None if time_ns >= span[1] else max(span[0], time_ns)

    def scale(self, by: float) -> None:
        """Shorter or longer windows: from everything to the last minute, half of it, ..."""
        if self.length_ns is None:
            self.length_ns = LONGEST_NS if by < 1 else None
        else:
            length = max(STEP_NS, int(self.length_ns * by))
            self.length_ns = length if length <= LONGEST_NS else None

    # --- snapshots and records ---------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The displayed state: the current one, or one from the past of a live session."""
        now = self._snapshot()
        if self.kind != "live":
            return _with_hops(now)
        if len(now.flows):
            self._keep_record = self.history.add(now) or self._keep_record
        shown = now
        if self.looking_at is not None:
            kept = self.history.at(self.looking_at)
            shown = as_then(kept, now) if kept is not None else now
        if self.length_ns is not None:
            earlier = self.history.before(shown.end_ns - self.length_ns)
            shown = between(shown, earlier)
        if self.looking_at is None:  # what befell packets between taps is known of the whole only
            return _with_hops(shown) if self.length_ns is None else shown
        return replace(
            shown,
            source=replace(now.source, behind_ns=max(1, now.end_ns - shown.end_ns)),
        )

    def _snapshot(self) -> Snapshot:
        """The current state; the engine waits only while columns are copied."""
        self._seen = self._reading()
        running, feed = self.running, self._feed
        if feed is None:
            source = replace(self._source, running=running, error=self._error)
            return Snapshot(source, judged=self.diagnosing.judged)
        if feed is not self._taken.feed:
            self._taken = Taken(feed)
            self.history.clear()
        taken, pipeline = self._taken, feed.pipeline
        with pipeline.lock:
            m = pipeline.measuring
            ended = bool(m.renumbered)
            if m.renumbered:
                for kept in m.renumbered:
                    self.history.keep(kept)
                    taken.keep(kept)
                m.renumbered = []
            judged = self.diagnosing.judged
            if judged.numbering != m.numbering:
                judged = Judged(why="Idle flows were removed: the diagnosis is not ready yet.")
            earliest = m.ended.first_time_ns
            source = feed.state()
            flows = flow_columns(m.tracker, m.counters)
            usage = {"entropy": usage_copy(m.entropy)}
            if m.many_taps:
                usage["tap"] = usage_copy(m.taps)
            by_segments = usage_copy(m.srv6)
            if len(by_segments.paths):
                usage["srv6"] = by_segments
            activity = m.activity.values()[:, : len(flows)]  # a copy
            bin_ns, line = m.activity.width_ns, timeline(m.totals)
            activity_start_ns = m.activity.start_ns
            late = flow_bins(m.late, len(flows))
            addresses = tuple(pipeline.registry.endpoints.texts())
            owners = feed.owners
            omitted = taken.update(pipeline, running)
        if ended:
            give_back_freed()  # the past without the ended flows leaves holes between its columns
        names = source.tap_names
        paths = {by: path_columns(by, records, len(flows)) for by, records in usage.items()}
        paths["entropy"] = replace(paths["entropy"], name=entropy_name)
        if "tap" in paths:
            paths["tap"] = replace(paths["tap"], name=lambda key: names[key])
        if "srv6" in paths:
            paths["srv6"] = replace(paths["srv6"], name=pipeline.registry.segments.name)
        start = int(flows.first_ns.min()) if len(flows) else 0
        start = start if earliest is None else min(start, earliest)
        end = int(flows.last_ns.max()) if len(flows) else 0
        if self.window is None and end:
            self._whole = (start, end)
        mrc_columns, planes = taken.mrc.of(len(flows))
        if planes is not None:
            paths["plane"] = planes
        rates = taken.rates.of(
            replace(source, running=running), flows.wire_bytes, (start, end), self._clock()
        )
        if rates.by_flow is not None:
            flows = replace(flows, rate=rates.by_flow)
        return Snapshot(
            source=replace(
                source,
                running=running,
                compiling=source.compiling and running,
                error=self._error or source.error,
                packets_per_second=rates.packets_per_second,
                bits_per_second=rates.bits_per_second,
            ),
            addresses=addresses,
            flows=flows,
            paths=paths,
            activity=activity,
            activity_bin_ns=bin_ns,
            activity_start_ns=activity_start_ns,
            late=late,
            timeline=line,
            events=taken.events(),
            events_omitted=omitted,
            owners=owners,
            mrc=mrc_columns,
            judged=judged,
            start_ns=start,
            end_ns=end,
        )

    def absent(self, screen: str) -> str:
        """Why a screen shows nothing here; empty if it shows something."""
        return ""

    def diagnosis_due(self) -> bool:
        """Whether `diagnose` should run now."""
        return not self.hurried and self.diagnosing.is_due(self.running)

    def diagnose(self) -> None:
        """Diagnose what was read so far, for the next snapshot; in its own thread."""
        running, feed = self.running, self._feed
        if feed is not None:
            self.diagnosing.run(feed, running, self.options.fabric)
        elif not running:
            self.diagnosing.give_up()

    def analysis(self) -> Analysis:
        """The whole result so far, for export. RocescopeError if there is none."""
        feed = self._feed
        if feed is None:
            raise RocescopeError(self._error or "no packet was read yet")
        with feed.pipeline.lock:
            return feed.analysis()

    def focus(self, key: FlowKey | None) -> Flow | None:
        """The whole record of a flow; None if there is none.

        In the past of a live session the record of that time if it was stored, else `until_now`.
        """
        moment = self.looking_at
        if key is None:
            return None
        if moment is not None and (kept := self.history.record(moment, key)) is not None:
            self.until_now = False
            return kept
        record = self._record(key)
        self.until_now = moment is not None
        if self._keep_record and record is not None:
            self._keep_record = False
            self.history.add_record(key, record)
        return record

    def _record(self, key: FlowKey) -> Flow | None:
        """The record of a flow so far."""
        feed = self._feed
        if feed is None:
            return None
        pipeline = feed.pipeline
        with pipeline.lock:
            endpoints = pipeline.registry.endpoints
            src, dst = endpoints.index_of(key.src), endpoints.index_of(key.dst)
            if src is None or dst is None:
                return None
            found = pipeline.measuring.tracker.find([(src, dst, key.qp)])
            return pipeline.glance().flow(*found.values()) if found else None

    # --- text for the clipboard -------------------------------------------------------------

    def wireshark_filter(self, key: FlowKey) -> str:
        """The display filter that shows a flow in Wireshark or tshark."""
        return wireshark_filter(key)

    def command_line(self, key: FlowKey | None) -> str:
        """The rocescope command that reports the same."""
        return analyze_command(self.paths, self.name.split(","), self.packet_options(), key)


def _with_hops(snapshot: Snapshot) -> Snapshot:
    """The snapshot with what befell packets between taps."""
    return replace(snapshot, flows=with_hops(snapshot.flows, snapshot.judged))
