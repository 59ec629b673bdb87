"""Sources of the packets of a session, captures or live probes, with one interface."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Protocol

from ...analyzer.capture.rings import ConcatenatedCapture
from ...analyzer.capture.source import Capture
from ...analyzer.measures.measuring import Measuring
from ...analyzer.measures.series import LateActivity, Totals
from ...analyzer.pipeline.captures import open_captures
from ...analyzer.pipeline.options import AnalyzeOptions, Progress
from ...analyzer.pipeline.pipeline import Pipeline
from ...analyzer.results.analysis import Analysis
from ...analyzer.results.captures import Ended
from ...analyzer.results.flow import Owner
from ...analyzer.words import printable
from ...probes.rights import lower_own
from ...report.human import counted
from .snapshot import SourceState

STOPPED_EARLY = "reading was stopped: later packets are not counted (X reads all)"
_FINEST_WINDOW_NS, _MOST_WINDOWS = 10_000, 8192


def measure_for_screens(measuring: Measuring) -> None:
    """Enable the measures that only screens show; call it before the first packet.

    Late packets over time, and totals over time. The windows of totals resolve the bursts of
    a capture of milliseconds and grow with its length: always finer than a screen column.
    """
    measuring.renumbered = []
    measuring.late = LateActivity()
    measuring.totals = Totals(_FINEST_WINDOW_NS, _MOST_WINDOWS)


LOGS_EVERY_S = 5.0
"""Interval at which logs that may grow are read again."""


class Feed(Protocol):
    """Feeds packets into a pipeline, whose `lock` pauses it."""

    kind: str

    @property
    def pipeline(self) -> Pipeline:
        """What is known so far."""

    @property
    def owners(self) -> dict[int, Owner]:
        """By flow index: the process that owns its queue pair, if known."""

    def read(self) -> None:
        """Read all packets; returns at the end or after `stop`."""

    def stop(self) -> None:
        """End `read` soon; from any thread."""

    def backlog(self) -> float:
        """Used share of the buffer of unmeasured packets, 0 to 1; packets are lost at 1."""

    def state(self) -> SourceState:
        """The current state of the source, without rates."""

    def analysis(self) -> Analysis:
        """The whole result so far; the lock must be held."""

    def close(self) -> None:
        """Release files and probes."""


class CaptureFeed:
    """Capture files."""

    kind = "capture"

    def __init__(self, paths: Sequence[str], options: AnalyzeOptions) -> None:
        self._stack = ExitStack()
        self._progress: Progress | None = None
        self._complete = False
        name = paths[0].rpartition("/")[2] if len(paths) == 1 else f"{len(paths)} captures"
        self._name = printable(name)
        self.pipeline = self._stack.enter_context(open_captures(paths, options, self._tell))
        measure_for_screens(self.pipeline.measuring)
        self._owners: dict[int, Owner] = {}
        self._logged = bool(options.job_logs)
        self._follows_logs = self._logged and options.follow
        self._owned = (0,) * 5

    @property
    def owners(self) -> dict[int, Owner]:
        """Queue pair owners in the captures so far and in logs; the lock must be held."""
        comments = sum(len(source.capture.owner_comments) for source in self.pipeline.sources)
        m = self.pipeline.measuring
        known = (0,) * 5
        if comments or self._logged:
            paired = int((m.tracker.flows["peer"] >= 0).sum()) if self._logged else 0
            turn = int(time.monotonic() / LOGS_EVERY_S) if self._follows_logs else 0
            known = (comments, m.numbering, len(m.tracker), paired, turn)
        if known != self._owned:
            self._owned, self._owners = known, self.pipeline.find_owners()
        return self._owners

    def read(self) -> None:
        """Read all captures to their ends."""
        lower_own()
        self._complete = self.pipeline.read()

    def stop(self) -> None:
        """End reading early."""
        self.pipeline.stop()

    def end_following(self) -> None:
        """Read a growing file to its current end, and no further."""
        self.pipeline.end_following()

    def backlog(self) -> float:
        """A file waits."""
        return 0.0

    def state(self) -> SourceState:
        """Counts of the captures so far."""
        captures = [source.capture for source in self.pipeline.sources]
        progress = self._progress
        done = sum(capture.bytes_read for capture in captures)
        total = progress.bytes_total if progress else None
        stopped_early = self.pipeline.interrupted and (total is None or done < total)
        drops = [tap.dropped for tap in self.pipeline.registry.taps.items]
        known = [d for d in drops if d is not None]
        undecodable = sum(
            sum(source.decoder.counters.undecodable().values()) for source in self.pipeline.sources
        )
        return SourceState(
            name=self._name,
            kind=self.kind,
            compiling=progress is not None and progress.compiling,
            frames=sum(capture.frames for capture in captures),
            packets=self.pipeline.packets,
            bytes_done=done,
            bytes_total=total,
            dropped=sum(known) if known else None,
            truncated=sum(capture.truncated_frames for capture in captures),
            undecodable=undecodable,
            warnings=(
                *([self.pipeline.ended_by] if self.pipeline.ended_by else []),
                *ended_words(self.pipeline.measuring.ended),
                *_warnings(captures),
                *([STOPPED_EARLY] if stopped_early else []),
            ),
            tap_names=tuple(self.pipeline.registry.tap_names),
            stopped_early=stopped_early,
        )

    def analysis(self) -> Analysis:
        """The analysis as `rocescope analyze` makes it."""
        return self.pipeline.conclude(self._complete)

    def close(self) -> None:
        """Close the files."""
        self._stack.close()

    def _tell(self, progress: Progress) -> None:
        self._progress = progress


def ended_words(ended: Ended) -> Iterator[str]:
    """What the flows on the screens lack, one line each."""
    if ended.flows:
        gone = counted(ended.flows, "idle flow was", "idle flows were")
        trouble = (
            f", {ended.flows_in_trouble:,} of them with anomalies" if ended.flows_in_trouble else ""
        )
        packets = counted(ended.packets, "packet")
        yield f"{gone} removed from memory, with {packets}{trouble}: the worst stay listed"
    if ended.untracked_packets:
        packets = counted(ended.untracked_packets, "packet")
        yield (
            f"too many flows or addresses at once: {packets} of further flows are counted,"
            " not analysed"
        )


def _warnings(captures: Sequence[Capture | ConcatenatedCapture]) -> Iterator[str]:
    """Notes on the captures, one line each."""
    for capture in captures:
        yield from capture.warnings
        # Several captures are merged by time, which corrects the order.
        if capture.out_of_order_frames and len(captures) == 1:
            records = counted(capture.out_of_order_frames, "record is", "records are")
            yield f"{records} out of time order: the capture may cause some of the reordering"
