"""Training jobs, `job:kind=ddp,...`: what their ranks compute and which collectives follow.

Every rank has a CPU, which launches computations and collectives in order and runs ahead of the GPU
within a step, a GPU stream of computations, and a stream of collectives. Computations take their
nominal time times a log-normal factor of the rank and one of the step; rarely a rank pauses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.spec import Options, parse_spec
from ...analyzer.words import choices
from ..jobs.collectives import MOST_PS
from ..jobs.tasks import PLACEMENTS, SPREAD
from .nccl import Channels, Kind, Nccl, pairs, ring, tree, uneven

KINDS: Final = ("ddp", "fsdp", "pipeline", "moe")
ALGORITHMS: Final = ("ring", "tree")
LAYOUTS: Final = ("2.26", "2.20")
"""Versions of NCCL whose clear-to-send has another layout."""
COMMON: Final[Mapping[str, str]] = {
    "kind": "ddp",
    "ranks": "4",
    "steps": "10",
    "compute": "30ms",
    "size": "768KiB",
    "slice": "32KiB",
    "channels": "1",
    "qps": "1",
    "nics": "1",
    "jitter": "1%",
    "pauses": "0%",
    "launch": "40%",
    "place": SPREAD,
    "start": "0",
    "nccl": LAYOUTS[0],
}
"""Keys of all kinds with their defaults; `name` and `with` have none."""
OF_KIND: Final[Mapping[str, Mapping[str, str]]] = {
    "ddp": {"buckets": "2", "algorithm": "ring", "clip": "no"},
    "fsdp": {"layers": "3", "clip": "yes"},
    "pipeline": {"stages": "4", "micro-batches": "5", "activation": "64KiB", "chunk": "16KiB",
                 "clip": "no"},
    "moe": {"layers": "2", "exchange": "256KiB", "chunk": "16KiB", "skew": "0.3", "clip": "no"},
}  # fmt: skip
"""Keys of one kind."""
OPTIMIZER: Final = 0.05
"""Of the compute time; a third of the rest is forward, the rest backward."""
STEP_SIGMA: Final = 0.3
"""The factor of a step varies this much as those of single ranks."""
PAUSE: Final = (0.05, 0.3)
"""Length of a pause over the compute time of a step."""
CPU_PS: Final = 20_000_000
"""20 us: a CPU begins a step."""
CLIP_BYTES: Final = 4
"""Of the all-reduce of the gradients' norm."""


@dataclass(frozen=True)
class Plan:
    """One `job:`."""

    name: str
    options: Options
    kind: str
    ranks: int
    steps: int
    compute_ps: int
    size: int
    slot: int
    channels: int
    queue_pairs: int
    nics: int
    """Ranks of a host, each with an interface; tensor parallelism keeps them in step."""
    jitter: float
    pauses: float
    launch: float
    """Of the time that the GPU computes: the CPU needs it to launch the same."""
    place: str
    beside: str | None
    """Name of the job on whose hosts it runs."""
    start_ps: int
    layout: str
    clip: bool
    """A tiny all-reduce ends the step."""


def parse_plan(text: str, number: int) -> Plan:
    """The plan of `job:kind=ddp,ranks=4,...`; number: from 0, names it if the text does not."""
    _, given = parse_spec(text)
    kind = given.get("kind", COMMON["kind"])
    if kind not in KINDS:
        raise UsageError(f"job: there is no kind {kind!r}; {choices(kind, KINDS)}")
    defaults = {**COMMON, **OF_KIND[kind]}
    given.check_known([*defaults, "name", "with"], f"job:kind={kind} has no key")
    o = given.with_defaults(defaults)
    plan = Plan(
        name=o.get(
            "name", chr(ord("a") + number % 26) + (str(number // 26) if number > 25 else "")
        ),
        options=o,
        kind=kind,
        ranks=o.whole("ranks", "", 2, 1024),
        steps=o.whole("steps", "", 1, 10_000),
        compute_ps=o.time_ps("compute"),
        size=max(1, o.size("size")),
        slot=max(64, o.size("slice")),
        channels=o.whole("channels", "", 1, 32),
        queue_pairs=o.whole("qps", "", 1, 64),
        nics=o.whole("nics", "", 1, 16),
        jitter=o.share("jitter"),
        pauses=o.share("pauses"),
        launch=o.share("launch"),
        place=o.word("place", *PLACEMENTS),
        beside=o.get("with"),
        start_ps=o.time_ps("start"),
        layout=o.word("nccl", *LAYOUTS),
        clip=o.switched_on("clip"),
    )
    if not 0 < plan.compute_ps <= MOST_PS // plan.steps:
        raise UsageError("job: compute is above 0 and at most an hour over all steps")
    if kind == "pipeline" and plan.ranks % o.whole("stages", "", 2, plan.ranks):
        raise UsageError(f"job: stages={o['stages']} does not divide ranks={plan.ranks}")
    if plan.nics > 1 and kind == "pipeline":
        raise UsageError("job: nics is for kind=ddp, fsdp and moe")
    if plan.ranks % plan.nics or (plan.nics > 1 and plan.ranks < 2 * plan.nics):
        raise UsageError(f"job: ranks={plan.ranks} are no two or more hosts of nics={plan.nics}")
    return plan


HANG_PS: Final = MOST_PS
"""A computation that does not end in any run."""


@dataclass(frozen=True)
class RankFault:
    """A fault of ranks, in steps from `from_step` to before `until_step`."""

    kind: str
    """slow_compute, late_launch, hang."""
    job: str
    ranks: tuple[int, ...]
    from_step: int
    until_step: int | None
    factor: float = 1.0
    """Of compute times."""
    delay_ps: int = 0
    """Of a launch."""
    in_kernel: bool = False
    """A hang: the CPU still launches."""

    def acts(self, rank: int, step: int) -> bool:
        last = self.until_step is None or step < self.until_step
        return rank in self.ranks and self.from_step <= step and last


@dataclass
class Trained:
    """The traffic of some steps of a job."""

    nccl: Nccl
    first_step: int
    begins: list[dict[int, int]] = field(default_factory=list)
    """By step: for each rank the node with which it begins."""
    ends: list[dict[int, int]] = field(default_factory=list)
    """By step: for each rank the end of its last collective."""


def train(
    plan: Plan,
    faults: Sequence[RankFault],
    seed: int,
    generation: int = 0,
    first_step: int = 0,
    last_step: int | None = None,
) -> Trained:
    """The steps first_step to before last_step. The same seed and generation draw the same compute
    times, whatever the faults are."""
    last_step = plan.steps if last_step is None else last_step
    made = Trained(Nccl(plan.ranks, plan.queue_pairs), first_step)
    trainer = _TRAINERS[plan.kind](plan, faults, made, (seed, generation))
    for step in range(first_step, last_step):
        made.nccl.step = step
        trainer.begin(step)
        trainer.compute()
        trainer.end()
    return made


class _Trainer:
    """The ranks of a job, step by step."""

    def __init__(
        self, plan: Plan, faults: Sequence[RankFault], made: Trained, seed: tuple[int, ...]
    ) -> None:
        self.plan, self.made, self.nccl = plan, made, made.nccl
        self.faults = [fault for fault in faults if fault.job == plan.name]
        self.every = tuple(range(plan.ranks))
        self._seed = (*seed, int.from_bytes(plan.name.encode(), "little"))
        self.step = 0
        self._drawn = dict.fromkeys(self.every, 0)
        self.cpu: dict[int, list[int]] = {rank: [] for rank in self.every}
        """Latest launch of each rank; lists of one node or none, like the next two."""
        self.gpu: dict[int, list[int]] = {rank: [] for rank in self.every}
        self.stream: dict[int, list[int]] = {rank: [] for rank in self.every}
        nics = plan.nics
        self.hosts = [self.every[at : at + nics] for at in range(0, plan.ranks, nics)]
        self.rails = [
            self.channels("world" if nics == 1 else f"rail{nic}", self.every[nic::nics])
            for nic in range(nics)
        ]
        """Groups that reduce: of the n-th interface of every host."""

    def channels(self, name: str, members: tuple[int, ...], slot: int | None = None) -> Channels:
        return Channels(name, members, self.plan.channels, slot or self.plan.slot)

    # Time.

    def chance(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([*self._seed, self.step, *purpose])

    def factor(self, rank: int) -> float:
        """Of the next computation of a rank."""
        self._drawn[rank] += 1
        own = self.chance(1 + rank, self._drawn[rank]).standard_normal()
        common = self.chance(0, self._drawn[rank]).standard_normal()
        return float(np.exp(self.plan.jitter * (own + STEP_SIGMA * common)))

    def begin(self, step: int) -> None:
        """The CPU of each rank waits for the step before."""
        self.step, nccl = step, self.nccl
        self._drawn = dict.fromkeys(self.every, 0)
        begins = {}
        for rank in self.every:
            before = [*self.gpu[rank], *self.stream[rank]]
            begins[rank] = nccl.compute(rank, 0, before)
            late = sum(fault.delay_ps for fault in self.acting(rank, "late_launch"))
            late += sum(HANG_PS for f in self.acting(rank, "hang") if not f.in_kernel)
            self.cpu[rank] = [nccl.compute(rank, CPU_PS + late, [begins[rank]])]
        self.made.begins.append(begins)
        pauses = [self.chance(1 + rank, 0).random(2) for rank in self.every]
        low, high = PAUSE
        for rank, (drawn, length) in enumerate(pauses):
            if drawn < self.plan.pauses:
                paused = int((low + (high - low) * length) * self.plan.compute_ps)
                self.gpu[rank] = [nccl.compute(rank, paused, [*self.gpu[rank], *self.cpu[rank]])]
        for rank in self.every:
            if any(fault.in_kernel for fault in self.acting(rank, "hang")):
                self.gpu[rank] = [nccl.compute(rank, HANG_PS, [*self.gpu[rank], *self.cpu[rank]])]

    def acting(self, rank: int, kind: str) -> list[RankFault]:
        return [f for f in self.faults if f.kind == kind and f.acts(rank, self.step)]

    def launch(self, rank: int, share: float) -> int:
        """The CPU launches what computes for a share of the step's time."""
        takes = int(self.plan.launch * share * self.plan.compute_ps * self.factor(rank))
        self.cpu[rank] = [self.nccl.compute(rank, takes, self.cpu[rank])]
        return self.cpu[rank][0]

    def work(self, rank: int, share: float, after: Iterable[int] = ()) -> int:
        """The GPU computes for a share of the step's time as soon as the CPU begins to launch."""
        begun = self.cpu[rank]
        self.launch(rank, share)
        return self.compute_at(rank, share, [*after, *begun])

    def everyone(self, share: float, after: Mapping[int, list[int]] | None = None) -> None:
        """All ranks compute; those of a host go on together."""
        for rank in self.every:
            self.work(rank, share, [] if after is None else after[rank])
        for ranks in self.hosts:
            if len(ranks) > 1:
                done = {rank: list(self.gpu[rank]) for rank in ranks}
                for rank in ranks:
                    others = (other for other in ranks if other != rank)
                    self.gpu[rank] += [self.nccl.signal(o, rank, done[o]) for o in others]

    def compute_at(self, rank: int, share: float, after: Iterable[int]) -> int:
        takes = share * self.plan.compute_ps * self.factor(rank)
        for fault in self.acting(rank, "slow_compute"):
            takes *= fault.factor
        self.gpu[rank] = [self.nccl.compute(rank, int(takes), [*self.gpu[rank], *after])]
        return self.gpu[rank][0]

    # Collectives.

    def all_reduce(self, to: Channels, size: int, algorithm: str = "ring") -> None:
        if algorithm == "tree":
            programs = tree(self.nccl, to, size)
        else:
            programs = ring(self.nccl, to, "all_reduce", size)
        ready = {rank: [*self.gpu[rank], *self.stream[rank]] for rank in to.members}
        self._follow(self.nccl.run("all_reduce", to.name, size, programs, ready, self._launched()))

    def _launched(self) -> dict[int, int]:
        return {rank: self.cpu[rank][0] for rank in self.every}

    def _follow(self, ends: dict[int, int]) -> None:
        for rank, end in ends.items():
            self.stream[rank] = [end]

    def compute(self) -> None:
        """The computations and collectives of a step, but for its end."""
        raise NotImplementedError

    def end(self) -> None:
        """A tiny all-reduce if gradients are clipped, then the optimizer."""
        if self.plan.clip:
            for rail in self.rails:
                self.all_reduce(rail, CLIP_BYTES)
        self.made.ends.append({rank: self.stream[rank][0] for rank in self.every})
        self.everyone(OPTIMIZER, self.stream)


class _Ddp(_Trainer):
    """Buckets of gradients are reduced while the backward pass continues."""

    def compute(self) -> None:
        buckets = self.plan.options.whole("buckets", "", 1, 256)
        algorithm = self.plan.options.word("algorithm", *ALGORITHMS)
        forward, backward = _passes()
        for number in range(buckets):
            self.everyone(backward / buckets + (forward if number == 0 else 0))
            for rail in self.rails:
                self.all_reduce(rail, self.plan.size // buckets or 1, algorithm)


def _passes() -> tuple[float, float]:
    """Shares of the forward and the backward pass."""
    rest = 1 - OPTIMIZER
    return rest / 3, rest * 2 / 3


class _Fsdp(_Trainer):
    """Weights of a layer are gathered one layer ahead; gradients are scattered after each."""

    def compute(self) -> None:
        layers = self.plan.options.whole("layers", "", 1, 256)
        forward, backward = (share / layers for share in _passes())
        self._pass(layers, forward, scatters=False)
        self._pass(layers, backward, scatters=True)

    def _pass(self, layers: int, share: float, scatters: bool) -> None:
        size = self.plan.size // layers or 1
        gathered = [self._ring("all_gather", size, {rank: [] for rank in self.every})]
        for layer in range(layers):
            limit = {rank: list(self.gpu[rank]) for rank in self.every}
            if layer + 1 < layers:
                gathered.append(self._ring("all_gather", size, limit))
            self.everyone(share, {rank: [end] for rank, end in gathered[layer].items()})
            if scatters:
                after = {rank: list(self.gpu[rank]) for rank in self.every}
                self._ring("reduce_scatter", size, after)

    def _ring(self, kind: Kind, size: int, after: Mapping[int, list[int]]) -> dict[int, int]:
        ready = {rank: [*after[rank], *self.stream[rank]] for rank in self.every}
        ends: dict[int, int] = {}
        for rail in self.rails:
            programs = ring(self.nccl, rail, kind, size)
            ends |= self.nccl.run(kind, rail.name, size, programs, ready, self._launched())
        self._follow(ends)
        return ends


class _Moe(_Trainer):
    """Tokens go to experts and back in every layer, forward and backward; all ranks wait."""

    def compute(self) -> None:
        o = self.plan.options
        layers, skew = o.whole("layers", "", 1, 64), o.number("skew", least=0, most=10)
        chunk = max(64, o.size("chunk"))
        for share in _passes():
            for layer in range(layers):
                parts = []
                for rail in self.rails:
                    chance = self.chance(0, 0, layer, rail.members[0])
                    sizes = uneven(rail.members, o.size("exchange"), skew, chance)
                    back = {(b, a): size for (a, b), size in sizes.items()}
                    experts = self.channels(f"experts {rail.name}", rail.members, chunk)
                    parts.append((experts, (sizes, back)))
                for way in range(2):
                    self.everyone(share / layers / 2, self.stream)
                    for experts, both in parts:
                        self._exchange(experts, both[way])
        for rank in self.every:
            self.gpu[rank] = [*self.gpu[rank], *self.stream[rank]]
        for rail in self.rails:
            self.all_reduce(rail, self.plan.size)

    def _exchange(self, to: Channels, sizes: dict[tuple[int, int], int]) -> None:
        programs = pairs(self.nccl, to, sizes)
        ready = {rank: [*self.gpu[rank], *self.stream[rank]] for rank in to.members}
        total = sum(sizes.values())
        ends = self.nccl.run("all_to_all", to.name, total, programs, ready, self._launched())
        self._follow(ends)


class _Pipeline(_Trainer):
    """1F1B: a stage computes forward and backward in turn; then replicas reduce gradients.

    Rank = stage x replicas + replica, as Megatron numbers them."""

    def compute(self) -> None:
        o, plan = self.plan.options, self.plan
        stages = o.whole("stages", "", 2, plan.ranks)
        replicas, batches = plan.ranks // stages, o.whole("micro-batches", "", 1, 1024)
        for replica in range(replicas):
            self._replica([stage * replicas + replica for stage in range(stages)], batches)
        if replicas > 1:
            for stage in range(stages):
                members = tuple(stage * replicas + replica for replica in range(replicas))
                self.all_reduce(self.channels(f"dp{stage}", members), plan.size)

    def _replica(self, ranks: list[int], batches: int) -> None:
        forward, backward = (share / batches for share in _passes())
        orders = [_one_forward_one_backward(at, len(ranks), batches) for at in range(len(ranks))]
        begun: list[dict[tuple[int, int], int]] = [{} for _ in ranks]
        """By stage: the CPU launches the receive of a task, and begins with its computation."""
        launched: list[dict[tuple[int, int], int]] = [{} for _ in ranks]
        """The CPU launches the send of a task."""
        for at, rank in enumerate(ranks):
            for task in orders[at]:
                begun[at][task] = self.cpu[rank][0]
                launched[at][task] = self.launch(rank, backward if task[0] else forward)
        arrived: list[dict[tuple[int, int], int]] = [{} for _ in ranks]
        """By stage: the receive that a task waits for."""
        turn = [0] * len(ranks)
        while any(turn[at] < len(order) for at, order in enumerate(orders)):
            for at, rank in enumerate(ranks):
                while turn[at] < len(orders[at]):
                    task = orders[at][turn[at]]
                    back, batch = task
                    source, to = (at + 1, at - 1) if back else (at - 1, at + 1)
                    receives = 0 <= source < len(ranks)
                    if receives and task not in arrived[at]:
                        break
                    turn[at] += 1
                    after = [begun[at][task], *([arrived[at][task]] if receives else [])]
                    done = self.compute_at(rank, backward if back else forward, after)
                    if 0 <= to < len(ranks):
                        by = {rank: launched[at][task], ranks[to]: begun[to][task]}
                        arrived[to][task] = self._hand_over(rank, ranks[to], done, by)

    def _hand_over(self, rank: int, to: int, done: int, launched: dict[int, int]) -> int:
        """Send activations or gradients to a neighbour; returns the end of its receive."""
        o = self.plan.options
        channels = self.channels("pp", (rank, to), max(64, o.size("chunk")))
        size = o.size("activation")
        programs = pairs(self.nccl, channels, {(rank, to): size})
        before = self._handed.get((rank, to), {})
        ready = {rank: [done, *before.get(rank, [])], to: before.get(to, [])}
        ends = self.nccl.run("send_recv", channels.name, size, programs, ready, launched)
        self._handed[rank, to] = {each: [end] for each, end in ends.items()}
        self.stream[to] = [*self.stream[to], ends[to]]
        return ends[to]

    def begin(self, step: int) -> None:
        super().begin(step)
        self._handed: dict[tuple[int, int], dict[int, list[int]]] = {}
        self.stream = {rank: [] for rank in self.every}

    def end(self) -> None:
        for rank in self.every:
            last = self.nccl.compute(rank, 0, [*self.stream[rank], *self.gpu[rank]])
            self.stream[rank] = [last]
        super().end()


def _one_forward_one_backward(stage: int, stages: int, batches: int) -> list[tuple[int, int]]:
    """Tasks of a stage, (1 for backward, micro-batch): PipeDream-flush."""
    ahead = min(stages - stage - 1, batches)
    tasks = [(0, batch) for batch in range(ahead)]
    for batch in range(batches):
        if batch + ahead < batches:
            tasks.append((0, batch + ahead))
        tasks.append((1, batch))
    return tasks


_TRAINERS: Final[Mapping[str, type[_Trainer]]] = {
    "ddp": _Ddp,
    "fsdp": _Fsdp,
    "pipeline": _Pipeline,
    "moe": _Moe,
}
