"""Replays of the session's traffic in the background: strategies, seeds, aggregation.

The strategies are those of the registry of `replay/`. Everything runs in one thread; `view` may
be read at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ...analyzer.errors import RocescopeError, UsageError
from ...analyzer.pipeline.options import AnalyzeOptions
from ...analyzer.words import scaled
from ...discovery.asking import Line
from ...discovery.dialects.dialect import Dialect
from ...kernels.kernel import Ints, UInt32s
from ...probes.rights import lower_own
from ...replay.aggregation.request import AggregationRequest, PreparedAggregation
from ...replay.compare.captured import sweep_result
from ...replay.compare.packets import COMPILING
from ...replay.compare.prepared import PreparedReplay
from ...replay.compare.request import ReplayRequest, once, sorted_out
from ...replay.compare.request import with_words as with_words_replays
from ...replay.compare.summaries import mapped
from ...replay.hashing.seeded import SeedRange
from ...replay.results import (
    AS_CAPTURED,
    ASAP,
    AggregationResult,
    LinkLoad,
    StrategyResult,
    SweepResult,
)
from ...replay.strategies.registry import PACKET_STRATEGIES, STRATEGIES, parse_strategy
from .placed import MOST_POINTS, Followed, Noted, Placed, Point, Traced, traceable, traced
from .snapshot import TRACED

# One piece of work at a time in its own thread, whose view may be read at any time.

STOPPING = "stopping"


class Shown(Protocol):
    """A frozen dataclass: progress and results of the work."""

    @property
    def running(self) -> str:
        """The step in progress; empty if there is none."""


View = TypeVar("View", bound=Shown)


class Background(Generic[View]):
    """Work whose progress, results and errors are in `view`."""

    def __init__(self, name: str, view: View) -> None:
        """name: of the thread."""
        self.view = view
        self._name = name
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock = threading.RLock()

    @property
    def running(self) -> bool:
        """Whether the work is going on."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self, wait: bool = True) -> None:
        """Ask the work to stop; it does so after the step that cannot be left."""
        self._stopping.set()
        if self.running and self.view.running:
            self._tell(running=STOPPING)
        if wait:
            self.wait()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _start(self, work: Callable[[], None]) -> None:
        """Run `work`; an exception becomes the error of the view."""

        def go() -> None:
            lower_own()
            try:
                work()
            except (RocescopeError, OSError, ValueError, MemoryError) as error:
                self._tell(error=" ".join(str(error).split()))
            except Exception as error:  # a traceback would overwrite the screen
                self._tell(error=f"{type(error).__name__}: {' '.join(str(error).split())}")
            finally:
                self._tell(running="", done=0.0)

        self._thread = threading.Thread(target=go, name=self._name, daemon=True)
        self._thread.start()

    def _tell(self, **changes: Any) -> None:
        with self._lock:
            self.view = replace(self.view, **changes)  # type: ignore[type-var]

    def _tell_read(self, done: int, total: int | None) -> None:
        """Progress of reading captures."""
        self._tell(done=done / total if total else 0.0)


HASHES = ("linux", "crc32", "toeplitz")
"""Hashes of the first sweeps."""
SEEDS = 2_000
BY_PACKET = " by packet"
"""Suffix of the names of strategies that are replayed packet by packet."""
_FIRST_SEEDS = 250
"""Seeds of the first step; each step doubles the number, so that a result appears early."""


@dataclass(frozen=True, slots=True)
class ReplayView:
    """Progress and results of the replays."""

    fabric: str
    mapping: str
    options: str = ""
    """Pattern, model, transport and failures, as on the command line."""
    running: str = ""
    """The step in progress; empty if there is none."""
    done: float = 0.0
    """Progress of this step, 0 to 1."""
    error: str = ""
    asked: tuple[str, ...] = ()
    """Keys of the latest requested strategies, whether they have run or not."""
    asked_seeds: bool = False
    """Whether seeds were requested later."""
    strategies: dict[str, StrategyResult] = field(default_factory=dict)
    """Results by request: `ecmp`, `ecmp:hash=crc32,seed=7`."""
    failed: dict[str, str] = field(default_factory=dict)
    """Strategies that failed, and the reason."""
    sweeps: dict[str, SweepResult] = field(default_factory=dict)
    """By hash."""
    warnings: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()
    """Switches whose hash and seed were recovered from the captures."""
    flows: int = 0
    traced: tuple[int, int] | None = None
    """(flows whose path is traced to the destination, all)."""
    followed: tuple[Point, ...] = ()
    """What the switches did since, while they are followed."""

    @property
    def rows(self) -> list[str]:
        """As captured, then all strategies, the latest request first; pending ones during a run."""
        known = [*self.strategies, *self.failed]
        asked = [name for name in self.asked if self.running or name in known]
        rows = asked + [name for name in known if name not in asked]
        return sorted(rows, key=lambda name: name != AS_CAPTURED)

    @property
    def pending(self) -> list[str]:
        """The strategies of `rows` that have not run; the first one is in progress."""
        return [name for name in self.rows if name not in self.strategies | self.failed]


class _Stopped(Exception):
    """Raised to end a packet-by-packet replay."""


class Replays(Background[ReplayView]):
    """The replays of some captures."""

    def __init__(self, paths: Sequence[str], options: AnalyzeOptions | None = None) -> None:
        """options: options for reading the captures, as for their analysis."""
        super().__init__("rocescope-replay", ReplayView("", "order"))
        self.placed: dict[str, Placed] = {}
        """Placements of the strategies that have run."""
        self.production: int | None = None
        """The seed of the switches; None: the seeds of the fabric."""
        reading = options or AnalyzeOptions()
        self.request = ReplayRequest(
            "",
            (),
            tuple(paths),
            tap_names=reading.tap_names,
            ethers=reading.ethers,
            map="order",
            filter=reading.filter,
            concat=reading.concat,
            udp_ports=tuple(reading.udp_ports),
        )
        self._prepared: PreparedReplay | None = None
        self._searching = False
        """Whether the thread only searches seeds, which ends for what is asked then."""
        self._hurry = threading.Event()
        self._searched = False
        self._followed: Followed | None = None

    @property
    def busy(self) -> bool:
        """Whether what is asked for now would not run; what only searches seeds makes way."""
        return self.running and not self._searching

    def set_fabric(self, spec: str, mapping: str = "order") -> None:
        """Replay on this fabric. UsageError for an invalid fabric."""
        self._set(replace(self.request, fabric=spec, map=mapping))

    def set_words(self, text: str) -> None:
        """`FABRIC [MAP] [--pattern P] [--lossless L] [--fail F]...`; see `with_words`.

        UsageError as on the command line.
        """
        self._set(with_words_replays(self.request, text))

    def _set(self, request: ReplayRequest) -> None:
        asked = request
        if request.generated:  # patterns and jobs use the hosts of the fabric
            asked = replace(request, captures=(), map="exact", filter=None, concat=False)
        elif not request.offer:  # the rate of the links, so that completion times are comparable
            asked = replace(request, offer=ASAP)
        self._prepared = PreparedReplay(asked)
        self.request = request
        self.stop()
        self.placed = {}
        self._searched = False
        self.view = ReplayView(request.fabric, request.map, request.options)

    def run(
        self, strategies: Sequence[str] | None = None, recover: SeedRange | None = None
    ) -> None:
        """Place the traffic by these strategies; default: all.

        Packet by packet if a model, a transport or failures are set. recover: then search the seeds
        of the switches in this range, and use those found.
        """
        if self.request.by_packet:
            self.by_packets(strategies)
            return
        names = list(strategies) if strategies is not None else list(STRATEGIES)

        def work(prepared: PreparedReplay) -> None:
            self._run(prepared, names)
            self._use_recovered(prepared, recover)

        self._begin(work, asked=tuple(names), asked_seeds=False)

    def trace(
        self, line: Line | None = None, dialects: Mapping[str, Dialect] | None = None
    ) -> None:
        """Trace the flows on the fabric, if hashes are known. line: then follow the switches."""

        def failed(text: str) -> None:
            self._tell(error=text)

        def work(prepared: PreparedReplay) -> None:
            self._show_traced(prepared)
            if line is not None:
                self._followed = Followed(line, dialects or {}, self._moved, failed)
                self._followed.begin(prepared.read(messages=True), prepared.fabric)

        self._begin(work, asked_seeds=False)

    def end(self) -> None:
        """End everything, also what follows switches."""
        if self._followed is not None:
            self._followed.stop()
        self.stop()

    def by_packets(self, strategies: Sequence[str] | None = None) -> None:
        """Replay packet by packet; default: all strategies."""
        names = list(strategies) if strategies is not None else [*STRATEGIES, *PACKET_STRATEGIES]
        asked = tuple(f"{name}{BY_PACKET}" for name in names)
        self._begin(lambda it: self._by_packets(it, names), asked=asked, asked_seeds=False)

    def sweep(
        self, hashes: Sequence[str] = HASHES, seeds: int = SEEDS, recover: SeedRange | None = None
    ) -> None:
        """Measure the imbalance of many seeds.

        recover: then search the seeds of the switches in this range, and use those found.
        """

        def work(prepared: PreparedReplay) -> None:
            self._sweep(prepared, list(hashes), seeds)
            if self._use_recovered(prepared, recover):
                self._sweep(prepared, list(hashes), seeds)

        self._begin(work, asked_seeds=True)

    def _begin(self, work: Callable[[PreparedReplay], None], **changes: object) -> None:
        prepared = self._prepared
        if prepared is None or self.busy:
            return
        before = self._thread if self.running else None
        self._hurry.set()
        self._stopping.clear()
        self._tell(running="reading the traffic", done=0.0, error="", **changes)

        def go() -> None:
            if before is not None:
                before.join()
            self._hurry.clear()
            self._tell(running="reading the traffic")
            traffic = prepared.read(self._tell_read, messages=True)
            self._tell(flows=len(traffic), running=AS_CAPTURED, done=0.0)
            if not self._stopping.is_set():
                work(prepared)

        self._start(go)

    def _run(self, prepared: PreparedReplay, names: list[str]) -> None:
        self._show_captured(prepared)
        if self._followed is None:
            self._show_traced(prepared)
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
            if strategy.outcome is not None and not prepared.request.generated:
                self.placed[name] = Placed(name, strategy.outcome, prepared.fabric)
            with self._lock:
                strategies = self.view.strategies | {name: result.strategies[0]}
                self._tell(strategies=strategies, warnings=tuple(result.warnings))

    def _show_captured(self, prepared: PreparedReplay) -> None:
        captured = prepared.as_captured()
        if captured is not None:
            with self._lock:
                self._tell(strategies={AS_CAPTURED: captured} | self.view.strategies)

    def _show_traced(self, prepared: PreparedReplay) -> None:
        if not prepared.request.generated and traceable(prepared.fabric):
            traffic, _ = mapped(prepared.read(messages=True), prepared.fabric)
            self._take_traced(traced(traffic, prepared.fabric), len(traffic))

    def _take_traced(self, traced: Traced | None, flows: int) -> None:
        """traced: None if no path is known now: paths of before are not shown any longer."""
        with self._lock:
            others = {name: each for name, each in self.view.strategies.items() if name != TRACED}
            if traced is None:
                self.placed.pop(TRACED, None)
                self._tell(strategies=others, traced=(0, flows))
            else:
                self.placed[TRACED] = traced.placed
                strategies = {TRACED: traced.result} | others
                self._tell(strategies=strategies, traced=(traced.known, traced.flows))

    def _moved(self, point: Point, traced: Traced | None, flows: int) -> None:
        self._tell(followed=(*self.view.followed, point)[-MOST_POINTS:])
        self._take_traced(traced, flows)

    def _by_packets(self, prepared: PreparedReplay, names: list[str]) -> None:
        self._show_captured(prepared)
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
            with self._lock:
                strategies = self.view.strategies | {shown: result.strategies[0]}
                self._tell(strategies=strategies, warnings=tuple(result.warnings))

    def _follow(self, before: float, share: float) -> Callable[[str, int, int], None]:
        """Progress callback, every few million packet hops of a strategy."""

        def follow(_what: str, hops: int, expected: int) -> None:
            if self._stopping.is_set():
                raise _Stopped
            self._tell(done=before + share * min(1.0, hops / max(1, expected)))

        return follow

    def _use_recovered(self, prepared: PreparedReplay, seeds: SeedRange | None) -> bool:
        """Search the seeds of the switches once, and place ECMP again with those found; whether
        there are any."""
        if seeds is None or self._searched or prepared.request.generated or self._stopping.is_set():
            return False
        self._searching = True
        try:
            self._recover(prepared, seeds)
        finally:
            self._searching = False
        if self.view.recovered:
            self._run(prepared, ["ecmp"])
        return bool(self.view.recovered)

    def _recover(self, prepared: PreparedReplay, seeds: SeedRange) -> None:
        from ...replay.compare.captured import with_recovered_seeds  # loads the searches

        def follow(_what: str, done: int, total: int) -> None:
            if self._stopping.is_set() or self._hurry.is_set():
                raise _Stopped
            self._tell(running="seeds of the switches", done=min(1.0, done / max(1, total)))

        try:
            recovered = with_recovered_seeds(prepared.request, prepared.fabric, seeds, follow)
        except _Stopped:
            return
        except UsageError:  # flows that do not show the sides of the links
            self._searched = True
            return
        self._searched = True
        prepared.fabric, switches = recovered
        self._tell(recovered=tuple(switches))

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


def limiting_link(result: StrategyResult) -> LinkLoad | None:
    """The busiest link of the layer with a strategy's largest load; None without load."""
    named = {link.name: link for link in result.links}
    if result.worst:
        return named[result.worst[0].link]
    layer = next(
        (row for row in result.layers if row.choice and row.max_over_mean == result.max_over_mean),
        None,
    )
    links = [link for link in result.links if layer is not None and link.layer == layer.layer]
    return max((row for row in links if row.wire_bytes), key=lambda x: x.wire_bytes, default=None)


def observed_rate(activity: Ints, src: UInt32s, bin_ns: int) -> int:
    """The most that one host sent, in bits per second: the capture does not tell rates of links.

    activity: int64[bins, flows], wire bytes in bins of `bin_ns`; src: uint32[flows], the sender of
    each flow. Rounded up to two digits, so that it is a round figure; at least 1 kb/s.
    """
    hosts, sender = np.unique(src[: activity.shape[1]], return_inverse=True)
    sent = np.zeros((len(hosts), len(activity)), np.int64)
    np.add.at(sent, sender, activity.T)
    most = int(sent.max(initial=0))
    exact = max(most * 8 * 10**9 // max(1, bin_ns), 1000)
    unit = 10 ** (len(str(exact)) - 2)
    return -(-exact // unit) * unit


def fitting_fabric(hosts: int, bits_per_second: int) -> str:
    """The default fabric: a small leaf-spine with at least this number of hosts, whose links have
    the rate that was observed. Completion times on faster links would tell nothing of this lab."""
    leaves = 2 if hosts <= 16 else 4 if hosts <= 64 else 8
    per_leaf = max(1, -(-hosts // leaves))
    spines = 4 if leaves == 2 else 8
    rate = scaled(bits_per_second, "").replace(" ", "")
    return f"leaf-spine:leaves={leaves},spines={spines},hosts={per_leaf},rate={rate},delay=500ns"


# In-network aggregation of the session's captures, or of jobs that are asked for.
#
# Everything runs in one thread; `view` may be read at any time.

_LISTS = ("jobs", "memory", "scheme")
_SINGLE = ("jitter", "loss", "buffer", "ecn", "silence", "window", "runs")


@dataclass(frozen=True, slots=True)
class AggregationView:
    """Progress and result."""

    words: str = ""
    """Fabric, host map and options, as they are typed; empty before the first run."""
    running: str = ""
    """The step in progress; empty if there is none."""
    done: float = 0.0
    """Progress of this step, 0 to 1."""
    error: str = ""
    result: AggregationResult | None = None


class Aggregations(Background[AggregationView]):
    """Comparisons of schemes, one at a time."""

    def __init__(self, paths: Sequence[str], options: AnalyzeOptions | None = None) -> None:
        """options: options for reading the captures, as for their analysis."""
        super().__init__("rocescope-aggregation", AggregationView())
        reading = options or AnalyzeOptions()
        self._captured = AggregationRequest(
            "",
            tuple(paths),
            tap_names=reading.tap_names,
            ethers=reading.ethers,
            map="order",
            filter=reading.filter,
            concat=reading.concat,
            udp_ports=tuple(reading.udp_ports),
        )
        self._prepared: PreparedAggregation | None = None

    def set_words(self, text: str) -> None:
        """`FABRIC [MAP] [--jobs J]... [--memory N]... [--scheme S]...` and other options of the
        command. Without --jobs the jobs are those of the captures. UsageError as on the command
        line."""
        prepared = PreparedAggregation(with_words(self._captured, text))
        self.stop()
        self._prepared = prepared
        self.view = AggregationView(words=text)

    def run(self) -> None:
        """Run the schemes."""
        prepared = self._prepared
        if prepared is None or self.running:
            return
        self._stopping.clear()
        self._tell(running="reading the captures", done=0.0, error="")

        def ran(step: str, done: int, total: int) -> None:
            of_runs = f"run {min(done + 1, total)} of {total}"
            self._tell(running=step if step == COMPILING else of_runs, done=done / total)

        def work() -> None:
            prepared.read(self._tell_read)
            self._tell(running="schemes", done=0.0)
            with suppress(KeyboardInterrupt):  # stopped
                self._tell(result=prepared.run(ran, self._stopping))

        self._start(work)


def with_words(captured: AggregationRequest, text: str) -> AggregationRequest:
    """The request of a line; see `Aggregations.set_words`."""
    places, given = sorted_out(text, (*_LISTS, *_SINGLE))
    for name in _SINGLE:
        once(name, given.get(name, ()))
    single: dict[str, Any] = {
        name: _single(name, values[0]) for name, values in given.items() if name in _SINGLE
    }
    request = replace(
        captured,
        fabric=places[0],
        map=places[1] if len(places) > 1 else captured.map,
        jobs=tuple(given.get("jobs", ())),
        memory=tuple(_parse_whole("memory", size) for size in given.get("memory", ["4096"])),
        schemes=tuple(given.get("scheme", ())),
        **single,
    )
    if request.jobs:
        request = replace(request, captures=(), map="exact", filter=None, concat=False)
    return request


def _parse_whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise UsageError(f"--{name} is a whole number, not {text!r}")
    return int(text)


def _single(name: str, text: str) -> int | float | str:
    if name in ("window", "runs"):
        return _parse_whole(name, text)
    if name in ("jitter", "loss"):
        try:
            return float(text)
        except ValueError:
            raise UsageError(f"--{name} is a share, not {text!r}") from None
    return text
