"""What the reproductions share: runs over all cores, a ring, and small plots as SVG."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import log10
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from rocescope.replay.collectives import collective, from_queue_pairs
from rocescope.replay.engine.many import run_many
from rocescope.replay.engine.model import ON_RECEIVED, EngineResult, Model, Workload
from rocescope.replay.engine.runner import run_open_loop
from rocescope.replay.fabric import Fabric
from rocescope.replay.fabrics import parse_fabric
from rocescope.replay.patterns.demands import Settings, demands
from rocescope.replay.queue_pairs import Sending, queue_pairs
from rocescope.replay.strategies import parse_packet_strategy

FABRICS = {
    "ft128": "fat-tree:k=8,rate=800G,delay=500ns",
    "ls128": "leaf-spine:leaves=8,spines=16,hosts=16,rate=800G,delay=500ns",
}
PLOTS = Path(__file__).resolve().parent.parent.parent / "docs" / "reproductions"


class Case(NamedTuple):
    """One run."""

    fabric: str
    strategy: str
    pattern: str
    message_bytes: int
    seed: int
    model: Model = Model()
    phases_ps: int = 0
    """Every message begins at a random time below this, else all at 0."""


def run_all(cases: Sequence[Case]) -> list[EngineResult]:
    """All cases on all cores, in their order."""
    fabrics = {case.fabric: parse_fabric(FABRICS[case.fabric]) for case in cases}

    def run(case: Case, stop: Event) -> EngineResult:
        fabric = fabrics[case.fabric]
        load = collective(case.pattern, fabric, case.model, case.message_bytes, case.seed)
        if case.phases_ps:
            rng = np.random.default_rng([case.seed, 0x5048])
            load = load._replace(release_ps=rng.integers(0, case.phases_ps, len(load.flow)))
        strategy = parse_packet_strategy(case.strategy)
        return run_open_loop(load, fabric, strategy, case.model, case.seed, stop=stop)

    found: dict[int, EngineResult] = {}
    for number, result in run_many(cases, run):
        found[number] = result
        if sys.stderr.isatty():
            print(f"\r{len(found)} of {len(cases)} runs ", end="\r", file=sys.stderr)
    return [found[i] for i in range(len(cases))]


def ring(
    fabric: Fabric, model: Model, step_bytes: int, steps: int, slices: int, qps: int, seed: int
) -> Workload:
    """A ring all-reduce over all hosts in random order, without barriers.

    In every step each host sends `step_bytes` to its successor, cut into slices that take the
    queue pairs in turn. A slice leaves once the same slice of the step before has come from the
    predecessor.
    """
    rng = np.random.default_rng([seed, 0x52494E47])
    order, each = rng.permutation(fabric.hosts), slices // qps
    settings = Settings(
        hosts=fabric.hosts,
        message_bytes=step_bytes // each,
        messages=steps * each,
        flows=0,
        fan_in=None,
        load=1.0,
        rate_bits_per_second=int(fabric.links.rate_bits_per_second.max()),
    )
    pairs = queue_pairs(demands(settings, order, np.roll(order, -1)), Sending(qps=qps), rng)
    load = from_queue_pairs(pairs, fabric, model, barriers=False)
    number = np.arange(len(load.flow)) - load.flow_start[load.flow]
    before = load.flow_start[(load.flow - qps) % len(load.src)] + number - each
    return load._replace(
        after=np.where(number >= each, before, -1).astype(np.int32),
        on=np.full(len(number), ON_RECEIVED, np.uint8),
    )


COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888", "#000000")


def log_log_plot(
    path: Path,
    title: str,
    axes: tuple[str, str],
    lines: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    labels: Mapping[float, str] = MappingProxyType({}),
) -> None:
    """Lines over two logarithmic axes, each (name, x, y). labels: of x, where not the number."""
    xs = [x for _, values, _ in lines for x in values]
    ys = [y for _, _, values in lines for y in values]
    left, top, width, height = 60, 30, 400, 280
    low_x, high_x = log10(min(xs)), log10(max(xs))
    low_y, high_y = log10(min(ys)) - 0.05, log10(max(ys)) + 0.05

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + width * (log10(x) - low_x) / (high_x - low_x),
            top + height * (high_y - log10(y)) / (high_y - low_y),
        )

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 370" font-family="sans-serif" '
        'font-size="12"><rect width="600" height="370" fill="#fff"/>',
        f'<text x="{left}" y="18" font-size="14">{title}</text>',
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#999"/>',
        f'<text x="{left + width / 2}" y="362" text-anchor="middle">{axes[0]}</text>',
        f'<text transform="translate(14 {top + height / 2}) rotate(-90)" '
        f'text-anchor="middle">{axes[1]}</text>',
    ]
    for x in sorted(set(xs)):
        px, _ = at(x, min(ys))
        parts.append(
            f'<text x="{px:.0f}" y="{top + height + 16}" text-anchor="middle">'
            f"{labels.get(x, f'{x:g}')}</text>"
        )
    for y in (1, 3, 10, 30, 100, 300, 1000, 3000, 10000):
        if low_y <= log10(y) <= high_y:
            _, py = at(min(xs), y)
            parts.append(f'<text x="{left - 6}" y="{py + 4:.0f}" text-anchor="end">{y}</text>')
            parts.append(
                f'<line x1="{left}" x2="{left + width}" y1="{py:.0f}" y2="{py:.0f}" stroke="#ddd"/>'
            )
    for i, (name, line_x, line_y) in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        points = " ".join(
            "{:.1f},{:.1f}".format(*at(x, y)) for x, y in zip(line_x, line_y, strict=True)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        y = top + 14 + 18 * i
        parts.append(
            f'<rect x="{left + width + 10}" y="{y - 9}" width="12" height="4" fill="{colour}"/>'
        )
        parts.append(f'<text x="{left + width + 27}" y="{y}">{name}</text>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>\n"]))
    print(f"wrote {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
