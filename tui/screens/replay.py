"""Screen 9: the same traffic with other strategies and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap
from time import monotonic

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from ...analyzer.errors import RocescopeError
from ...analyzer.words import printable
from ...kernels.kernel import compiling
from ...replay.hashing.seeded import SeedRange
from ...replay.results import PauseSummary, StrategyResult
from ...report import human
from ..grid import Cell, Grid, GridColumn
from ..session import words
from ..session.replays import (
    BY_PACKET,
    SEEDS,
    STOPPING,
    ReplayView,
    fitting_fabric,
    limiting_link,
    observed_rate,
)
from ..session.snapshot import Snapshot
from ..strips import StripAxis, strip
from .base import RoceScreen, own_bindings
from .packets import RECORDING
from .prompts import TextPrompt

COLUMNS = (
    GridColumn("name", "STRATEGY", 16),
    GridColumn("with", "WITH", 20, priority=3, grows=True, most=60),
    GridColumn("max", "BUSIEST", 8, True),
    GridColumn("bar", "(1.00 is fair)", 14, priority=2, grows=True, most=24),
    GridColumn("fim", "FIM %", 6, True),
    GridColumn("done", "TIME", 8, True, 1),
    GridColumn("time", "TIME/BOUND", 10, True, 1),
    GridColumn("bound", "LOWER BOUND", 11, True, 5),
    GridColumn("queue", "QUEUE", 6, True, 1),
    GridColumn("order", "LATE %", 6, True, 1),
    GridColumn("against", "VS FIRST", 8, True, 1),
    GridColumn("link", "BUSIEST LINK", 18, priority=4),
)
_NONE: Cell = ("-", "dim")
FITTING, GIVEN = "a fabric for these hosts, at the rate of the busiest", "this fabric"
NOTHING_YET = """r  runs every strategy on {which}:
   {fabric}
f  sets the fabric (leaf-spine:, fat-tree:, multi-plane: or a YAML file)
   and options: --pattern, --model, --lossless, --transport, --fail
d  sweeps {seeds:,} hash seeds and searches those of the captured switches
R  replays packet by packet: completion times, queues, late packets"""


class ReplayScreen(RoceScreen):
    """Strategies, and the distribution over seeds below them."""

    name_ = "replay"
    BINDINGS = own_bindings("replay")

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[str] = []
        self._asked: tuple[str, ...] = ()
        self._drawn: ReplayView | None = None
        self._step = ("", 0.0)
        """The step in progress, and since when it is known."""
        self._last_progress = ""

    def body(self) -> ComposeResult:
        grid = Grid(COLUMNS, id="strategies")
        yield grid
        yield Static(id="sweeps")

    def on_mount(self) -> None:
        self.set_interval(0.25, self._while_running)

    def _while_running(self) -> None:
        """Show progress and end; on other screens the result."""
        view, before = self.view.replays.view, self._drawn
        progress = self._progress(view)
        if view is before and progress == self._last_progress:
            return
        stack = reversed(self.app.screen_stack)
        front = next((screen for screen in stack if isinstance(screen, RoceScreen)), None)
        changed = before is None or view.strategies is not before.strategies
        if front is not None and (front is self or changed or not view.running):
            self._drawn, self._last_progress = view, progress
            front.redraw()

    def draw(self, snapshot: Snapshot) -> str:
        shown = self.view
        grid = self.query_one("#strategies", Grid)
        if not shown.session.paths:
            grid.empty = RECORDING
            grid.show(0, lambda row: ())
            return "A replay reads files: this session is not recorded."
        view = shown.replays.view
        self._rows = view.rows
        why = words.nothing(snapshot)
        fabric = view.fabric or fabric_of(snapshot, least=2)
        which = GIVEN if view.fabric else FITTING
        grid.empty = NOTHING_YET.format(which=which, fabric=fabric, seeds=SEEDS)
        if why:
            grid.empty = self.what_next(snapshot)
        grid.set_columns(shown_columns(view))
        grid.show(
            len(self._rows),
            lambda row: strategy_cells(
                view, self._rows[row], grid.columns, grid.width_of("bar") or 14
            ),
            lambda row: "*" if self._rows[row] in shown.picked else " ",
        )
        if view.asked != self._asked:  # the cursor goes to the latest request
            self._asked = view.asked
            grid.put_cursor(next((i for i, row in enumerate(self._rows) if row in view.asked), 0))
            shown.strategy = self._chosen()
        self.query_one("#sweeps", Static).update(self._sweeps(view))
        return why or sentence(view)

    def _sweeps(self, view: ReplayView) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        fabric = f" on {view.fabric}" if view.fabric else "; no fabric is set"
        setup = f"hosts by {view.mapping}{fabric} {view.options}".rstrip()
        lines = wrap(setup, max(20, self.size.width - 4), break_on_hyphens=False)
        text.append(" " + "\n   ".join(lines), "dim")
        if view.running:
            bar = human.UNICODE.bar(view.done, 20)
            text.append(f"\n {bar:<20} {self._progress(view)}", "bold")
        # The latest request comes first: small terminals cut the rest.
        text.append_text(self._pauses(view))
        parts = [self._seeds(view), self._notes(view)]
        for part in parts if view.asked_seeds else reversed(parts):
            text.append_text(part)
        return text

    def _progress(self, view: ReplayView) -> str:
        """The step in progress and its age: some steps have no other sign of life."""
        if view.running != self._step[0]:
            self._step = view.running, monotonic()
        took = int(monotonic() - self._step[1])
        text = f"{view.running}, {took} s" if view.running and took else view.running
        return f"{text}, compiling (once per machine)" if text and compiling else text

    def _notes(self, view: ReplayView) -> Text:
        text = Text()
        if view.recovered:
            names = ", ".join(map(printable, view.recovered))
            text.append(f"\n ✓ ecmp has the seeds of the captures: {names}", "green")
        for line in view.warnings:
            text.append("\n ▲ " + "\n   ".join(wrap(line, max(20, self.size.width - 4))), "yellow")
        if any(name.endswith(BY_PACKET) for name in view.strategies):
            text.append("\n ▪ packet by packet, messages at the rate of the links", "dim")
        return text

    def _pauses(self, view: ReplayView) -> Text:
        """Why the strategy under the cursor failed, or what PFC did under it."""
        name = self._chosen() or ""
        text, shown = Text(), view.strategies.get(name)
        if why := view.failed.get(name):
            wrapped = wrap(f"{_shown_name(name)}: {why}", max(20, self.size.width - 4))
            text.append("\n ▲ " + "\n   ".join(wrapped), "yellow")
        if shown is not None and shown.packets is not None and shown.packets.pfc is not None:
            for line, style in pause_lines(shown.packets.pfc):
                wrapped = wrap(f"{shown.name}: {line}", max(20, self.size.width - 4))
                text.append("\n ‖ " + "\n   ".join(wrapped), style)
        return text

    def _seeds(self, view: ReplayView) -> Text:
        text = Text()
        if not view.sweeps:
            return text
        sweeps = view.sweeps.values()
        values = [s.max_over_mean or 1.0 for s in view.strategies.values()]
        axis = StripAxis(
            1.0,
            max([*values, *(s.distribution.max for s in sweeps)]),
            max(20, self.size.width - 52),
        )
        text.append(f"\n {'busiest link, seeds':<20} ", "bold")
        text.append(axis.ticks(), "dim")
        for name, sweep in view.sweeps.items():
            d = sweep.distribution
            marks = {"┊": sweep.chance.mean}
            in_use = sweep.production
            if in_use is not None:
                marks["▲"] = in_use.value
            text.append(f"\n {name:<20} ")
            text.append(strip(axis, d.min, d.max, d.quantiles, marks), "cyan")
            text.append(f" {d.quantiles['p50']:.2f}  p95 {d.quantiles['p95']:.2f}")
            text.append(f"  {sweep.seeds[2]:,} seeds", "dim")
        legend = "├ ┤ min and max  ▒ p5-p95  ▓ p25-p75  █ median  ┊ ideal hashing  ▲ seed in use"
        text.append(f"\n {legend}", "dim")
        return text.append_text(chance_line(view))

    def _chosen(self) -> str | None:
        grid = self.query_one("#strategies", Grid)
        return self._rows[grid.cursor] if grid.cursor < len(self._rows) else None

    @on(Grid.Moved, "#strategies")
    def _moved(self) -> None:
        self.view.strategy = self._chosen()
        self.query_one("#sweeps", Static).update(self._sweeps(self.view.replays.view))

    def action_run(self) -> None:
        if self._ready():
            self.view.replays.run(recover=_all_seeds())
            self.redraw()

    def action_run_packets(self) -> None:
        if self._ready():
            self.view.replays.by_packets()
            self.redraw()

    def action_draw_seeds(self) -> None:
        if self._ready():
            self.view.replays.sweep(recover=_all_seeds())
            self.redraw()

    def action_stop(self) -> None:
        self.view.replays.stop(wait=False)
        self.redraw()

    def _ready(self) -> bool:
        """Set a fabric that fits the hosts if none is set."""
        shown = self.view
        if not shown.session.paths:
            return False
        if shown.replays.busy:
            self.notify("A replay is running; x stops it")
            return False
        if not shown.replays.view.fabric:
            if not len(shown.snapshot.flows):
                self.notify("Nothing to replay")
                return False
            shown.replays.set_fabric(fabric_of(shown.snapshot))
        return True

    def action_fabric(self) -> None:
        replays = self.view.replays

        def keep(text: str | None) -> None:
            if not text:
                return
            try:
                replays.set_words(text)
            except RocescopeError as error:
                self.notify(str(error), severity="error", markup=False)
                return
            self.action_run()

        request = replays.request
        before = (
            request
            if request.fabric
            else replace(request, fabric=fabric_of(self.view.snapshot, least=4))
        )
        self.app.push_screen(
            TextPrompt("fabric, map, options as of rocescope replay", before.words),
            keep,
        )

    def action_production(self) -> None:
        replays = self.view.replays

        def keep(text: str | None) -> None:
            if text is None:
                return
            try:
                replays.production = int(text, 0) if text else None
            except ValueError:
                self.notify(f"{text!r} is not a seed", severity="error", markup=False)
                return
            self.action_draw_seeds()

        before = "" if replays.production is None else str(replays.production)
        self.app.push_screen(
            TextPrompt("seed the switches use, empty for the fabric's", before), keep
        )

    def action_pick(self) -> None:
        name = self._chosen()
        if name is not None:
            self.view.picked ^= {name}
            self.redraw()

    def action_best_seed(self) -> None:
        self._seed_of("best")

    def action_worst_seed(self) -> None:
        self._seed_of("worst")

    def _seed_of(self, which: str) -> None:
        """Run the best or worst seed of each sweep as a strategy of its own."""
        names = [
            f"ecmp:hash={name},seed={getattr(sweep, which)[0].seed}"
            for name, sweep in self.view.replays.view.sweeps.items()
            if getattr(sweep, which)
        ]
        if not names:
            self.notify("Sweep seeds first (d)")
            return
        if not self._ready():
            return
        self.view.replays.run(names)
        self.redraw()

    def action_deeper(self) -> None:
        self.view.strategy = self._chosen()
        self.host.go("fabric")


def pause_lines(pfc: PauseSummary) -> list[tuple[str, str]]:
    """What PFC did in the first run, and deadlocks of any run: lines and their styles."""
    lines = []
    if pfc.ports:
        longest = max(pfc.ports, key=lambda port: port.longest_ns)
        ports = human.counted(len({port.port for port in pfc.ports}), "port")
        length = human.duration(longest.longest_ns)
        if any(port.endless for port in pfc.ports):
            longest, length = next(port for port in pfc.ports if port.endless), "endless"
        text = f"PFC paused {ports}, the longest pause is {length}"
        text += f" at {longest.port}; "
        if pfc.victim_flows is None:
            text += "victims are not counted"
        else:
            text += human.counted(pfc.victim_flows, "victim flow")
        lines.append((text, "dim"))
    else:
        lines.append(("PFC paused no port", "dim"))
    if pfc.storms:
        first = pfc.storms[0]
        ports = human.counted(len({port.port for port in pfc.storms}), "port")
        text = f"pause storm at {ports}, first at {first.port} after "
        lines.append((text + human.duration(first.storm_ns or 0), "yellow"))
    if pfc.lost_without_headroom:
        lost = human.counted(pfc.lost_without_headroom, "packet")
        lines.append((f"{lost} dropped because the headroom of a port was full", "yellow"))
    if pfc.deadlock:
        from ...replay.compare.pauses import circle_text  # loads the packet engine

        lines.append((f"deadlock: {circle_text(pfc.deadlock)}", "bold red"))
    return lines


def _all_seeds() -> SeedRange:
    from ...replay.seeds.recover import ALL_SEEDS  # loads the searches

    return ALL_SEEDS


def chance_line(view: ReplayView) -> Text:
    """The value of ideal random hashing, and the rank of the seed in use."""
    text = Text()
    name, sweep = next(iter(view.sweeps.items()))
    chance = sweep.chance
    text.append(
        f"\n ideal random hashing, {human.counted(sweep.traffic.units, 'unit')}: {chance.mean:.2f}"
        f" ({chance.p05:.2f} to {chance.p95:.2f})",
        "bold",
    )
    used = sweep.production
    if used is None:
        text.append("  P sets the seed in use", "dim")
    else:
        seed = "the fabric's own seeds" if used.seed is None else f"seed {used.seed}"
        worse = 100 * used.better_seeds / max(1, sweep.seeds[2])
        text.append(
            f"\n {seed} of {name}: {used.value:.2f}, worse than {worse:.0f} % of all seeds", "bold"
        )
    return text


def sentence(view: ReplayView) -> str:
    """The best strategy and its gain, then the latest result of packets or seeds."""
    if view.error:
        return f"Stopped: {view.error}"
    links, packets, seeds = _of_links(view), _of_packets(view), _of_seeds(view)
    if (view.sweeps and view.asked_seeds) or not packets:
        more = seeds
    else:
        more = packets
    if not links and not more:
        if view.running:
            return "Stopping." if view.running == STOPPING else f"Replaying: {view.running}."
        return "No strategy has run yet: r runs them all."
    text = "; ".join(part for part in (links, more) if part)
    return f"{text[0].upper()}{text[1:]}." if not links else f"{text}."


def _of_links(view: ReplayView) -> str:
    """The busiest links of the first and the best strategy; flow placement is preferred."""
    known = {n: s.max_over_mean for n, s in view.strategies.items() if s.max_over_mean}
    known = {n: v for n, v in known.items() if not n.endswith(BY_PACKET)} or known
    if not known:
        return ""
    first, best = next(iter(known)), min(known, key=lambda name: known[name])
    text = f"{first.removesuffix(BY_PACKET)} loads its busiest link {known[first]:.2f}"
    text += " times the fair share"
    return (
        text if best == first else f"{text}, {best.removesuffix(BY_PACKET)} only {known[best]:.2f}"
    )


def _of_packets(view: ReplayView) -> str:
    """The strategy that completes first, over the lower bound."""
    times = {
        strategy.name: round(strategy.completion_time_ns / strategy.lower_bound_ns, 2)
        for strategy in view.strategies.values()
        if strategy.completion_time_ns and strategy.lower_bound_ns
    }
    if not times:
        return ""
    quickest = min(times, key=lambda name: times[name])
    who = f"{quickest} completes first, in"
    if len(times) > 1 and len(set(times.values())) == 1:
        who = "all complete in"
    text = f"packet by packet {who} {times[quickest]:.2f} times the lower bound"
    slow = [
        (1 + job.over_bound_percent.mean / 100, job.name)
        for strategy in view.strategies.values()
        for job in (strategy.packets.jobs if strategy.packets is not None else [])
        if job.over_bound_percent is not None
    ]
    return f"{text}; {max(slow)[1]} at most in {max(slow)[0]:.2f} times its own" if slow else text


def _of_seeds(view: ReplayView) -> str:
    """The best seed of the first hash."""
    for name, sweep in view.sweeps.items():
        values = sweep.distribution
        return f"{sweep.seeds[2]:,} {name} seeds range from {values.min:.2f} to {values.max:.2f}"
    return ""


def fabric_of(snapshot: Snapshot, least: int = 1) -> str:
    """The default fabric for the hosts of a snapshot, at the rate that was observed."""
    flows = snapshot.flows
    hosts = len(set(flows.src.tolist()) | set(flows.dst.tolist()))
    rate = observed_rate(snapshot.activity, flows.src, snapshot.activity_bin_ns)
    return fitting_fabric(max(least, hosts), rate)


def shown_columns(view: ReplayView) -> list[GridColumn]:
    """The columns; times and queues only after a packet-by-packet replay."""
    results = view.strategies.values()
    unknown = set()
    if all(result.completion_time_ns is None for result in results):
        unknown |= {"done", "time"}
    if all(result.max_queue_packets is None for result in results):
        unknown |= {"queue", "order"}
    return [column for column in COLUMNS if column.key not in unknown]


def strategy_cells(
    view: ReplayView, name: str, columns: Sequence[GridColumn], width: int = 14
) -> Sequence[Cell]:
    """One row; `width` is that of the bars."""
    if name in view.pending:
        waits = "running" if name == view.pending[0] else "waiting"
        cells: dict[str, Cell] = {"name": _shown_name(name), "max": (waits, "dim")}
        return [cells.get(column.key, "") for column in columns]
    if name in view.failed:
        cells = {"name": _shown_name(name), "with": (f"▲ {view.failed[name]}", "warn")}
        return [cells.get(column.key, "-") for column in columns]
    result = view.strategies[name]
    first = next(iter(view.strategies.values()))
    worst = max((s.max_over_mean or 1.0 for s in view.strategies.values()), default=1.0)
    share = ((result.max_over_mean or 1.0) - 1) / max(worst - 1, 1e-9)
    received = result.packets.received if result.packets is not None else None
    took, bound, link = result.completion_time_ns, result.lower_bound_ns, limiting_link(result)
    by_packet = name.endswith(BY_PACKET)
    cells = {
        "name": f"{result.name} ▪" if by_packet else result.name,
        "with": ", ".join(f"{k}={v}" for k, v in result.parameters.items()),
        "max": _number(result.max_over_mean),
        "bar": (human.UNICODE.bar(share, width), "accent"),
        "fim": _number(result.fim_percent, 1),
        "done": human.duration(took),
        "time": _number(took / bound if took and bound else None),
        "bound": human.duration(result.lower_bound_ns),
        "queue": human.count(result.max_queue_packets),
        "order": _number(received.reordered_percent if received is not None else None),
        "against": _against(result, first),
        "link": "" if link is None else link.name,
    }
    # Flow placement has no times and queues, packet replay has no flows: `-`, not `?`.
    cells |= dict.fromkeys(("fim",) if by_packet else ("done", "time", "queue", "order"), _NONE)
    return [cells[column.key] for column in columns]


def _shown_name(name: str) -> str:
    return f"{name.removesuffix(BY_PACKET)} ▪" if name.endswith(BY_PACKET) else name


def _number(value: float | None, digits: int = 2) -> str:
    return human.UNKNOWN if value is None else f"{value:.{digits}f}"


def _against(result: StrategyResult, first: StrategyResult) -> Cell:
    """Its largest load relative to the first strategy's."""
    if not result.max_over_mean or not first.max_over_mean:
        return human.UNKNOWN
    ratio = result.max_over_mean / first.max_over_mean
    return (f"{ratio:.2f}x", "good" if ratio < 0.995 else "warn" if ratio > 1.005 else "dim")
