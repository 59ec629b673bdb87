"""A checked replay request with its traffic, as the command line and the terminal UI run it.

The packet engine, and the analyzer for captures, are imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.words import parse_duration
from ..fabrics.parse import parse_fabric
from ..results import ASAP, CAPTURED, OFFERS, LinkEvidence, ReplayResult, StrategyResult
from ..strategies.base import FlowStrategy
from ..strategies.registry import ALL, expanded, parse_packet_strategy, parse_strategy
from ..traffic.traffic import SentMessages, Traffic
from .decision import decided
from .request import JOBS, ReplayRequest
from .summaries import SHORT, Listed, mapped

if TYPE_CHECKING:
    from ..jobs.collectives import Job as PlacedJob
    from ..jobs.files import JobFiles
    from ..packets.model.model import EngineResult, Model
    from .packets import Load
    from .specs import Conditions

Tell: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of the work, the steps done and the number of steps."""


_ONE_CLASS = (
    "--priority: all traffic would be in one class; give --jobs with priority=NAME, or --pattern "
    "beside jobs for the last class"
)


NOT_CAPTURED = (
    "no row 'as captured': it needs captures of all uplinks of one switch, each named like its"
    " link (leaf1-spine1, ...)"
)


class PreparedReplay:
    """Replays one traffic on one fabric with any strategies."""

    def __init__(self, request: ReplayRequest, files: JobFiles | None = None) -> None:
        """files: reads the files of jobs. UsageError names the option and its mistake."""
        self.request = request
        self._files = files
        self.fabric = parse_fabric(request.fabric)
        if bool(request.captures) == request.generated:
            raise UsageError("give captures, or --pattern or --jobs for generated traffic")
        if request.generated and (request.map != "exact" or request.filter or request.concat):
            raise UsageError("--map, --filter and --concat need captures")
        if request.generated and request.job_logs:
            raise UsageError("--nccl-log needs captures")
        self._window_ns = parse_duration(request.window, "--window") if request.window else None
        if request.filter is not None:
            from ...analyzer.filtering.compiler import Filter

            Filter(request.filter)
        self._traffic: tuple[bool, Traffic] | None = None
        if request.by_packet:
            self._packet_parts  # noqa: B018 - mistakes are told before captures are read

    @cached_property
    def _packet_parts(self) -> tuple[Model, str, Conditions]:
        """(model, when captured packets are offered, conditions) for the engine."""
        from .packets import check_runs
        from .specs import (
            SHAPE,
            check_classes,
            parse_classes,
            parse_conditions,
            parse_lossless,
            parse_model,
            parse_shape,
        )

        request = self.request
        check_runs(request.runs)
        if not 0 <= request.seed < 1 << 48:
            raise UsageError(f"--seed must be 0 to 2^48 - 1, not {request.seed}")
        model, offer = parse_model(request.model), request.offer or CAPTURED
        if offer not in OFFERS:
            raise UsageError(f"--offer {offer}: use {', '.join(OFFERS[:-1])} or {OFFERS[-1]}")
        if request.lossless:
            pfc = parse_lossless(request.lossless)
            if model.buffer_bytes is not None:
                kind = "infinite" if pfc is None else "pfc"
                raise UsageError(
                    f"--lossless {kind} cannot be combined with --model buffer=: its queues do "
                    "not drop"
                )
            model = replace(model, pfc=pfc)
        if request.priority:
            model = replace(model, classes=parse_classes(request.priority))
            check_classes(model.classes, bool(request.captures))
        conditions = parse_conditions(
            request.transport, request.fail, request.converge, self.fabric
        )
        if not request.captures and request.offer:
            raise UsageError("--offer needs captures; patterns are sent as fast as possible")
        for key in () if request.captures else SHAPE:
            if f"{key}=" in request.model:
                raise UsageError(f"--model: {key} needs captures; --pattern has its own")
        parse_shape(request.model)
        if request.jobs:
            self._placed_jobs  # noqa: B018
        elif len(model.classes) > 1 and not request.captures:
            raise UsageError(_ONE_CLASS)
        if request.window and not request.captures:
            raise UsageError("--window with --packets needs captures")
        if request.window and offer != CAPTURED:
            raise UsageError(f"--window cannot be combined with --offer {offer}")
        return model, offer, conditions

    @cached_property
    def _placed_jobs(self) -> Callable[[int], list[PlacedJob]]:
        """The jobs in the run of a seed, with the pattern beside them."""
        from ..jobs.spec import parse_jobs
        from ..jobs.tasks import background
        from ..packets.offers import ITERATED
        from .specs import pairs_of, parse_classes

        pattern, (name, _, rest) = self.request.pattern, self.request.pattern.partition(":")
        if name in ITERATED:
            raise UsageError(f"--pattern {name} waits for its steps: use --jobs collective=ring")
        classes = [traffic_class.name for traffic_class in parse_classes(self.request.priority)]
        placed = parse_jobs(self.request.jobs, self._files, classes)

        def jobs(seed: int) -> list[PlacedJob]:
            jobs_placed = placed(self.fabric, seed)
            if pattern:
                spec = pattern if "messages=" in rest else f"{name}:{rest},messages=1"
                pairs, _ = pairs_of(spec, self.fabric, seed - self.request.seed)
                jobs_placed.append(background(name, pairs, self.fabric.hosts))
            return jobs_placed

        # Mistakes are told before anything runs.
        used = {job.priority % len(classes) for job in jobs(self.request.seed)}
        if len(classes) > 1 and len(used) == 1:
            raise UsageError(_ONE_CLASS)
        return jobs

    def read(
        self,
        progress: Callable[[int, int | None], None] | None = None,
        *,
        messages: bool = False,
    ) -> Traffic:
        """The traffic, read once. messages: keep single messages in place of windows.

        progress: called with the bytes read and the size of the captures.
        """
        if self._traffic is None or messages > self._traffic[0]:
            self._traffic = messages, self._read(progress, messages)
        return self._traffic[1]

    def take_traffic(self, other: PreparedReplay) -> None:
        """Do not read captures again that another replay has read for the same hosts."""
        if self.request.captures and self._reads() == other._reads():
            self._traffic = other._traffic

    def _reads(self) -> ReplayRequest:
        """What determines the traffic of captures."""
        request, at_times = self.request, self._packet_parts[1] == CAPTURED
        return ReplayRequest(
            request.fabric,
            captures=request.captures,
            tap_names=request.tap_names,
            ethers=request.ethers,
            map=request.map,
            filter=request.filter,
            concat=request.concat,
            udp_ports=request.udp_ports,
            job_logs=request.job_logs,
            window=request.window,
            offer=CAPTURED if at_times else ASAP,
        )

    def _read(self, progress: Callable[[int, int | None], None] | None, messages: bool) -> Traffic:
        request = self.request
        if request.jobs:
            return self._loads(*self._packet_parts[:2])(0).workload.traffic
        if request.pattern:
            from .specs import generated

            return generated(request.pattern, self.fabric, self._window_ns)
        from ...analyzer.jobs.job import Job
        from ...analyzer.jobs.lines import named
        from ..traffic.observed import traffic_from_capture

        return traffic_from_capture(
            request.captures,
            self.fabric,
            request.map,
            window_ns=None if messages else self._window_ns,
            filter=request.filter,
            concat=request.concat,
            tap_names=request.tap_names,
            ethers=request.ethers,
            udp_ports=request.udp_ports,
            messages=messages,
            links=messages and self._packet_parts[1] != CAPTURED,  # captured times need none
            job=Job(named(request.job_logs)) if request.job_logs else None,
            progress=progress,
        )

    def parsed(self) -> list[FlowStrategy]:
        """The strategies of the request, for whole flows."""
        return [parse_strategy(text) for text in expanded(self.request.strategies, packets=False)]

    def place(
        self,
        strategies: Sequence[FlowStrategy],
        progress: Tell | None = None,
        listed: Listed = SHORT,
    ) -> ReplayResult:
        """Place whole flows with these strategies."""
        from .flows import replay

        done = 0

        def begun(name: str) -> None:
            nonlocal done
            if progress is not None:
                progress(name, done, len(strategies))
            done += 1

        return replay(self.read(), self.fabric, strategies, self.request.sources, begun, listed)

    def as_captured(self, listed: Listed = SHORT) -> StrategyResult | None:
        """What the captured links carried; None if these are too few to compare."""
        if not self.request.captures:
            return None
        from .captured import as_captured

        return as_captured(self.read(), self.fabric, listed)

    def beside_captured(self, result: ReplayResult, listed: Listed = SHORT) -> ReplayResult:
        """A result with the loads as captured before its strategies, where they are known, and
        with its decision."""
        if result.strategies and self.request.captures:
            captured, changed = self.as_captured(listed), msgspec.structs.replace
            if captured is not None:
                result = changed(result, strategies=[captured, *result.strategies])
            else:
                result = changed(result, warnings=[NOT_CAPTURED, *result.warnings])
            read = self.read()
            took = int(read.last_ns.max() - read.first_ns.min())
            result = changed(result, traffic=changed(result.traffic, captured_ns=took))
        return msgspec.structs.replace(result, decision=decided(result))

    def by_packets(
        self,
        strategies: Sequence[str],
        progress: Tell | None = None,
        first: Callable[[Load, EngineResult], None] | None = None,
    ) -> tuple[ReplayResult, bool]:
        """Replay packet by packet with these strategies; see `replay_packets`."""
        from .packets import replay_packets

        request = self.request
        model, offer, conditions = self._packet_parts
        return replay_packets(
            self._loads(model, offer),
            self.fabric,
            [parse_packet_strategy(text) for text in expanded(strategies, packets=True)],
            model,
            request.sources,
            runs=request.runs,
            seed=request.seed,
            progress=progress,
            first=first,
            conditions=conditions,
            leave_out=ALL in strategies,
        )

    def _loads(self, model: Model, offer: str) -> Callable[[int], Load]:
        """The offered traffic of run r: the pattern with its seed + r, or the capture."""
        from .packets import Load

        request = self.request
        if request.jobs:
            from ..jobs.offered import offer_jobs

            def of_jobs(run: int) -> Load:
                jobs = tuple(self._placed_jobs(request.seed + run))
                offered = offer_jobs(jobs, self.fabric, model, request.seed + run)
                notes = tuple(note for job in jobs for note in job.notes)
                return Load(offered.workload, notes, offered=JOBS, jobs=offered, by_job=jobs)

            return of_jobs
        if request.pattern:
            from .specs import offered

            def load(run: int) -> Load:
                workload, pairs = offered(request.pattern, self.fabric, model, run)
                return Load(workload, pairs=pairs, offered="pattern")

            return load
        from ..packets.offers import captured
        from .specs import parse_shape

        traffic, warnings = mapped(self.read(messages=True), self.fabric)
        workload, notes = captured(
            traffic,
            model,
            offer=offer,
            window_ns=self._window_ns,
            shape=parse_shape(request.model),
        )
        linked = None if offer == CAPTURED else _evidence(traffic.messages)
        told = f"{offer}, by windows of {request.window}" if request.window else offer
        return lambda _run: Load(workload, (*warnings, *notes), offered=told, linked=linked)


def _evidence(sent: SentMessages | None) -> LinkEvidence | None:
    """The links between queue pairs in numbers; None if there were too many messages."""
    if sent is None:
        return None
    evidence, gaps = sent.evidence, sent.links.gap_ns
    return LinkEvidence(
        queue_pairs=evidence.flows,
        messages_tested=evidence.of,
        messages_fixed=evidence.fixed,
        fixed_percent=100 * evidence.fixed / evidence.of if evidence.of else None,
        median_gap_ns=float(np.median(gaps)) if len(gaps) else None,
        pairs_not_compared=evidence.not_compared,
    )
