"""`make bench`: rocescope beside the tools its users would pick instead, as ratios.

Every comparison runs both sides in turn several times; the ratio is the median of the
ratios of the pairs, so it holds on a busy machine too. Whole processes are measured,
start-up included, unless the row says otherwise. Captures are written to a temporary
folder (--folder keeps them); they are generated, see generate.py.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import CommandFailed, Cost, alternately, median, run

HERE = Path(__file__).parent
Tool = Callable[[Path], Cost]
BTH_FIELDS = "opcode p_key destqp psn a se m".split()


@dataclass(frozen=True)
class Sizes:
    """How much work the benchmark does."""

    packets: int
    many_packets: int
    slow_packets: int
    rounds: int


FULL = Sizes(packets=2_000_000, many_packets=20_000_000, slow_packets=100_000, rounds=5)
QUICK = Sizes(packets=200_000, many_packets=2_000_000, slow_packets=20_000, rounds=3)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    ours: str
    peer: str
    figure: float | None
    floor: float | None = None
    ceiling: float | None = None
    unit: str = "x"

    def verdict(self) -> str:
        if self.figure is None:
            return "not measured"
        if self.floor is not None:
            return f"{'ok' if self.figure >= self.floor else 'BELOW'} (at least {self.floor:g})"
        if self.ceiling is not None:
            return f"{'ok' if self.figure <= self.ceiling else 'ABOVE'} (at most {self.ceiling:g})"
        return ""


class Bench:
    """The captures and the runs; each public method gives one or more rows."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder = folder
        self.sizes = sizes
        beside = Path(sys.executable).parent / "rocescope"
        self.rocescope = str(beside) if beside.exists() else "rocescope"
        self.standard = self.capture("standard", sizes.packets)
        self.many = self.capture("many", sizes.many_packets)
        self.slow = self.capture("slow", sizes.slow_packets)
        self.tiny = self.capture("tiny", 1_000)
        self.payload = self.capture("payload", sizes.packets // 10, "--snap", "0")
        self.flows = self.capture("flows", sizes.packets, "--connections", "5000")

    def capture(self, name: str, packets: int, *options: str) -> Path:
        path = self.folder / f"{name}-{packets}.pcap"
        if not path.exists():
            say(f"writing {path.name}")
            generator = [sys.executable, str(HERE / "generate.py"), "-o", str(path)]
            run([*generator, "--packets", str(packets), *options])
        return path

    def analyze(self, path: Path) -> Cost:
        return run([self.rocescope, "analyze", "--format", "json", str(path)])

    def decode(self, path: Path) -> Cost:
        script = [sys.executable, str(HERE / "decode_only.py"), str(self.tiny), str(path)]
        return inside(run(script, one_core=True, keep_output=True))

    def tcpdump(self, path: Path) -> Cost:
        return run(["tcpdump", "-r", str(path), "-w", "/dev/null"], one_core=True)

    def capinfos(self, path: Path) -> Cost:
        return run(["capinfos", "-c", "-T", str(path)])

    def tshark(self, path: Path) -> Cost:
        fields = [word for name in BTH_FIELDS for word in ("-e", f"infiniband.bth.{name}")]
        return run(["tshark", "-n", "-r", str(path), "-T", "fields", *fields])

    def dpkt(self, path: Path) -> Cost:
        script = [sys.executable, str(HERE / "peer_dpkt.py"), str(path)]
        return inside(run(script, keep_output=True))

    def pairs(
        self, what: str, ours: Callable[[], Cost], peer: Callable[[], Cost], **limits: float
    ) -> Row:
        """How many times faster ours is, by wall time, both doing the same work."""
        a, b = alternately(self.sizes.rounds, ours, peer)
        ratio = statistics.median(y.wall / x.wall for x, y in zip(a, b, strict=True))
        return Row(what, seconds(median(a)), seconds(median(b)), ratio, **limits)

    def pairs_without_start_up(self, what: str, ours: Tool, peer: Tool, **limits: float) -> Row:
        """As `pairs`, on many packets, each side less what it takes for a tiny capture."""

        def less_start_up(tool: Tool) -> Cost:
            return tool(self.many).less(tool(self.tiny))

        return self.pairs(what, lambda: less_start_up(ours), lambda: less_start_up(peer), **limits)

    def rates(self, what: str, peer: Tool, **limits: float) -> list[Row]:
        """How many times more packets per second ours does than a slow peer.

        The peer reads a short capture; its start-up is always taken off, ours in the
        second row only.
        """
        sizes = self.sizes
        whole, working, theirs = [], [], []
        for _ in range(sizes.rounds):
            theirs.append(self.marginal_rate(peer, self.slow, sizes.slow_packets))
            whole.append(sizes.packets / self.analyze(self.standard).wall)
            working.append(self.marginal_rate(self.analyze, self.many, sizes.many_packets))
        return [
            Row(
                label,
                f"{statistics.median(ours) / 1e6:.2f} Mpkt/s",
                f"{statistics.median(theirs) / 1e6:.3f} Mpkt/s",
                statistics.median(x / y for x, y in zip(ours, theirs, strict=True)),
                **limits,
            )
            for label, ours in ((what, whole), ("  the same, start-up taken off both", working))
        ]

    def marginal_rate(self, tool: Tool, path: Path, packets: int) -> float:
        return (packets - 1_000) / tool(path).less(tool(self.tiny)).wall

    def growth(self) -> list[Row]:
        """Time and memory of many packets over those of the standard capture."""
        times = max(2, self.sizes.rounds - 2)
        many, few = alternately(
            times, lambda: self.analyze(self.many), lambda: self.analyze(self.standard)
        )
        a, b = median(many), median(few)
        factor = self.sizes.many_packets // self.sizes.packets
        ratio = statistics.median(y.wall / x.wall for x, y in zip(few, many, strict=True))
        grown = statistics.median(
            y.peak_bytes / x.peak_bytes for x, y in zip(few, many, strict=True)
        )
        return [
            Row(
                f"analyze, {factor} x the packets: time",
                seconds(a),
                seconds(b),
                ratio,
                ceiling=10.5,
            ),
            Row("  peak memory", megabytes(a), megabytes(b), grown, ceiling=1.2),
            Row("  peak memory, absolute", megabytes(a), "", a.peak_bytes / 1e6, None, 700, " MB"),
        ]

    def many_flows(self) -> list[Row]:
        """10,000 one-way flows beside the 128 of the standard capture."""
        many, few = alternately(
            self.sizes.rounds, lambda: self.analyze(self.flows), lambda: self.analyze(self.standard)
        )
        ratio = statistics.median(y.wall / x.wall for x, y in zip(few, many, strict=True))
        a, b = median(many), median(few)
        return [
            Row("analyze, 10,000 flows beside 128: time", seconds(a), seconds(b), ratio),
            Row("  peak memory", megabytes(a), megabytes(b), a.peak_bytes / b.peak_bytes),
        ]

    def start(self) -> list[Row]:
        """What a user waits for before the first packet."""
        rounds = range(self.sizes.rounds)
        usage = median([run([self.rocescope, "--help"]) for _ in rounds])
        tiny = median([self.analyze(self.tiny) for _ in rounds])
        return [
            Row("rocescope --help", seconds(usage), "", usage.wall, None, 0.3, " s"),
            Row("analyze, 1,000 packets", seconds(tiny), "", tiny.wall, unit=" s"),
        ]

    def comparisons(self) -> list[tuple[str, Callable[[], list[Row]]]]:
        """Every measurement, with the tool it needs."""
        standard, payload = self.standard, self.payload
        return [
            ("", self.start),
            (
                "tcpdump",
                lambda: [
                    self.pairs(
                        "frame and decode / tcpdump -w /dev/null, one core",
                        lambda: self.decode(standard),
                        lambda: self.tcpdump(standard),
                        floor=1.0,
                    ),
                    self.pairs(
                        "  the same, whole frames",
                        lambda: self.decode(payload),
                        lambda: self.tcpdump(payload),
                    ),
                ],
            ),
            (
                "capinfos",
                lambda: [
                    self.pairs(
                        "analyze / capinfos -c",
                        lambda: self.analyze(standard),
                        lambda: self.capinfos(standard),
                        floor=0.5,
                    ),
                    self.pairs(
                        "  the same, many packets",
                        lambda: self.analyze(self.many),
                        lambda: self.capinfos(self.many),
                        floor=0.5,
                    ),
                    self.pairs_without_start_up(
                        "  the same, start-up taken off both",
                        self.analyze,
                        self.capinfos,
                        floor=0.5,
                    ),
                ],
            ),
            ("tshark", lambda: self.rates("analyze / tshark -T fields", self.tshark, floor=50)),
            ("", lambda: self.rates("analyze / dpkt objects", self.dpkt, floor=30)),
            ("", self.growth),
            ("", self.many_flows),
        ]


def compile_bytecode() -> None:
    """As pip does with what it installs, peers included; a checkout may be without."""
    for name in ("analyzer", "commands", "probes", "replay", "tui"):
        compileall.compile_dir(HERE.parent / name, quiet=1)
    for path in HERE.parent.glob("*.py"):
        compileall.compile_file(path, quiet=1)


def inside(cost: Cost) -> Cost:
    """The times a script measured in itself, with the memory of its whole process."""
    own = json.loads(cost.output)
    return Cost(own["wall"], own["cpu"], cost.peak_bytes)


def seconds(cost: Cost) -> str:
    return f"{cost.wall:.3f} s ({cost.cpu:.3f} CPU)"


def megabytes(cost: Cost) -> str:
    return f"{cost.peak_bytes / 1e6:.0f} MB"


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def print_table(rows: Sequence[Row]) -> None:
    width = max(len(row.what) for row in rows)
    print(f"{'':{width}}  {'rocescope':>22}  {'compared with':>22}  {'':>10}")
    for row in rows:
        figure = "-" if row.figure is None else f"{row.figure:.2f}{row.unit}"
        print(f"{row.what:{width}}  {row.ours:>22}  {row.peer:>22}  {figure:>10}  {row.verdict()}")


def measure(bench: Bench) -> list[Row]:
    rows: list[Row] = []
    for tool, comparison in bench.comparisons():
        if tool and not shutil.which(tool):
            rows.append(Row(f"{tool} is not installed", "", "", None))
            continue
        try:
            new = comparison()
        except CommandFailed as failure:
            new = [Row(str(failure), "", "", None)]
        for row in new:
            say(f"{row.what}: {row.ours} {row.peer} {row.verdict()}")
        rows += new
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the packets, fewer rounds")
    parser.add_argument("--folder", type=Path, help="keep the captures here and use them again")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="rocescope-bench-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, sizes)
        compile_bytecode()
        bench.analyze(bench.tiny)  # compiles the kernels
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, seed 1,", end=" ")
        print(f"{sizes.packets:,} and {sizes.many_packets:,} packets, {sizes.rounds} rounds")
        print_table(measure(bench))


if __name__ == "__main__":
    main()
