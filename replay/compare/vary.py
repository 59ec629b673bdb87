"""`--vary`: the same replay with other values of one or several parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import msgspec

from ...analyzer.errors import UsageError
from ..fabrics.parameters import CHANGES, RATE_AND_DELAY
from ..fabrics.parse import KINDS
from ..jobs.files import JobFiles
from ..results import ReplayResult, StrategyResult, VariedResult, VariedStrategy
from .prepared import PreparedReplay, Tell
from .request import PFC, ReplayRequest
from .specs import LOSSLESS_FIELDS, MODEL_KEYS, PATTERN_KEYS, SHAPE, TRANSPORT_FIELDS

MOST_CASES = 64
NONE = "none"
"""A value: the parameter is left out."""
WHOLE = ("lossless", "offer", "fail", "converge")
"""Options that are varied as a whole."""


class Variation(NamedTuple):
    """One `--vary`."""

    key: str
    option: str
    """Option of the parameter, or itself."""
    values: tuple[str, ...]


def parse_vary(text: str, request: ReplayRequest) -> Variation:
    """`spines=4,8,16`, `jobs.size=1MB,4MB` or `fail=none,spine1@50us`. UsageError names the key."""
    key, equals, rest = text.partition("=")
    values = tuple(filter(None, (value.strip() for value in rest.split(","))))
    if not equals or len(values) < 1:
        raise UsageError(f"--vary {text!r}: write a parameter and its values, like spines=4,8,16")
    if len(set(values)) < len(values):
        raise UsageError(f"--vary {key}: a value is given twice")
    known = _parameters(request)
    option, dot, name = key.partition(".")
    if dot and option in known and name in known[option]:
        return Variation(key, option, values)
    if key in WHOLE:
        return Variation(key, key, values)
    for option, names in known.items():
        if key in names:
            return Variation(key, option, values)
    parameters = "; ".join(f"{option}: {', '.join(names)}" for option, names in known.items())
    raise UsageError(
        f"--vary: there is no parameter {key!r} ({parameters}; whole options: {', '.join(WHOLE)})"
    )


def _parameters(request: ReplayRequest) -> dict[str, tuple[str, ...]]:
    """The parameters by option, in the order in which a name without its option is looked up."""
    kind = KINDS.get(request.fabric.partition(":")[0])
    known = {"fabric": (*(RATE_AND_DELAY if kind is None else kind.parameters), *CHANGES)}
    if request.lossless.partition(":")[0] == PFC:
        known["lossless"] = tuple(LOSSLESS_FIELDS)
    of_model = tuple(key for key in MODEL_KEYS if request.captures or key not in SHAPE)
    known |= {"model": of_model, "transport": tuple(TRANSPORT_FIELDS)}
    if not request.lossless:  # PFC is the default; a buffer is then that of `--model`
        known["lossless"] = tuple(LOSSLESS_FIELDS)
    if request.pattern:
        known["pattern"] = PATTERN_KEYS
    if request.jobs:
        from ..jobs.spec import KEYS as JOBS

        known["jobs"] = JOBS
    return known


def varied(request: ReplayRequest, variation: Variation, value: str) -> ReplayRequest:
    """The request with this value."""
    option, name = variation.option, variation.key.rpartition(".")[2]
    if option == "fail":
        return replace(request, fail=() if value == NONE else (value,))
    if option == variation.key:
        return replace(request, **{option: value})  # type: ignore[arg-type]
    if option == "jobs":
        return replace(request, jobs=tuple(_with(job, name, value) for job in request.jobs))
    text: str = getattr(request, option) or (PFC if option == "lossless" else "")
    if option in ("model", "transport"):
        return replace(request, **{option: _with(text, name, value)})  # type: ignore[arg-type]
    mark = ":"
    if option == "fabric" and text.partition(":")[0] not in KINDS:
        mark = ","  # a file
    head, _, rest = text.partition(mark)
    rest = _with(rest, name, value)
    return replace(request, **{option: f"{head}{mark}{rest}" if rest else head})  # type: ignore[arg-type]


def _with(options: str, key: str, value: str) -> str:
    """`a=1,b=2` with another value of a key."""
    parts = [part for part in options.split(",") if part and part.partition("=")[0].strip() != key]
    return ",".join(parts if value == NONE else [*parts, f"{key}={value}"])


def replay_varied(
    request: ReplayRequest, texts: Sequence[str], progress: Tell | None = None
) -> tuple[ReplayResult, bool]:
    """The replays of all combinations of values, and whether none was interrupted.

    The result is that of the first combination, with a summary of all in `varied`. UsageError
    names the parameter, before anything runs.
    """
    variations = [parse_vary(text, request) for text in texts]
    names = [variation.key for variation in variations]
    if len(
        {(variation.option, variation.key.rpartition(".")[2]) for variation in variations}
    ) < len(names):
        raise UsageError("--vary: a parameter is given twice")
    cases = list(product(*(variation.values for variation in variations)))
    if len(cases) > MOST_CASES:
        raise UsageError(f"--vary: {len(cases):,} combinations; at most {MOST_CASES} are possible")
    prepared, files = [], JobFiles()
    for values in cases:
        changed = request
        for variation, value in zip(variations, values, strict=True):
            changed = varied(changed, variation, value)
        with _named(names, values):
            prepared.append(PreparedReplay(changed, files))
    first: ReplayResult | None = None
    results: list[VariedResult] = []
    prepared.reverse()
    last: PreparedReplay | None = None
    for number, values in enumerate(cases):
        case = prepared.pop()  # what it read is dropped after the next case
        if last is not None:
            case.take_traffic(last)
        last = case
        settings = dict(zip(names, values, strict=True))
        tell = _telling(progress, number, len(cases))
        with _named(names, values):
            if case.request.by_packet:
                result, complete = case.by_packets(case.request.strategies, tell)
            else:
                result, complete = case.place(case.parsed(), tell), True
        if not complete:
            break
        first = first or result
        results += [
            VariedResult(settings=settings, strategies=list(map(_summary, result.strategies)))
        ]
    if first is None:
        return result, False
    return msgspec.structs.replace(first, varied=results), len(results) == len(cases)


@contextmanager
def _named(names: Sequence[str], values: Sequence[str]) -> Iterator[None]:
    """UsageErrors begin with the case."""
    try:
        yield
    except UsageError as error:
        settings = ", ".join(f"{n}={v}" for n, v in zip(names, values, strict=True))
        raise UsageError(f"--vary {settings}: {error}") from None


def _telling(progress: Tell | None, number: int, of: int) -> Callable[[str, int, int], None] | None:
    if progress is None:
        return None

    def tell(step: str, done: int, steps: int) -> None:
        progress(f"{number + 1} of {of}: {step}", number * steps + done, of * steps)

    return tell


def _summary(result: StrategyResult) -> VariedStrategy:
    packets = result.packets
    jobs: Iterator[tuple[str, float | None]] = (
        (job.name, None if job.completion_ns is None else job.completion_ns.mean)
        for job in (packets.jobs if packets is not None else [])
    )
    return VariedStrategy(
        name=result.name,
        title=result.title,
        parameters=result.parameters,
        completion_ns=packets.completion_ns if packets is not None else None,
        over_bound_percent=packets.over_bound_percent if packets is not None else None,
        max_queue_packets=packets.max_queue_packets.mean if packets is not None else None,
        lost_packets=packets.dropped + packets.lost_on_links if packets is not None else None,
        retransmitted_packets=packets.sent_again if packets is not None else None,
        pauses=packets.pfc.pauses if packets is not None and packets.pfc is not None else None,
        max_over_mean=result.max_over_mean,
        busy_ns=result.lower_bound_ns,
        jobs_ns=dict(jobs),
    )
