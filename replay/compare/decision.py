"""The answer of a replay in at most five lines: what another strategy saves, and the cheapest one.

Strategies are compared with the captured placement if all links with a choice were captured, else
with ECMP, else with the first strategy. The measure is the time of a step if there is one job with
iterations, else the completion, of whole flows the time for which the busiest link is busy. Two
strategies whose runs overlap do not differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...analyzer.words import duration
from ..results import (
    AS_CAPTURED,
    ASAP,
    CAPTURED,
    CLOSED,
    Chance,
    Decision,
    Distribution,
    Production,
    ReplayResult,
    SeedValue,
    Spread,
    StrategyResult,
    short_titles,
)

EFFORT = (
    ("another hash", frozenset({"ecmp", "ecmp-qpn", "wcmp"})),
    ("more queue pairs per connection", frozenset({"subflow"})),
    (
        "a change of hosts alone",
        frozenset({"host-spray", "host-dr", "reps", "plb", "hopper", "mixed", "bitmap", "mrc"}),
    ),
    ("other routes, no new switches", frozenset({"static", "srv6", "assign"})),
)
"""What a strategy takes, the cheapest first; all others need switches that have them."""
MOST_OF_IT = 0.5
"""Share of the best saving that a cheaper change must bring."""
ALIKE = 0.001
"""Times of single runs that differ by less are equal: clocks and ties set them."""
OFF = 0.1
"""A replay of the baseline that misses the captured time by more is no picture of it."""

_OFFERS = {
    CAPTURED: "Packets are sent at their captured times (--offer captured, default): a strategy "
    "can delay but not speed them up; --offer closed lets messages follow what they waited for.",
    CLOSED: "Replayed in a closed loop (--offer closed): messages follow what they waited for, "
    "computing gaps are kept.",
    ASAP: "Replayed as fast as possible (--offer asap): messages follow at once what they waited "
    "for.",
}


class _Row(NamedTuple):
    title: str
    result: StrategyResult
    time: Spread


def decided(result: ReplayResult) -> Decision | None:
    """The decision; None if no strategy has a time."""
    rows, unit = _rows(result.strategies)
    if not rows:
        return None
    base = _baseline(rows, result.strategies)
    if base.result.name != AS_CAPTURED:  # the captured links alone are not comparable
        rows = [row for row in rows if row.result.name != AS_CAPTURED]
    faster = [row for row in rows if not _alike(base, row)]
    best, differs = min(faster, key=lambda row: row.time.mean, default=base), bool(faster)
    saved = base.time.mean - best.time.mean
    cheap = _cheapest(faster, base, saved)
    lines = [
        _measured(result, base, unit),
        _best(rows, base, best, unit),
        *([_cheap_text(cheap, best, base, saved)] if differs else []),
        *_bound(best, unit),
    ]
    titles = short_titles(result.strategies)
    pairs = zip(titles, result.strategies, strict=True)
    if missing := [title for title, row in pairs if row.packets and not _complete(row)]:
        lines.append(f"Not complete in every run, and not compared: {', '.join(missing)}.")
    return Decision(
        lines=lines,
        unit=unit,
        baseline=base.title,
        baseline_ns=base.time.mean,
        best=best.title if differs else None,
        saved_ns=saved if differs else None,
        saved_percent=100 * saved / base.time.mean if differs else None,
        cheapest=cheap.title if cheap is not None else None,
    )


def _rows(strategies: Sequence[StrategyResult]) -> tuple[list[_Row], str]:
    """The strategies with a time, and its name."""
    titles = short_titles(strategies)
    by_packet = [row for row in strategies if row.packets is not None]
    steps = [_step(row) for row in by_packet]
    is_step = bool(steps) and all(
        step is not None or not _complete(row) for step, row in zip(steps, by_packet, strict=True)
    )
    rows = []
    for title, row in zip(titles, strategies, strict=True):
        if row.packets is not None:
            time = _step(row) if is_step else row.packets.completion_ns
            time = time if _complete(row) else None
        elif by_packet or row.lower_bound_ns is None:
            time = None
        else:
            time = Spread(min=row.lower_bound_ns, mean=row.lower_bound_ns, max=row.lower_bound_ns)
        if time is not None and time.mean > 0:
            rows.append(_Row(title, row, time))
    return rows, "step" if is_step else "completion" if by_packet else "busiest link"


def _step(row: StrategyResult) -> Spread | None:
    """The iterations of the only job, in one run: several runs have no spread of their steps."""
    packets = row.packets
    if packets is None or packets.runs > 1 or len(packets.jobs) != 1:
        return None
    return packets.jobs[0].iteration_ns


def _complete(row: StrategyResult) -> bool:
    return row.packets is not None and row.packets.completed_runs == row.packets.runs


def _baseline(rows: Sequence[_Row], every: Sequence[StrategyResult]) -> _Row:
    """The captured placement, if it covers all links with a choice; else ECMP; else the first."""
    if rows[0].result.name == AS_CAPTURED:
        links = [sum(layer.links for layer in row.layers if layer.choice) for row in every]
        if links[0] == max(links):
            return rows[0]
    others = [row for row in rows if row.result.name != AS_CAPTURED] or list(rows)
    return next((row for row in others if row.result.name == "ecmp"), others[0])


def _alike(base: _Row, other: _Row) -> bool:
    """Whether the times of all runs overlap, or those of single runs are equal."""
    return other.time.max >= base.time.min * (1 - ALIKE)


def _effort(row: _Row) -> int:
    """Rank in EFFORT, or its length."""
    name = row.result.name
    return next((i for i, (_, names) in enumerate(EFFORT) if name in names), len(EFFORT))


def _cheapest(faster: Sequence[_Row], base: _Row, saved: float) -> _Row | None:
    """The strategy of least effort that brings MOST_OF_IT; the fastest of those alike."""
    enough = [row for row in faster if base.time.mean - row.time.mean >= MOST_OF_IT * saved]
    return min(enough, key=lambda row: (_effort(row), row.time.mean), default=None)


def _measured(result: ReplayResult, base: _Row, unit: str) -> str:
    """What the capture shows, and how it is replayed."""
    took, packets = result.traffic.captured_ns, base.result.packets
    if took is None:
        return "Measured: nothing, the traffic is generated; all times are simulated."
    text = f"Measured: the captured packets span {duration(took)}."
    if packets is None:
        return (
            f"{text} Whole flows have no queues: a time here is how long the busiest link needs "
            "for its bytes; --offer closed simulates packets."
        )
    offer = packets.model.get("offer", "").partition(",")[0]
    text = f"{text} {_OFFERS[offer]}"
    off = base.time.mean / took - 1 if took else 0.0
    if unit == "completion" and abs(off) > OFF:
        less = "less" if off < 0 else "more"
        text += (
            f" The replay of {base.title} takes {_percent(abs(off))} {less} than the capture: "
            "compare strategies with each other, not with the capture."
        )
    return text


def _best(rows: Sequence[_Row], base: _Row, best: _Row, unit: str) -> str:
    runs = 0 if base.result.packets is None else base.result.packets.runs
    what = "steps" if unit == "step" else "runs"
    against = f"{base.title} ({duration(base.time.mean)}{_spread(base.time, what)})"
    if len(rows) == 1:
        return f"Only {against} has a time to compare: name another strategy with -s."
    if best is base:
        if base.time.min != base.time.max:
            return f"Best: no difference; nothing is faster than {against} beyond the spread."
        return f"Best: no difference; no strategy is more than 0.1 % faster than {against}."
    saved = base.time.mean - best.time.mean
    text = (
        f"Best: {best.title}, {duration(best.time.mean)}{_spread(best.time, what)}: saves "
        f"{duration(saved)} ({_percent(saved / base.time.mean)}) against {against}."
    )
    return f"{text} One run each: --runs 10 shows the spread over seeds." if runs == 1 else text


def _cheap_text(cheap: _Row | None, best: _Row, base: _Row, saved: float) -> str:
    """The least change that brings most of what the best strategy saves."""
    seeds, packets = base.time.mean - base.time.min, base.result.packets
    if seeds >= MOST_OF_IT * saved and packets is not None and _only_seeds_differ(base):
        return (
            f"Cheapest: another seed of {base.title}: the best of {packets.runs:,} takes "
            f"{duration(base.time.min)}, {duration(seeds)} less than their mean, "
            f"{_percent(seeds / saved)} of it."
        )
    if cheap is not None and cheap is not best:
        part = base.time.mean - cheap.time.mean
        return (
            f"Cheapest: {cheap.title} ({_takes(cheap, base)}) saves {duration(part)}, "
            f"{_percent(part / saved)} of it."
        )
    text = f"Cheapest: {best.title} itself ({_takes(best, base)})"
    return f"{text}; no cheaper strategy of this replay brings half of what it saves."


def _only_seeds_differ(base: _Row) -> bool:
    """Whether the runs had the same traffic, that of a capture, and other seeds of the hash."""
    packets, seeds = base.result.packets, base.result.parameters.get("seed", "")
    offer = "" if packets is None else packets.model.get("offer", "")
    return " to " in seeds and offer.partition(",")[0] in _OFFERS


def _takes(row: _Row, base: _Row) -> str:
    effort = _effort(row)
    if row.result.name == base.result.name == "ecmp":
        return "another hash or seed"
    return EFFORT[effort][0] if effort < len(EFFORT) else "switches that have it"


def _bound(best: _Row, unit: str) -> list[str]:
    """The lower bound of any load balancing, of completion; of whole flows that of the solver."""
    packets, bound = best.result.packets, best.result.lower_bound_ns
    if unit != "completion" or packets is None or bound is None:
        return []
    over = best.time.mean / bound - 1
    text = f"Bound: no load balancing completes before {duration(bound)} ({packets.bound})"
    return [f"{text}; {best.title} is {_percent(over)} above."]


def seed_decided(
    best: SeedValue, over: Distribution, in_use: Production | None, chance: Chance, measure: str
) -> str:
    """What the best seed of a sweep changes against the seed in use, else the median seed."""
    random = f"ideal random hashing gives {_value(chance.mean, measure)}"
    if over.max - over.min <= ALIKE * over.max:
        return (
            f"No difference: every seed has an imbalance of {_value(over.min, measure)}; {random}."
        )
    name = "the median seed" if in_use is None else "the seed in use"
    now = over.quantiles["p50"] if in_use is None else in_use.value
    text = f"Best: seed {best.seed}, imbalance {_value(best.value, measure)}"
    if now > best.value * (1 + ALIKE):
        less = _percent(1 - best.value / now)
        text += f" in place of {_value(now, measure)} with {name} ({less} less)"
    else:
        text += f", no better than {name}"
    if in_use is not None:
        text += (
            f"; {in_use.better_seeds:,} seeds are better than the seed in use, "
            f"{in_use.percentile:.1f} % are worse"
        )
    return f"{text}; {random}."


def _value(value: float, measure: str) -> str:
    """`33.3 %` of a FIM, `1.50 times the fair share` of a largest load."""
    if measure.startswith("fim"):
        return f"{value:.1f} %"
    return f"{value:.2f} times the fair share"


def _spread(time: Spread, what: str) -> str:
    """The range of the runs or steps, if they differ."""
    low, high = duration(time.min), duration(time.max)
    return "" if low == high else f", {what} {low} to {high}"


def _percent(share: float) -> str:
    return ">99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"
