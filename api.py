"""The public API for notebooks and scripts; `__init__.py` loads it on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

from .analyzer.errors import UsageError
from .analyzer.pipeline.captures import analyze as analyze_files
from .analyzer.pipeline.options import AnalyzeOptions
from .analyzer.results.analysis import Analysis as AnalysisRecord
from .analyzer.results.analysis import Hop
from .analyzer.results.base import Event, Imbalance
from .analyzer.results.captures import CaptureSummary
from .analyzer.results.diagnosis import Diagnosis
from .analyzer.results.flow import Connection, Flow
from .analyzer.results.jobs import TrainingJob
from .replay.compare.request import DEFAULT_STRATEGIES, ReplayRequest
from .replay.fabrics.fabric import Fabric as Fabric
from .replay.fabrics.parse import parse_fabric
from .replay.results import (
    AggregationResult,
    LinkLoad,
    ReplayResult,
    SchemeResult,
    SeedValue,
    StrategyResult,
    SweepResult,
)
from .report.records import Records

if TYPE_CHECKING:
    from collections.abc import Callable

    from .analyzer.results.analysis import LiveInterval
    from .replay.hashing.seeded import PerSwitch
    from .replay.seeds.sweep import Measure
    from .report.files.packets import PacketStream

File: TypeAlias = str | PathLike[str]
_SEEDS = 1 << 32
R = TypeVar("R", bound=msgspec.Struct)


@dataclass(frozen=True, repr=False)
class _Result(Generic[R]):
    """The result of a command."""

    record: R
    """The whole result; docs/formats.md and the page of the command describe its fields."""

    def to_json(self) -> bytes:
        """The record as JSON, as the command writes it with `--format json`."""
        from .report.files import encode_json

        return encode_json(self.record)


class Analysis(_Result[AnalysisRecord]):
    """The result of an analysis: the record of `rocescope analyze --format json`, and its tables.

    Every sequence has typed records by index, and a table by `to_polars()`, `to_pandas()` or
    `to_arrow()`.
    """

    @property
    def flows(self) -> Records[Flow]:
        """One-way packets from one source address to one (destination address, QPN)."""
        return Records(Flow, self.record.flows)

    @property
    def diagnosis(self) -> Diagnosis:
        """Findings, the worst first; what is healthy; what the captures cannot tell."""
        return self.record.diagnosis

    @property
    def connections(self) -> Records[Connection]:
        """The two flows of each pair of queue pairs."""
        return Records(Connection, self.record.connections)

    @property
    def events(self) -> Records[Event]:
        """NAKs, rewinds, restarts and other events, in order of time."""
        return Records(Event, self.record.events)

    @property
    def imbalance(self) -> Records[Imbalance]:
        """Imbalance of each set of parallel paths."""
        return Records(Imbalance, self.record.imbalance)

    @property
    def hops(self) -> Records[Hop]:
        """Losses between taps in series."""
        return Records(Hop, self.record.hops)

    @property
    def jobs(self) -> list[TrainingJob]:
        """Training jobs: ranks, steps, who is waited for."""
        return list(self.record.jobs)

    @property
    def captures(self) -> Records[CaptureSummary]:
        """Counts of each capture file, and its limits of trust."""
        return Records(CaptureSummary, self.record.captures)

    @property
    def warnings(self) -> list[str]:
        """Limits of trust in the results, the most important first."""
        return list(self.record.warnings)

    @property
    def complete(self) -> bool:
        """False when the analysis was interrupted."""
        return self.record.complete

    def to_html(self) -> bytes:
        """The report with charts, as `rocescope analyze --format html` writes it."""
        from .report.html.documents import analysis_html

        return analysis_html(self.record)

    def __repr__(self) -> str:
        packets = sum(flow.packets for flow in self.record.flows) + self.record.left.packets
        return f"<Analysis of {packets:,} packets in {len(self.record.flows):,} flows>"

    def _repr_html_(self) -> str:
        """Warnings first, then the flows; every text is escaped."""
        warnings = "".join(f"<li>{escape(text)}</li>" for text in self.record.warnings)
        return f"<p>{escape(repr(self)[1:-1])}</p><ul>{warnings}</ul>{self.flows._repr_html_()}"


def analyze(captures: File | Sequence[File], **options: Any) -> Analysis:
    """Analyse capture files: every flow, its paths, reordering, loss, recovery and congestion.

    captures: one file, or several files of several taps (`concat=True`: a rotated series of one
    tap). options: fields of `AnalyzeOptions`, such as `filter`, `path_by`, `udp_ports`. Raises
    UnreadableInput if a file cannot be read, UsageError for wrong options.
    """
    return Analysis(analyze_files(_paths(captures), _checked(AnalyzeOptions, options)))


def packets(
    captures: File | Sequence[File], columns: Sequence[str] | None = None, **options: Any
) -> PacketStream:
    """One row per RoCE packet, read during the iteration: pyarrow record batches.

    `polars.DataFrame(rocescope.packets(...))` and every other reader of Arrow streams accept
    it. columns: the columns to keep, in this order; docs/formats.md lists all of them.
    options: fields of `PacketOptions`, such as `filter` and `extensions`. Errors as `analyze`.
    """
    from .report.files.packets import PacketOptions, PacketStream

    return PacketStream(_paths(captures), _checked(PacketOptions, options), columns)


def live(
    *interfaces: str,
    seconds: float,
    tell: Callable[[LiveInterval], None] | None = None,
    **options: Any,
) -> Analysis:
    """Analyse interfaces of this host for `seconds`, by eBPF; needs the privileges of capture.

    tell: called with each interval of one second. options: fields of `LiveOptions`, such as
    `hook`, `filter`, `namespace`. Raises CaptureError if live capture does not work; `rocescope
    doctor` lists what is missing.
    """
    import time

    from .probes.live import LiveOptions
    from .probes.live_analysis import LiveAnalysis

    if seconds <= 0:
        raise UsageError("seconds must be more than 0")
    given = _checked(LiveOptions, options)
    with LiveAnalysis(interfaces, given, drop_privileges=False) as run:
        end = time.monotonic() + seconds

        def check() -> None:
            if time.monotonic() >= end:
                run.source.stop()

        run.run(tell or (lambda _: None), check)
        return Analysis(run.result())


class Replay(_Result[ReplayResult]):
    """Results of several strategies for the same traffic on the same fabric."""

    @property
    def strategies(self) -> Records[StrategyResult]:
        """One record per strategy: completion time, imbalance, busiest link, queues."""
        return Records(StrategyResult, self.record.strategies)

    def links(self, strategy: str) -> Records[LinkLoad]:
        """Loads of the links with a strategy; UsageError if it was not replayed."""
        for one in self.record.strategies:
            if one.name == strategy:
                return Records(LinkLoad, one.links)
        names = ", ".join(one.name for one in self.record.strategies)
        raise UsageError(f"{strategy} was not replayed; replayed strategies: {names}")

    def to_html(self) -> bytes:
        """The report with charts, as `rocescope replay --format html` writes it."""
        from .report.html.documents import replay_html

        return replay_html(self.record)

    def __repr__(self) -> str:
        return f"<Replay by {', '.join(one.name for one in self.record.strategies)}>"

    def _repr_html_(self) -> str:
        """The strategies; every text is escaped."""
        return self.strategies._repr_html_()


def replay(
    captures: File | Sequence[File] = (),
    *,
    fabric: str,
    strategies: Sequence[str] = DEFAULT_STRATEGIES,
    **options: Any,
) -> Replay:
    """Place traffic on a fabric by several strategies, as `rocescope replay` does.

    Pass captures, or `pattern="permutation:qps=4"`. fabric: a spec or a file, as for `fabric`.
    options: fields of `ReplayRequest`, such as `map`, `packets`, `model`, `fail`. Raises
    UsageError for wrong or conflicting options, UnreadableInput if a capture cannot be read.
    """
    from .replay.compare.prepared import PreparedReplay
    from .replay.compare.summaries import ALL_PATHS, Listed

    paths = () if captures == () else tuple(_paths(captures))
    given = {**options, "fabric": fabric, "strategies": tuple(strategies), "captures": paths}
    prepared, listed = PreparedReplay(_checked(ReplayRequest, given)), Listed(paths=ALL_PATHS)
    if prepared.request.by_packet:
        result, _ = prepared.by_packets(prepared.request.strategies)
    else:
        result = prepared.place(prepared.parsed(), listed=listed)
    return Replay(prepared.beside_captured(result, listed))


class Sweep(_Result[SweepResult]):
    """Imbalance over hash seeds."""

    @property
    def best(self) -> Records[SeedValue]:
        """The seeds with the smallest imbalance."""
        return Records(SeedValue, self.record.best)

    @property
    def worst(self) -> Records[SeedValue]:
        """The seeds with the largest imbalance."""
        return Records(SeedValue, self.record.worst)

    def to_html(self) -> bytes:
        """The report with charts, as `rocescope sweep --format html` writes it."""
        from .report.html.documents import sweep_html

        return sweep_html(self.record)

    def __repr__(self) -> str:
        return f"<Sweep of {self.record.seeds[2]:,} seeds of {self.record.hash}>"


def sweep(
    captures: File | Sequence[File] = (),
    *,
    fabric: str,
    seeds: int = 10_000,
    hash: Mapping[str, str] | None = None,
    per_switch: PerSwitch = "different",
    measure: Measure = "fim-bytes",
    production: int | None = None,
    **options: Any,
) -> Sweep:
    """Imbalance of the same traffic over hash seeds, as `rocescope sweep` computes it.

    Pass captures, or `pattern="permutation:qps=4"`. fabric: a spec or a file, as for `fabric`.
    seeds: 0 to this number, without it. hash: settings of the switches, such as
    `{"hash": "crc32", "fields": "5-tuple"}`. production: the seed in use. options: fields of
    `ReplayRequest`, such as `map`. Errors as `replay`.
    """
    from .replay.compare.captured import sweep_result
    from .replay.compare.prepared import PreparedReplay
    from .replay.hashing.seeded import SeedRange

    if not 1 <= seeds <= _SEEDS or not 0 <= (production or 0) < _SEEDS:
        raise UsageError("seeds and production have 32 bits")
    for name in {"seed", "per-switch"} & set(hash or ()):
        raise UsageError(f"hash has no {name} in a sweep: use seeds and per_switch")
    paths = () if captures == () else tuple(_paths(captures))
    given = {**options, "fabric": fabric, "strategies": (), "captures": paths}
    prepared = PreparedReplay(_checked(ReplayRequest, given))
    found = sweep_result(
        prepared.read(),
        prepared.fabric,
        hash or {},
        SeedRange(0, seeds),
        per_switch,
        measure,
        production,
        prepared.request.sources,
    )
    return Sweep(found)


class Aggregation(_Result[AggregationResult]):
    """Schemes of in-network aggregation on the same jobs."""

    @property
    def schemes(self) -> Records[SchemeResult]:
        """One record per scheme and memory: completion times, memory, fallback, bytes on links."""
        return Records(SchemeResult, self.record.schemes)

    def __repr__(self) -> str:
        return f"<Aggregation: {len(self.record.schemes)} results, {len(self.record.jobs)} jobs>"


def aggregate(
    captures: File | Sequence[File] = (),
    *,
    fabric: str,
    jobs: Sequence[str] = (),
    **options: Any,
) -> Aggregation:
    """Run jobs whose gradients are summed in switches, as `rocescope aggregate` does.

    Pass captures with all-reduces, jobs such as `["count=4,workers=8,model=comm"]`, or both.
    fabric: a spec or a file, as for `fabric`. options: fields of `AggregationRequest`, such as
    `memory=(1024, 4096)`, `schemes`, `runs`, `map`. Errors as `replay`.
    """
    from .replay.aggregation.request import AggregationRequest, PreparedAggregation

    paths = () if captures == () else tuple(_paths(captures))
    given = {**options, "fabric": fabric, "jobs": tuple(jobs), "captures": paths}
    return Aggregation(PreparedAggregation(_checked(AggregationRequest, given)).run())


def fabric(spec: str) -> Fabric:
    """The fabric of a spec such as `leaf-spine:leaves=4,spines=8,hosts=8`, or of a file.

    UsageError names the mistake, for files with the line.
    """
    return parse_fabric(spec)


def _paths(captures: File | Sequence[File]) -> list[str]:
    if not captures:
        raise UsageError("give at least one capture file")
    files = [captures] if isinstance(captures, (str, PathLike)) else captures
    return [fspath(path) for path in files]


def _checked(kind: Any, options: dict[str, Any]) -> Any:
    """The options as their dataclass; UsageError for an unknown name."""
    known = [field.name for field in fields(kind)]
    for name in options:
        if name not in known:
            raise UsageError(f"there is no option {name!r}; options are {', '.join(known)}")
    return kind(**options)
