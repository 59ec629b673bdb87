"""Seeds on a terminal: the results of `sweep` and `recover-seed`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.table import Table
from rich.text import Text

from ...analyzer.words import printable
from ...replay.fabrics.files import hash_document
from ...replay.results import Bin, Candidate, RecoverResult, SeedValue, SweepResult, SwitchRecovery
from ...replay.seeds.recover import is_explained, settings_of
from ...replay.seeds.sweep import SmallFabric
from .. import human
from ..human import Glyphs
from .page import Page, folded, numbers, texts
from .replay_packets import NONE, chance_text, print_head

_UNITS = {
    "fim-flows": "FIM of flows, percent",
    "fim-bytes": "FIM of bytes, percent",
    "max-over-mean": "busiest link over the fair share",
}
_ROWS = 16


def fill_sweep(page: Page, result: SweepResult, charts: Callable[[], object] = bool) -> None:
    """A sweep; charts: called below the verdict."""
    page.line("DECISION", "bold")
    page.say(result.decision)
    page.gap()
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


# The result of `recover-seed` on a terminal.


def fill_recovery(
    page: Page,
    result: RecoverResult,
    *,
    traffic: Sequence[str] = (),
    on: SmallFabric | None = None,
    asked_of: str | None = None,
) -> None:
    """The recovered settings.

    traffic, on: captures to replay, and a fabric that they fit. asked_of: the fabric whose switch
    was asked in place of captures.
    """
    page.warn(result.warnings)
    for switch in result.switches:
        page.section(f"Packets {switch.direction}")
        fits = any(is_explained(c) for c in switch.candidates)
        mark, style = (page.glyphs.good, "green") if fits else (page.glyphs.warning, "yellow")
        page.say(f"{mark} {switch.conclusion[:1].upper()}{switch.conclusion[1:]}.", style)
        if switch.asked_again:
            agree = f"{human.count(switch.agreeing_again)} of {human.count(switch.asked_again)}"
            page.say(f"Verified with other flows: {agree} answers name the computed link.")
        page.draw(lambda table, switch=switch: _links(table, switch))  # type: ignore[misc]
        if switch.candidates:
            page.draw(lambda table, switch=switch: _candidates(table, switch))  # type: ignore[misc]
    words = dict.fromkeys(filter(None, map(_find_words, result.switches)))
    if words:
        page.gap()
        page.say("To replay traffic with this hash and seed on every switch:", "dim")
    files = printable(shlex.join(traffic)) if traffic else "FILE..."
    fabric = "FABRIC" if on is None else f"{on.fabric} --map {on.map}"
    if asked_of is not None:  # no captures: any traffic shows what the hash does
        files, fabric = "--pattern permutation", printable(shlex.quote(asked_of))
    for strategy in words:
        page.line(f"  rocescope replay {files} --fabric {fabric} -s {strategy}", "dim")
    if words and on is not None:
        page.say("This fabric has only the captured links; replace it with the real fabric.", "dim")
    lines = dict.fromkeys(filter(None, map(_find_line, result.switches)))
    if lines:
        page.say(
            "To trace flows with it, write into the entry of the switch in the fabric file:", "dim"
        )
    for line in lines:
        page.line(f"  {line}", "dim")
    tried = result.tried
    shown = ", ".join(tried[:6]) + (f" and {len(tried) - 6} more" if len(tried) > 6 else "")
    page.gap()
    page.say(f"Tried: {shown or 'nothing'}", "dim")


def _find(switch: SwitchRecovery) -> Candidate | None:
    """The first candidate with a seed that explains the placements of a switch."""
    explained = (c for c in switch.candidates if is_explained(c) and c.seed is not None)
    return next((c for c in explained if settings_of(c) is not None), None)


def _find_words(switch: SwitchRecovery) -> str | None:
    candidate = _find(switch)
    return None if candidate is None else strategy_words(candidate)


def _find_line(switch: SwitchRecovery) -> str | None:
    """`hash:` of the switch in a fabric file."""
    candidate = _find(switch)
    settings = None if candidate is None else settings_of(candidate)
    if candidate is None or candidate.seed is None or settings is None:
        return None
    document = hash_document(replace(settings, seed=candidate.seed, seed_recovered=True))
    return "hash: " + json.dumps(document)  # JSON is YAML, whatever a field set contains


def strategy_words(candidate: Candidate) -> str:
    """The strategy of `rocescope replay` that hashes as the candidate, with its seed everywhere."""
    options = {"hash": candidate.hash, **candidate.parameters}
    if candidate.field_set:
        options["fields"] = candidate.field_set
    options |= {"seed": str(candidate.seed), "per-switch": "equal"}
    return "ecmp:" + ",".join(f"{key}={value}" for key, value in options.items())


def _links(table: Table, switch: SwitchRecovery) -> None:
    folded(table, "next hop")
    table.add_column("flows", justify="right")
    for name, flows in zip(switch.links, switch.flows_per_link, strict=True):
        table.add_row(name, human.count(flows))


def _candidates(table: Table, switch: SwitchRecovery) -> None:
    texts(table, "hash")
    folded(table, "fields")
    numbers(table, "seed", "seeds that fit", "by chance", "validated")
    for fit in switch.candidates:
        fields = fit.field_set or ", ".join(f"{k} {v}" for k, v in fit.parameters.items())
        known = fit.seed is not None
        table.add_row(
            fit.hash,
            fields,
            str(fit.seed) if known else NONE,
            human.count(fit.seeds_that_fit) if known else NONE,
            f"{fit.expected_by_chance:.2g}",
            f"{fit.validated_flows} of {fit.held_back_flows}",
        )
