"""What the result `jobs` of an analysis is worth, beside the truth of its run.

A run is a folder with captures and truth.json, whose form docs/jobs.md describes. Each check counts
how many of its cases are right and says what is not:

jobs        every component that the data of a job joins is in one job of the result, all queue
            pairs included, and no job of the result holds queue pairs of two
ranks       every address that sends data and gets grants through a tap has its rank; a wrong one
            is a case of its own
null        a job with fewer than three periods, or sampled, has no iterations, and a reason
boundaries  ends of steps, within 1 % of the median step; not where they are by convention
durations   of each job: median of errors at most 1 %, worst at most 2 % of the median step
straggler   an injected slow rank that costs at least 5 % of its steps is named, with its cause,
            and `waited_for` is right in these steps, if the taps show data to and from it; of
            pipelines and mixtures of experts, null is right too
clean       no other rank is named: an injected fault, or a rank that the truth says came last by
            at least 5 % of a step in most of the steps, may be
network     a fault of a link or host interface is named by a finding with `job_cost` that names
            the link or host, or by a straggler of `slow_transfers` that sends through it, from the
            first whole step; no victim is blamed
hang        the missing ranks, and no hang where there is none
cost        what a straggler or finding costs, within 1 % of the steps
share       the network's part of a step lies between its bounds; a single number is right within
            2 % of the step
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

Json = dict[str, Any]

ASKED = {
    "jobs": 100, "ranks": 100, "null": 100, "boundaries": 100, "durations": 100, "straggler": 100,
    "clean": 100, "network": 100, "hang": 100, "cost": 100, "share": 95,
}  # fmt: skip
"""Percent of the cases of each check."""
CAUSES = {"slow_compute": "late_data", "late_launch": "late_grants"}
"""Injected faults of ranks, and the cause that an analysis names."""
BLAMED = ("ddp", "fsdp")
"""Jobs whose slow ranks must be named; in others silence is right, too."""
NETWORK = ("congested_link", "slow_nic", "loss")
LEAST_SHARE = 0.05
"""Of a step: faults that cost less need not be named."""
LEAST_PERIODS = 3


@dataclass
class Check:
    """Cases of one kind."""

    right: int = 0
    of: int = 0
    problems: list[str] = field(default_factory=list)
    narrow: bool = False
    """Silence is no mistake."""

    def add(self, is_right: bool, words: str, silent: bool = False) -> None:
        """silent: if it is not right, the result says nothing."""
        if self.narrow and silent and not is_right:
            return
        self.of += 1
        self.right += is_right
        if not is_right:
            self.problems.append(words)


@dataclass
class Score:
    """Of one run, or the sum of several."""

    run: str
    checks: dict[str, Check] = field(default_factory=lambda: {name: Check() for name in ASKED})
    errors: list[float] = field(default_factory=list)
    """Errors of boundaries, percent of the median step."""
    widths: list[float] = field(default_factory=list)
    """Widths of the bounds of the network's part, percent of the step."""
    seconds: float = 0.0
    """Of the analysis."""

    def line(self) -> str:
        parts = [f"{name} {c.right}/{c.of}" for name, c in self.checks.items() if c.of]
        return f"{self.run:32}" + "  ".join(parts)


@dataclass
class Pairing:
    """A job of the result and the job of the truth whose queue pairs it holds."""

    found: Json
    true: Json
    whole: bool
    """Whether it holds all visible data of the true job."""
    steps: list[tuple[Json, Json]] = field(default_factory=list)
    """Steps of both, side by side."""

    @property
    def name(self) -> str:
        return str(self.true["name"])

    @property
    def period_ns(self) -> float:
        return median(durations(self.true).values())

    def steps_between(self, first: int, last: int) -> list[tuple[Json, Json]]:
        return [pair for pair in self.steps if first <= pair[0]["index"] <= last]


def complete(job: Json) -> list[Json]:
    """Its steps that end, in which the taps see data."""
    steps = job["steps"]
    return [s for s in steps if s["complete"] and s.get("last_message_ns") is not None]


def durations(job: Json) -> dict[tuple[int, int], int]:
    """By generation and step: time since the last message of the step before, at the taps."""
    steps = complete(job)
    return {
        (step["generation"], step["step"]): step["last_message_ns"] - before["last_message_ns"]
        for before, step in pairwise(steps)
        if before["generation"] == step["generation"]
    }


def score(
    run: str, truth: Json, result: Json, seconds: float = 0.0, *, narrow: bool = False
) -> Score:
    """The checks of an analysis in its JSON form. narrow: the captures are not all that there is:
    the result may say less, but nothing that is wrong."""
    made = Score(run, seconds=seconds)
    for check in made.checks.values():
        check.narrow = narrow
    pairings = _pair(truth, result, made.checks["jobs"])
    for job in truth["jobs"]:
        of_job = [pairing for pairing in pairings if pairing.true is job]
        _ranks(truth, job, of_job, made.checks["ranks"])
        if not of_job and _data(truth, job["name"]):
            pairings.append(Pairing(_UNKNOWN, job, False))
    for pairing in pairings:
        _match_steps(pairing)
        _steps(pairing, made)
        _stragglers(truth, pairing, made.checks)
        _hang(truth, pairing, made.checks["hang"])
        _share(pairing, made)
    for job in truth["jobs"]:
        if _causes(job, NETWORK):
            _network(job, [p for p in pairings if p.true is job], result, made.checks)
    return made


# Jobs and ranks.

_UNKNOWN: Json = {
    "id": None, "ranks": [], "iterations": None, "iterations_reason": "not recognised",
    "stragglers": [], "hang": None,
}  # fmt: skip
"""In place of a job that the result does not have, so that it fails every check."""


def _visible(truth: Json) -> set[tuple[str, str, int]]:
    """(source, destination, destination queue pair) of flows that the taps see."""
    return {(f["src"], f["dst"], f["dest_qp"]) for f in truth["flows"] if f["messages"]}


def _data(truth: Json, name: str) -> set[tuple[str, str, int]]:
    """Flows of data of a job that the taps see."""
    data = {(q["src"], q["dst"], q["dst_qp"]) for q in truth["queue_pairs"] if q["job"] == name}
    return data & _visible(truth)


def _pair(truth: Json, result: Json, check: Check) -> list[Pairing]:
    owner: dict[tuple[str, str, int], str] = {}
    for pair in truth["queue_pairs"]:
        owner[pair["src"], pair["dst"], pair["dst_qp"]] = pair["job"]
        owner[pair["dst"], pair["src"], pair["src_qp"]] = pair["job"]
    flows = {f["id"]: (f["src"], f["dst"], f["dest_qp"]) for f in result["flows"]}
    held: list[tuple[Json, set[tuple[str, str, int]]]] = []
    pairings = []
    true_jobs = {job["name"]: job for job in truth["jobs"]}
    for found in result.get("jobs") or []:
        of = {flows[flow] for flow in found["flows"]}
        names = {owner.get(flow) for flow in of}
        if len(names) != 1 or None in names:
            listed = ", ".join(sorted(name or "no job" for name in names))
            check.add(False, f"job {found['name']} holds queue pairs of {listed}")
        if None not in names and len(names) == 1:
            held.append((found, of))
            true = true_jobs[names.pop() or ""]
            pairings.append(Pairing(found, true, _data(truth, true["name"]) <= of))
    for job in truth["jobs"]:
        for component in job["visible_components"]:
            data = {f for f in _data(truth, job["name"]) if f[0] in component}
            if data:
                parts = sum(bool(data & of) for _, of in held)
                words = f"{job['name']}: {', '.join(component)} are "
                words += f"in {parts} jobs" if parts > 1 else "no job of the result"
                check.add(any(data <= of for _, of in held), words, silent=True)
    return pairings


def _ranks(truth: Json, job: Json, pairings: list[Pairing], check: Check) -> None:
    visible, data = _visible(truth), _data(truth, job["name"])
    true = {(rank["address"], rank["rank"]) for rank in job["ranks"]}
    wanted = set()
    for pair in truth["queue_pairs"]:
        ends = pair["src"], pair["dst"]
        if (*ends, pair["dst_qp"]) in data and (*ends[::-1], pair["src_qp"]) in visible:
            wanted.add((pair["src"], pair["from_rank"]))
    every = [rank for pairing in pairings for rank in pairing.found["ranks"]]
    told = {(rank["address"], rank["rank"]) for rank in every if rank["rank"] is not None}
    for address, rank in sorted(wanted):
        words = f"{job['name']}: {address} is rank {rank}: not told"
        check.add((address, rank) in told, words, silent=True)
    for address, rank in sorted(told - true):
        check.add(False, f"{job['name']}: {address} is not rank {rank}")


# Steps.


def _found_steps(job: Json) -> list[Json]:
    iterations = job["iterations"]
    return iterations["steps"] if iterations else []


def _match_steps(pairing: Pairing) -> None:
    """Each step of the truth beside the step of the result that ends nearest; both once."""
    true, found = complete(pairing.true), _found_steps(pairing.found)
    if not true or not found:
        return
    shift = 0.0
    if pairing.found["iterations"]["boundary"] == "convention":
        ends = [step["last_message_ns"] for step in true]
        shift = median(s["last_message_ns"] - _nearest(ends, s["last_message_ns"]) for s in found)
    near = sorted(
        (abs(step["last_message_ns"] - shift - other["last_message_ns"]), i, j)
        for i, step in enumerate(found)
        for j, other in enumerate(true)
    )
    taken: set[int] = set()
    matched: dict[int, int] = {}
    most = min(durations(pairing.true).values(), default=1 << 62) / 2
    for distance, i, j in near:
        if distance <= most and j not in taken and i not in matched:
            taken.add(j)
            matched[i] = j
    pairing.steps = [(found[i], true[j]) for i, j in sorted(matched.items())]


def _nearest(values: list[int], wanted: int) -> int:
    return min(values, key=lambda value: abs(value - wanted))


def _steps(pairing: Pairing, made: Score) -> None:
    lasting, checks = durations(pairing.true), made.checks
    iterations, reason = pairing.found["iterations"], pairing.found["iterations_reason"]
    if pairing.true.get("sampled"):
        words = f"{pairing.name}: iterations, but the capture is sampled"
        checks["null"].add(iterations is None and bool(reason), words)
        return
    if len(lasting) < LEAST_PERIODS:
        words = f"{pairing.name}: iterations, but the job shows fewer than {LEAST_PERIODS} periods"
        if not checks["null"].narrow:  # parts of steps at the ends are not in the truth
            checks["null"].add(iterations is None and bool(reason), words)
        return
    if iterations is None:
        told = f"{pairing.name}: no iterations ({reason})"
        checks["boundaries"].add(False, told, silent=True)
        checks["durations"].add(False, told, silent=True)
        return
    period = pairing.period_ns
    if pairing.whole and iterations["boundary"] != "convention":
        matched = {(t["generation"], t["step"]): s for s, t in pairing.steps}
        for step in complete(pairing.true):
            name = f"{pairing.name} step {step['generation']}.{step['step']}"
            found = matched.get((step["generation"], step["step"]))
            if found is None:
                checks["boundaries"].add(False, f"{name}: no step ends there", silent=True)
                continue
            error = (found["last_message_ns"] - step["last_message_ns"]) / period * 100
            made.errors.append(abs(error))
            checks["boundaries"].add(abs(error) <= 1, f"{name}: ends {error:+.2f} % of a step off")
        extra = len(_found_steps(pairing.found)) - len(pairing.steps)
        unfinished = sum(not step["complete"] for step in pairing.true["steps"])
        if extra > unfinished:
            checks["boundaries"].add(False, f"{pairing.name}: {extra} steps that are not there")
    errors = [
        abs(step["duration_ns"] - lasting[key]) / period * 100
        for step, true in pairing.steps
        if (key := (true["generation"], true["step"])) in lasting and step["duration_ns"]
    ]
    if not errors:
        checks["durations"].add(False, f"{pairing.name}: no durations", silent=True)
        return
    words = f"{pairing.name}: durations are {median(errors):.2f} % (worst {max(errors):.2f} %) off"
    checks["durations"].add(median(errors) <= 1 and max(errors) <= 2, words)


# Faults.


def _causes(job: Json, kinds: Iterable[str]) -> list[tuple[Json, Json]]:
    """(step, cause) of steps on which a fault of these kinds acts."""
    wanted = set(kinds)
    return [(s, c) for s in job["steps"] for c in s["causes"] if c["kind"] in wanted]


def _costs(step: Json) -> bool:
    """Whether a fault costs enough of a step to be named."""
    return (step.get("fault_ns") or 0) >= LEAST_SHARE * (step.get("duration_ns") or 1 << 62)


def _ranks_of(cause: Json) -> set[int]:
    return set(cause["ranks"])


def _addresses(pairing: Pairing, cause: Json) -> set[str]:
    return {r["address"] for r in pairing.true["ranks"] if r["rank"] in cause["ranks"]}


def _rank(pairing: Pairing, named: Json) -> int | None:
    """The rank of the address that is named: short captures show no ranks."""
    if named["rank"] is not None or "address" not in named:
        return named["rank"]  # type: ignore[no-any-return]
    ranks = [r["rank"] for r in pairing.true["ranks"] if r["address"] == named["address"]]
    return ranks[0] if len(ranks) == 1 else None


def _true_of(pairing: Pairing, named: Json) -> list[Json]:
    """Steps of the truth that a straggler or cost spans."""
    return [t for _, t in pairing.steps_between(named["from_step"], named["until_step"])]


def _stragglers(truth: Json, pairing: Pairing, checks: dict[str, Check]) -> None:
    data = _data(truth, pairing.name)
    told_of = {src for src, _, _ in data} & {dst for _, dst, _ in data}
    """Addresses of which the taps show what they get and what they send."""
    named = pairing.found["stragglers"]
    faults = [(s, c) for s, c in _causes(pairing.true, CAUSES) if s["complete"]]
    costly = [(step, cause) for step, cause in faults if _costs(step)]
    injected = {(frozenset(_ranks_of(c)), CAUSES[c["kind"]]) for _, c in costly}
    for ranks, cause in injected:
        addresses = _addresses(pairing, {"ranks": ranks})
        if not pairing.whole and not addresses & set(pairing.found.get("addresses", addresses)):
            continue  # a part of the job without that host
        if not addresses & told_of:
            continue
        who = " or ".join(map(str, sorted(ranks)))
        here = [s for s in named if _rank(pairing, s) in ranks]
        if not here and pairing.true["kind"] not in BLAMED:
            continue
        words = f"{pairing.name}: rank {who} ({cause}) is not named"
        told = f", but {[(s['rank'], s['cause']) for s in named]}" if named else ""
        checks["straggler"].add(any(s["cause"] == cause for s in here), words + told, not here)
    if pairing.true["kind"] in BLAMED:
        found = {(t["generation"], t["step"]): s for s, t in pairing.steps}
        for step, cause in costly:
            if not _addresses(pairing, cause) & told_of:
                continue
            here_step = found.get((step["generation"], step["step"]))
            if here_step is not None:
                words = f"{pairing.name} step {step['step']}: waited for {here_step['waited_for']}"
                waited_for = here_step["waited_for"]
                is_right = waited_for in _ranks_of(cause)
                checks["straggler"].add(is_right, words, waited_for is None)
    slow = _causes(pairing.true, NETWORK)
    through = {address for _, cause in slow for address in cause.get("sources", [])}
    blamed = 0
    for straggler in named:
        steps = _true_of(pairing, straggler)
        ranks = {rank for _, cause in faults for rank in _ranks_of(cause)}
        is_true = _rank(pairing, straggler) in ranks and any(step["causes"] for step in steps)
        who_is = _rank(pairing, straggler)
        late = [s for s in steps if s.get("last_rank") == who_is and _waits(s, pairing)]
        acts = any(cause["kind"] in NETWORK for step in steps for cause in step["causes"])
        is_true |= not acts and len(late) * 2 > len(steps)
        if straggler["cause"] == "slow_transfers":
            is_true = straggler["address"] in through or who_is in {
                rank for _, cause in slow for rank in _ranks_of(cause)
            }
        if not is_true:
            blamed += 1
            who = f"rank {straggler['rank']} ({straggler['address']}, {straggler['cause']})"
            checks["clean"].add(False, f"{pairing.name}: {who} is named")
    if not blamed:
        checks["clean"].add(True, "")
    for straggler in named:
        if _rank(pairing, straggler) in {rank for ranks, _ in injected for rank in ranks}:
            words = f"{pairing.name}: wait of rank {straggler['rank']}"
            _cost(pairing, straggler, straggler["wait_ns"], words, checks["cost"])


def _waits(step: Json, pairing: Pairing) -> bool:
    return bool(step["waited_ns"] >= LEAST_SHARE * pairing.period_ns)


def _cost(pairing: Pairing, span: Json, cost_ns: int, words: str, check: Check) -> None:
    steps = _true_of(pairing, span)
    if not steps or any(step.get("fault_ns") is None for step in steps):
        return
    error = (cost_ns - sum(s["fault_ns"] for s in steps)) / len(steps) / pairing.period_ns * 100
    check.add(abs(error) <= 1, f"{words} is {error:+.2f} % of a step off")


def _network(true: Json, pairings: list[Pairing], result: Json, checks: dict[str, Check]) -> None:
    """Any part of the job may name the fault; a link that no tap is at, by what the taps see."""
    acting = [(s, c) for s, c in _causes(true, NETWORK) if s["complete"]]
    if not any(_costs(step) for step, _ in acting):
        return
    first, cause = acting[0]
    hosts = {r["address"] for r in true["ranks"] if r["rank"] in cause["ranks"]}
    link = "-".join(sorted((cause.get("link") or "").split(">")))
    taps = [tap["name"] for capture in result.get("captures", ()) for tap in capture["taps"]]
    is_tapped = any(link in tap for tap in taps)
    ordinals = {_key(step): number for number, step in enumerate(true["steps"])}
    sources = set(cause.get("sources", ())) | hosts
    begins = []
    for pairing in pairings:
        named: list[tuple[Json, int]] = []
        for finding in result["diagnosis"]["findings"]:
            text = finding["sentence"] + str(finding["place"])
            hit = {flow["src"] for flow in finding.get("affected", ())}
            if (
                (link and link in text)
                or any(host in text for host in hosts)
                or (link and not is_tapped and hit and hit <= sources)
            ):
                costs = finding.get("job_cost") or []
                costs = costs if isinstance(costs, list) else [costs]
                named += [(c, c["cost_ns"]) for c in costs if c["job"] == pairing.found["id"]]
        for straggler in pairing.found["stragglers"]:
            if straggler["cause"] == "slow_transfers" and straggler["address"] in sources:
                named.append((straggler, straggler["wait_ns"]))
        begins += [
            ordinals[_key(steps[0])] - ordinals[_key(first)]
            for span, _ in named
            if (steps := _true_of(pairing, span))
        ]
        for span, cost_ns in named:
            words = f"{pairing.name}: cost of {link or hosts}"
            _cost(pairing, span, cost_ns, words, checks["cost"])
    where = link or ", ".join(sorted(hosts))
    words = f"{true['name']}: nothing names {where}"
    if begins:
        words = f"{true['name']}: {where} is named {min(begins, key=abs):+d} steps from its onset"
    checks["network"].add(any(0 <= begin <= 1 for begin in begins), words, not begins)


def _key(step: Json) -> tuple[int, int]:
    return step["generation"], step["step"]


def _hang(truth: Json, pairing: Pairing, check: Check) -> None:
    hang, found = truth["hang"], pairing.found["hang"]
    if not hang or hang["job"] != pairing.name:
        check.add(found is None, f"{pairing.name}: a hang where there is none")
        return
    ranks = {r["rank"] for r in pairing.true["ranks"] if r["host"] == hang["host"]}
    ranks = set(hang.get("ranks", ranks))
    if found is None:
        check.add(
            False, f"{pairing.name}: the hang of rank {sorted(ranks)} is not told", silent=True
        )
        return
    missing = {_rank(pairing, rank) for rank in found["missing"]}
    words = f"{pairing.name}: ranks {sorted(ranks)} hang, told: {missing}"
    check.add(missing == ranks, words, not missing)
    restarted = any(restart["job"] == pairing.name for restart in truth["restarts"])
    words = f"{pairing.name}: the hang {'ends' if restarted else 'does not end'}"
    check.add((found["until_ns"] is not None) == restarted, words)


def _share(pairing: Pairing, made: Score) -> None:
    for step, true in pairing.steps:
        actual, lasts = true.get("network_ns"), true.get("duration_ns")
        if actual is None or step["duration_ns"] is None:
            continue
        name = f"{pairing.name} step {true['generation']}.{true['step']}: network {actual:,} ns"
        if step["network_ns"] is not None:
            error = (step["network_ns"] - actual) / lasts * 100
            made.checks["share"].add(abs(error) <= 2, f"{name}, told {error:+.1f} % of the step")
        elif step["network_low_ns"] is not None and step["network_high_ns"] is not None:
            low, high = step["network_low_ns"], step["network_high_ns"]
            made.widths.append((high - low) / lasts * 100)
            words = f"{name} of {lasts:,}, told {low:,} to {high:,}"
            made.checks["share"].add(low <= actual <= high, words)


# Tables.


def table(scores: list[Score]) -> str:
    """Checks of all runs, beside what is asked."""
    right, of = Counter[str](), Counter[str]()
    for made in scores:
        for name, check in made.checks.items():
            right[name] += check.right
            of[name] += check.of
    lines = [f"{'check':12}{'right':>7}{'of':>7}{'percent':>9}{'asked':>7}"]
    for name, asked in ASKED.items():
        share = f"{right[name] / of[name] * 100:.1f}" if of[name] else "-"
        lines.append(f"{name:12}{right[name]:7}{of[name]:7}{share:>9}{asked:7}")
    errors = sorted(error for made in scores for error in made.errors)
    if errors:
        lines.append(
            f"boundaries: median {median(errors):.2f} %, worst {errors[-1]:.2f} % of a step"
        )
    widths = [width for made in scores for width in made.widths]
    if widths:
        lines.append(f"share: bounds are {median(widths):.1f} % of a step wide (median)")
    return "\n".join(lines)
