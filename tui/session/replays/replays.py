"""Replays of the session's capture: strategies one after another, seeds in sweeps. No screen here.

Which strategies there are is asked of the replay's registry, so new ones appear
by themselves. Everything runs in one thread; `view` may be read at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ....analyzer.analysis.options import AnalyzeOptions
from ....analyzer.errors import RocescopeError
from ....probes.rights.priority import lower_own
from ....replay.compare.prepared import PreparedReplay
from ....replay.compare.request import ReplayRequest, with_words
from ....replay.compare.seeds import sweep_result
from ....replay.compare.specs.words import ASAP
from ....replay.hashing.seeding import SeedRange
from ....replay.results.replay import LinkLoad, StrategyResult
from ....replay.results.sweep import SweepResult
from ....replay.strategies.registry import PACKET_STRATEGIES, STRATEGIES, parse_strategy
from .placed import Noted, Placed

HASHES = ("linux", "crc32", "toeplitz")
"""Hashes swept at first."""
SEEDS = 2_000
STOPPING = "stopping"
BY_PACKET = " by packet"
"""Behind the names of strategies replayed packet by packet."""
_FIRST_SEEDS = 250
"""A first look; twice as many each time, so that the picture sharpens."""


@dataclass(frozen=True, slots=True)
class ReplayView:
    """How far the replays have come."""

    fabric: str
    mapping: str
    options: str = ""
    """Pattern, model, transport and failures, as on the command line."""
    running: str = ""
    """What is going on, empty when nothing is."""
    done: float = 0.0
    """Of what is going on, 0 to 1."""
    error: str = ""
    asked: tuple[str, ...] = ()
    """Keys of the strategies that were asked for last, whether they have run or not."""
    asked_seeds: bool = False
    """Whether seeds were asked for since."""
    strategies: dict[str, StrategyResult] = field(default_factory=dict)
    """By what was asked for: `ecmp`, `ecmp:hash=crc32,seed=7`."""
    failed: dict[str, str] = field(default_factory=dict)
    """Strategies that cannot run here, and why."""
    sweeps: dict[str, SweepResult] = field(default_factory=dict)
    """By hash."""
    warnings: tuple[str, ...] = ()
    flows: int = 0

    @property
    def rows(self) -> list[str]:
        """All strategies, those that were asked for last first; pending ones while it runs."""
        known = [*self.strategies, *self.failed]
        asked = [name for name in self.asked if self.running or name in known]
        return asked + [name for name in known if name not in asked]

    @property
    def pending(self) -> list[str]:
        """Those of `rows` that have not run; the first of them is under way."""
        return [name for name in self.rows if name not in self.strategies | self.failed]


class _Stopped(Exception):
    """Ends the packets of a strategy that is under way."""


class Replays:
    """The replays of some captures."""

    def __init__(self, paths: Sequence[str], options: AnalyzeOptions | None = None) -> None:
        """options: how the captures are read, as for their analysis."""
        self.view = ReplayView("", "order")
        self.placed: dict[str, Placed] = {}
        """Where the strategies that ran put the flows."""
        self.production: int | None = None
        """The seed the switches use; None for what the fabric says."""
        reading = options or AnalyzeOptions()
        # Messages are offered as fast as links take them, so that completion times compare.
        self.request = ReplayRequest(
            "",
            (),
            tuple(paths),
            map="order",
            filter=reading.filter,
            concat=reading.concat,
            udp_ports=tuple(reading.udp_ports),
            offer=ASAP,
        )
        self._prepared: PreparedReplay | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    @property
    def running(self) -> bool:
        """Whether a replay goes on."""
        return self._thread is not None and self._thread.is_alive()

    def set_fabric(self, spec: str, mapping: str = "order") -> None:
        """Replay on this fabric. UsageError for what is none."""
        self._set(replace(self.request, fabric=spec, map=mapping))

    def set_words(self, text: str) -> None:
        """`FABRIC [MAP] [--pattern P] [--model M] [--transport T] [--fail F]... [--converge G]`.

        UsageError for what the command line would refuse.
        """
        self._set(with_words(self.request, text))

    def _set(self, request: ReplayRequest) -> None:
        asked = request
        if request.pattern:  # its hosts are those of the fabric
            asked = replace(request, captures=(), map="exact", filter=None, concat=False)
        self._prepared = PreparedReplay(asked)
        self.request = request
        self.stop()
        self.placed = {}
        self.view = ReplayView(request.fabric, request.map, request.options)

    def run(self, strategies: Sequence[str] | None = None) -> None:
        """Place the traffic by these strategies, all known ones unless given.

        Packet by packet where a model, a transport or failures are set.
        """
        if self.request.by_packet:
            self.by_packets(strategies)
            return
        names = list(strategies) if strategies is not None else list(STRATEGIES)
        self._begin(lambda it: self._run(it, names), asked=tuple(names), asked_seeds=False)

    def by_packets(self, strategies: Sequence[str] | None = None) -> None:
        """Replay packet by packet: all strategies of the registries unless given."""
        names = list(strategies) if strategies is not None else [*STRATEGIES, *PACKET_STRATEGIES]
        asked = tuple(f"{name}{BY_PACKET}" for name in names)
        self._begin(lambda it: self._by_packets(it, names), asked=asked, asked_seeds=False)

    def sweep(self, hashes: Sequence[str] = HASHES, seeds: int = SEEDS) -> None:
        """Measure the imbalance of many seeds."""
        self._begin(lambda it: self._sweep(it, list(hashes), seeds), asked_seeds=True)

    def stop(self, wait: bool = True) -> None:
        """End after the strategy or the seeds that are under way; packets stop at once."""
        self._stopping.set()
        if self.running and self.view.running:
            self._tell(running=STOPPING)
        if wait:
            self.wait()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _begin(self, work: Callable[[PreparedReplay], None], **changes: object) -> None:
        prepared = self._prepared
        if prepared is None or self.running:
            return
        self._stopping.clear()
        self._tell(running="reading the traffic", done=0.0, error="", **changes)

        def read(done: int, total: int | None) -> None:
            self._tell(done=done / total if total else 0.0)

        def go() -> None:
            lower_own()
            try:
                traffic = prepared.read(read, messages=True)
                self._tell(flows=len(traffic))
                if not self._stopping.is_set():
                    work(prepared)
            except (RocescopeError, OSError, ValueError, MemoryError) as error:
                self._tell(error=" ".join(str(error).split()))
            except Exception as error:  # a traceback would be printed over the screen
                self._tell(error=f"{type(error).__name__}: {' '.join(str(error).split())}")
            finally:
                self._tell(running="", done=0.0)

        self._thread = threading.Thread(target=go, name="rocescope-replay", daemon=True)
        self._thread.start()

    def _run(self, prepared: PreparedReplay, names: list[str]) -> None:
        for number, name in enumerate(names):
            if self._stopping.is_set():
                return
            self._tell(running=name, done=number / len(names))
            try:
                strategy = Noted(parse_strategy(name))
                result = prepared.place([strategy])
            except RocescopeError as error:
                self._tell(failed=self.view.failed | {name: str(error)})
                continue
            strategies = self.view.strategies | {name: result.strategies[0]}
            if strategy.outcome is not None and not prepared.request.pattern:
                self.placed[name] = Placed(name, strategy.outcome, prepared.fabric)
            self._tell(strategies=strategies, warnings=tuple(result.warnings))

    def _by_packets(self, prepared: PreparedReplay, names: list[str]) -> None:
        for number, name in enumerate(names):
            if self._stopping.is_set():
                return
            self._tell(running=f"{name}, packet by packet", done=number / len(names))
            shown = f"{name}{BY_PACKET}"
            try:
                follow = self._follow(number / len(names), 1 / len(names))
                result, _ = prepared.by_packets([name], follow)
            except _Stopped:
                return
            except RocescopeError as error:
                self._tell(failed=self.view.failed | {shown: str(error)})
                continue
            strategies = self.view.strategies | {shown: result.strategies[0]}
            self._tell(strategies=strategies, warnings=tuple(result.warnings))

    def _follow(self, before: float, share: float) -> Callable[[str, int, int], None]:
        """Told every few million packet hops of a strategy, which is a share of what is asked."""

        def follow(_what: str, hops: int, expected: int) -> None:
            if self._stopping.is_set():
                raise _Stopped
            self._tell(done=before + share * min(1.0, hops / max(1, expected)))

        return follow

    def _sweep(self, prepared: PreparedReplay, hashes: list[str], seeds: int) -> None:
        for name in hashes:
            end = 0
            while end < seeds:
                if self._stopping.is_set():
                    return
                end = min(max(_FIRST_SEEDS, 2 * end), seeds)
                self._tell(running=f"{end:,} seeds of {name}", done=end / seeds)
                result = sweep_result(
                    prepared.read(messages=True),
                    prepared.fabric,
                    {"hash": name},
                    SeedRange(0, end, 1),
                    "different",
                    "max-over-mean",
                    self.production,
                    prepared.request.sources,
                )
                self._tell(sweeps=self.view.sweeps | {name: result})

    def _tell(self, **changes: object) -> None:
        with self._lock:
            self.view = replace(self.view, **changes)  # type: ignore[arg-type]


def limiting_link(result: StrategyResult) -> LinkLoad | None:
    """The fullest link of the layer that a strategy's largest load is of; None without load."""
    named = {link.name: link for link in result.links}
    if result.worst:
        return named[result.worst[0].link]
    layer = next(
        (one for one in result.layers if one.choice and one.max_over_mean == result.max_over_mean),
        None,
    )
    links = [link for link in result.links if layer is not None and link.layer == layer.layer]
    return max((one for one in links if one.wire_bytes), key=lambda x: x.wire_bytes, default=None)


def fitting_fabric(hosts: int) -> str:
    """A small leaf-spine fabric with room for so many hosts, to begin with."""
    leaves = 2 if hosts <= 16 else 4 if hosts <= 64 else 8
    per_leaf = max(1, -(-hosts // leaves))
    spines = 4 if leaves == 2 else 8
    return f"leaf-spine:leaves={leaves},spines={spines},hosts={per_leaf},rate=100G,delay=500ns"
