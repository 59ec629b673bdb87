"""Options of a comparison as texts, common to command line, notebooks and terminal UI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event

from ...analyzer.errors import UsageError
from ...analyzer.filtering.compiler import Filter
from ...analyzer.jobs.job import Job as Log
from ...analyzer.jobs.lines import named
from ...analyzer.spec import parse_options
from ...analyzer.wire.bth import ROCE_UDP_PORT
from ...analyzer.words import choices, parse_duration, parse_size
from ..fabrics.parse import parse_fabric
from ..results import ALL_REDUCES, AggregationResult
from ..traffic.observed import traffic_from_capture
from .captured import captured_jobs
from .compare import aggregation_result, check_sizes
from .jobs import MOST_JOBS, MOST_WINDOW, Job, parse_jobs, place
from .run import Conditions
from .schemes import AllReduce, Options, Scheme, a2tp, atp, esa, ideal, no_aggregation, switchml

_RUNS = 1000
_MOST_JITTER, _MOST_SHARE = 10, 0.5


@dataclass(frozen=True)
class AggregationRequest:
    """Options of `rocescope aggregate`, see docs/aggregation.md, unchecked."""

    fabric: str
    captures: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    memory: tuple[int, ...] = (4096,)
    """Slots of each switch."""
    schemes: tuple[str, ...] = ()
    """None: all that can run the jobs."""
    runs: int = 1
    seed: int = 0
    jitter: float = 0.2
    buffer: str | None = None
    ecn: str | None = None
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    until: str = "60s"
    silence: str = "1ms"
    window: int = 400
    """Of captured jobs."""
    tap_names: Mapping[str, str] = field(default_factory=dict)
    ethers: Mapping[int, str] = field(default_factory=dict)
    """Names of the taps of captures, by path."""
    map: str = "exact"
    filter: str | None = None
    concat: bool = False
    job_logs: tuple[str, ...] = ()
    """Patterns of logs that name the ranks of queue pairs."""
    udp_ports: tuple[int, ...] = (ROCE_UDP_PORT,)


class PreparedAggregation:
    """A checked request; its captures are read once."""

    def __init__(self, request: AggregationRequest) -> None:
        """UsageError names the option and its mistake."""
        self.request = request
        _check_numbers(request)
        self._schemes = parse_schemes(request.schemes)
        check_sizes(request.memory)
        parse_jobs(request.jobs)
        if not request.jobs and not request.captures:
            raise UsageError("give captures, or jobs with --jobs")
        if not request.captures and request.job_logs:
            raise UsageError("--nccl-log needs captures")
        if not request.captures and (request.map != "exact" or request.filter or request.concat):
            raise UsageError("--map, --filter and --concat need captures")
        usual = AggregationRequest.window, AggregationRequest.silence
        if not request.captures and (request.window, request.silence) != usual:
            raise UsageError("--window and --silence need captures; --jobs has window=")
        if request.filter is not None:
            Filter(request.filter)
        self._silence_ns = parse_duration(request.silence, "--silence")
        self._conditions = Conditions(
            slots=request.memory[0],
            seed=request.seed,
            jitter=request.jitter,
            buffer_bytes=None if request.buffer is None else parse_size(request.buffer, "--buffer"),
            ecn_bytes=None if request.ecn is None else parse_size(request.ecn, "--ecn"),
            loss=request.loss,
            copies=request.duplicate,
            delays=request.reorder,
            until_ps=parse_duration(request.until, "--until") * 1000,
        )
        self.fabric = parse_fabric(request.fabric)
        self._jobs: tuple[list[Job], list[str]] | None = None
        if not request.captures:
            self.read()  # jobs that do not fit are told before anything runs

    def read(self, progress: Callable[[int, int | None], None] | None = None) -> list[Job]:
        """The jobs: those of captures, then those of specs. progress: called with the bytes read
        and the size of the captures."""
        if self._jobs is None:
            jobs, notes = self._captured(progress)
            every = [
                *jobs,
                *place(parse_jobs(self.request.jobs, len(jobs) + 1), self.fabric, jobs),
            ]
            if len(every) > MOST_JOBS:
                raise UsageError(f"{len(every):,} jobs exceed the maximum of {MOST_JOBS}")
            self._jobs = every, notes
        return self._jobs[0]

    def _captured(
        self, progress: Callable[[int, int | None], None] | None
    ) -> tuple[list[Job], list[str]]:
        request = self.request
        if not request.captures:
            return [], []
        traffic = traffic_from_capture(
            request.captures,
            self.fabric,
            request.map,
            filter=request.filter,
            concat=request.concat,
            tap_names=request.tap_names,
            ethers=request.ethers,
            udp_ports=request.udp_ports,
            messages=True,
            job=Log(named(request.job_logs)) if request.job_logs else None,
            progress=progress,
        )
        jobs, notes = captured_jobs(traffic, self.fabric, request.window, self._silence_ns)
        return jobs, [*traffic.warnings, *notes]

    def run(
        self, progress: Callable[[str, int, int], None] | None = None, stop: Event | None = None
    ) -> AggregationResult:
        """Run every scheme. progress: see `aggregation_result`. KeyboardInterrupt if stopped."""
        request, jobs = self.request, self.read()
        assert self._jobs is not None
        return aggregation_result(
            self._schemes,
            request.memory,
            jobs,
            self.fabric,
            self._conditions,
            request.runs,
            not request.schemes,
            self._jobs[1],
            progress,
            stop,
        )


def _check_numbers(request: AggregationRequest) -> None:
    if not 1 <= request.runs <= _RUNS:
        raise UsageError(f"--runs must be 1 to {_RUNS:,}, not {request.runs:,}")
    if not 0 <= request.seed < 1 << 32:
        raise UsageError(f"--seed must be 0 to {(1 << 32) - 1}, not {request.seed}")
    if not 1 <= request.window <= MOST_WINDOW:
        raise UsageError(f"--window must be 1 to {MOST_WINDOW:,}, not {request.window:,}")
    if not request.memory:
        raise UsageError("--memory needs a number of slots")
    for option in ("jitter", "loss", "duplicate", "reorder"):
        share, most = getattr(request, option), _MOST_SHARE
        if option == "jitter":
            most = _MOST_JITTER
        if not 0 <= share <= most:
            raise UsageError(f"--{option} must be 0 to {most:g}, not {share:g}")
    if request.duplicate + request.reorder > _MOST_SHARE:
        raise UsageError(f"the sum of --duplicate and --reorder must be at most {_MOST_SHARE}")


SCHEMES: Mapping[str, Callable[[Mapping[str, str]], Scheme]] = {
    "switchml": switchml,
    "atp": atp,
    "esa": esa,
    "a2tp": a2tp,
    "ideal": ideal,
    "none": no_aggregation,
}


def parse_schemes(specs: Sequence[str]) -> list[Scheme | AllReduce]:
    """Schemes of `NAME` or `NAME:key=value,...`; none given: all. UsageError for others."""
    schemes: list[Scheme | AllReduce] = []
    every = (*SCHEMES, *ALL_REDUCES)
    for spec in specs or every:
        name, _, rest = spec.partition(":")
        if name not in every:
            raise UsageError(f"there is no scheme {name!r}; {choices(name, every)}")
        given = parse_options(rest, f"scheme {name}", len(name) + 2)
        scheme: Scheme | AllReduce
        if name in SCHEMES:
            scheme = SCHEMES[name](given)
        else:
            scheme = AllReduce(name, Options(name, given, {}).values)
        if any(other.name == scheme.name for other in schemes):
            raise UsageError(f"scheme {scheme.name} is given twice")
        schemes.append(scheme)
    return schemes
