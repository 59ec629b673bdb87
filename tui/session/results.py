"""A folder of results in the terminal UI: what an analysis found, without its packets."""

from __future__ import annotations

import mmap
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ...analyzer.errors import RocescopeError, UnreadableInput, UsageError
from ...analyzer.results.analysis import SCHEMA_VERSION, CaptureLoss, Hop, Ranks, TapClock
from ...analyzer.results.base import Event
from ...analyzer.results.captures import CaptureSummary
from ...analyzer.results.diagnosis import Diagnosis
from ...analyzer.results.flow import Flow
from ...analyzer.results.jobs import TrainingJob
from ...analyzer.words import printable
from ...kernels.kernel import Ints
from ...report.out_folder import SUMMARY
from .judged import Judged
from .session import Session
from .snapshot import FlowColumns, FlowKey, Snapshot, SourceState

if TYPE_CHECKING:
    from .feeds import Feed

SCREENS = ("diagnosis", "evidence", "qps", "hops", "events", "jobs", "doctor")
"""Those that need no packets."""


class Summary(msgspec.Struct):
    """What screens need of `summary.json`; flows stay as text until one is selected."""

    schema_version: str
    complete: bool
    captures: list[CaptureSummary]
    diagnosis: Diagnosis
    flows: list[msgspec.Raw]
    hops: list[Hop]
    capture_losses: list[CaptureLoss]
    clocks: list[TapClock]
    events: list[Event]
    events_omitted: int
    warnings: list[str]
    ranks: Ranks | None = None
    jobs: list[TrainingJob] = []


class ResultsSession(Session):
    """The results of an analysis that ended, read in its own thread."""

    def __init__(self, folder: Path) -> None:
        super().__init__(_no_feed, folder.resolve().name, "results", ())
        self._folder = folder
        self._loaded: Snapshot | None = None
        self._summary_of: Summary | None = None

    def _read(self, generation: int) -> None:
        try:
            self._loaded = self._load()
        except RocescopeError as error:
            self._error = str(error)

    def _load(self) -> Snapshot:
        from .flow_rows import read_flow_rows  # pyarrow

        summary = read_summary(self._folder / SUMMARY)
        rows = read_flow_rows(self._folder / "flows", len(summary.flows))
        self._summary_of = summary
        warnings = list(summary.warnings)
        if rows.left_out:
            warnings.insert(
                0,
                f"{rows.left_out:,} of {len(rows.flows) + rows.left_out:,} flows are not shown: "
                "those with the fewest anomalies; flows/*.parquet has all flows",
            )
        taps = [tap for capture in summary.captures for tap in capture.taps]
        drops = [tap.dropped_frames for tap in taps]
        known = [count for count in drops if count is not None]
        first, last = rows.flows.first_ns, rows.flows.last_ns
        begins = [int(first.min())] if len(first) else []
        begins += [finding.from_ns for finding in summary.diagnosis.findings]
        judged = Judged.of_results(
            summary.diagnosis,
            _answered(rows.flows),
            summary.hops,
            end_ns=int(last.max(initial=0)),
            lost=_some(rows.lost),
            late=_some(rows.late),
            capture_losses=summary.capture_losses,
            clocks=summary.clocks,
            job_ranks=summary.ranks,
            jobs=summary.jobs,
        )
        return Snapshot(
            source=SourceState(
                name=self.name,
                kind=self.kind,
                running=False,
                frames=sum(capture.frames for capture in summary.captures),
                packets=sum(capture.roce_packets for capture in summary.captures),
                dropped=sum(known) if known else None,
                truncated=sum(capture.snapped_frames for capture in summary.captures),
                undecodable=sum(
                    sum(capture.undecodable_frames.values()) for capture in summary.captures
                ),
                warnings=tuple(warnings),
                tap_names=tuple(dict.fromkeys(tap.name for tap in taps)),
            ),
            addresses=rows.addresses,
            flows=rows.flows,
            paths={"entropy": rows.paths},
            events=tuple(summary.events),
            events_omitted=summary.events_omitted,
            judged=judged,
            start_ns=min(begins, default=0),
            end_ns=int(last.max()) if len(last) else 0,
        )

    def _snapshot(self) -> Snapshot:
        self._seen = self._reading()
        running, loaded = self.running, self._loaded
        if loaded is None:
            return Snapshot(replace(self._source, running=running, error=self._error))
        return replace(loaded, source=replace(loaded.source, running=running))

    def absent(self, screen: str) -> str:
        """Why a screen shows nothing; empty if it shows something."""
        if screen in SCREENS:
            return ""
        return "Results have no packets, which this screen needs: rocescope tui CAPTURE shows it."

    def diagnosis_due(self) -> bool:
        """Never: the results contain it."""
        return False

    def set_filter(self, text: str) -> bool:
        """Filter flows. UsageError if it is invalid, or of packets."""
        from .flow_filter import needs_packets

        if text.strip() and needs_packets(text.strip()):
            raise UsageError("results have no packets: filter by fields of flows")
        return super().set_filter(text)

    def _record(self, key: FlowKey) -> Flow | None:
        """The record of a listed flow; None of one that was removed from memory during the
        analysis."""
        summary, loaded = self._summary_of, self._loaded
        if summary is None or loaded is None:
            return None
        at = loaded.find(key)
        if at is None or at >= len(summary.flows):
            return None
        try:
            return msgspec.json.decode(summary.flows[at], type=Flow)
        except msgspec.MsgspecError:
            return None

    def command_line(self, key: FlowKey | None) -> str:
        """The command that shows the same."""
        return f"rocescope tui {shlex.quote(str(self._folder))}"


def _some(packets: Ints) -> dict[int, int]:
    """By flow: packets, of those flows that have some."""
    return {flow: count for flow, count in enumerate(packets.tolist()) if count > 0}


def _answered(flows: FlowColumns) -> dict[int, int]:
    """By flow of ACKs only: the flow that waits for them."""
    waited = np.flatnonzero((flows.data_packets == 0) & (flows.peer >= 0))
    return dict(zip(waited.tolist(), flows.peer[waited].tolist(), strict=True))


def read_summary(path: Path) -> Summary:
    """UnreadableInput if it is missing, damaged or of another version."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            summary = msgspec.json.decode(memoryview(data), type=Summary)
            summary.flows = [msgspec.Raw(bytes(flow)) for flow in summary.flows]
    except (OSError, ValueError, RecursionError) as error:
        why = printable(str(error))
        raise UnreadableInput(f"{path} is not the summary of an analysis: {why}") from None
    known = range(len(summary.flows))
    if any(flow not in known for finding in summary.diagnosis.findings for flow in finding.flows):
        raise UnreadableInput(f"{path} has findings of flows that it does not list")
    if summary.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        version = printable(summary.schema_version)
        raise UnreadableInput(
            f"{path} has schema version {version}: analyse the captures with this version"
        )
    return summary


def _no_feed(_: str | None) -> Feed:
    raise RocescopeError("a folder of results has no packets")
