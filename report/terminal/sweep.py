"""The result of `sweep` on a terminal: verdict, distribution, best and worst seeds."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from ...replay.results.sweep import Bin, SeedValue, SweepResult
from ..words import human
from ..words.human import Glyphs
from .page import Page, numbers, texts
from .replay_parts import NONE, chance_text, print_head

_UNITS = {
    "fim-flows": "FIM of flows, percent",
    "fim-bytes": "FIM of bytes, percent",
    "max-over-mean": "fullest link over the fair share",
}
_ROWS = 16


def fill_sweep(page: Page, result: SweepResult, charts: Callable[[], object] = bool) -> None:
    """A sweep; charts: called below the verdict."""
    print_head(page, result.traffic, result.fabric, result.warnings)
    first, end, seeds = result.seeds
    page.say(
        f"{result.hash} ({result.field_set}), {human.counted(seeds, 'seed')} of "
        f"{first}:{end}, {result.per_switch} on the switches; {_UNITS[result.measure]}"
    )
    page.section("Imbalance over seeds", verdict(result))
    page.warn(result.findings)
    page.draw(lambda table: _layers(table, result))
    charts()
    page.section("Distribution of the worst layer")
    page.draw(lambda table: _histogram(table, result, page.glyphs))
    if _value(result.distribution.min) != _value(result.distribution.max):
        page.section("Seeds")
        page.draw(lambda table: _seeds(table, result.best, result.worst))


def verdict(result: SweepResult) -> str:
    """Best, median and worst seed, the value of ideal hashing, the rank of the production seed."""
    d = result.distribution
    text = (
        f"Imbalance of the worst layer: best seed {_value(d.min)}, median "
        f"{_value(d.quantiles['p50'])}, worst seed {_value(d.max)}; "
        f"ideal random hashing gives {chance_text(result.chance)}."
    )
    in_use = result.production
    if in_use is not None:
        whose = "The fabric's own seeds have" if in_use.seed is None else f"Seed {in_use.seed} has"
        text += (
            f" {whose} {_value(in_use.value)}: {human.count(in_use.better_seeds)} of "
            f"{human.counted(result.seeds[2], 'seed')} are better, "
            f"{in_use.percentile:.1f} % are worse."
        )
    return text


def _value(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _layers(table: Table, result: SweepResult) -> None:
    texts(table, "layer")
    numbers(table, "links", "used", "best", "p5", "p50", "p95", "worst", "chance", "bound")
    for layer in result.layers:
        d = layer.distribution
        table.add_row(
            layer.layer,
            human.count(layer.links),
            human.percent(layer.used_links),
            *(_value(v) for v in (d.min, *(d.quantiles[q] for q in ("p5", "p50", "p95")), d.max)),
            chance_text(layer.chance),
            NONE if layer.best_percent is None else _value(layer.best_percent),
        )


def _histogram(table: Table, result: SweepResult, glyphs: Glyphs) -> None:
    bins = _fewer(result.distribution.histogram)
    most = max(bucket.count for bucket in bins)
    numbers(table, "from", "seeds")
    texts(table, "")
    for bucket in bins:
        marks = [
            name
            for name, value in (
                ("chance", result.chance.mean),
                ("production", result.production.value if result.production else None),
            )
            if value is not None and bucket.low <= value < bucket.high
        ]
        bar = Text(glyphs.bar(bucket.count / most, 40), "cyan")
        if marks:
            bar.append(f"  < {', '.join(marks)}", "bold")
        table.add_row(_value(bucket.low), human.count(bucket.count), bar)


def _fewer(bins: list[Bin]) -> list[Bin]:
    """The bins, merged with their neighbours to at most _ROWS."""
    step = -(-len(bins) // _ROWS)
    return [
        Bin(low=part[0].low, high=part[-1].high, count=sum(bucket.count for bucket in part))
        for part in (bins[i : i + step] for i in range(0, len(bins), step))
    ]


def _seeds(table: Table, best: list[SeedValue], worst: list[SeedValue]) -> None:
    numbers(table, "best seeds", "", "worst seeds", "")
    for good, bad in zip(best, worst, strict=True):
        table.add_row(str(good.seed), _value(good.value), str(bad.seed), _value(bad.value))
