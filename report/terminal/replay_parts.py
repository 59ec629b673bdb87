"""Parts that the reports of replays, sweeps and traces share."""

from __future__ import annotations

from collections.abc import Sequence

from ...replay.results.base import EXACT, Chance, FabricSummary, TrafficSummary
from ...replay.results.replay import AS_CAPTURED, StrategyResult, SwitchHash
from ..words import human
from .page import Page

NONE = "-"
_MAPPED = 8
"""Addresses printed with their host."""
_HASHES = 8
"""Switches whose hash is printed, per origin."""
_SEEDS_FROM = {
    "fabric": "Seeds of the fabric",
    "option": "Seeds of the options",
    "default": "Hash or seed not known, seeds derived from 0",
}


def print_head(
    page: Page, traffic: TrafficSummary, fabric: FabricSummary, warnings: list[str]
) -> None:
    """The traffic, the fabric and the warnings."""
    several = f"{len(traffic.sources)} captures"
    name = traffic.sources[0] if len(traffic.sources) == 1 else several
    sprayed = f" ({human.count(traffic.units)} entropy values)"
    text = (
        f"{name}: {human.counted(traffic.flows, 'flow')}"
        f"{sprayed if traffic.units > traffic.flows else ''}, "
        f"{human.size(traffic.wire_bytes)}, {human.counted(traffic.hosts, 'host')}"
    )
    page.line(text, "bold")
    down = f", {fabric.links_down} down" if fabric.links_down else ""
    page.say(
        f"on {fabric.spec}: {human.counted(fabric.switches, 'switch', 'switches')}, "
        f"{human.counted(fabric.hosts, 'host')}, "
        f"{human.count(fabric.links)} one-way links{down}"
    )
    mapping = traffic.mapping
    if mapping is not None and mapping.rule != EXACT:
        pairs = [f"{address} {host}" for address, host in mapping.hosts.items()]
        more = ", ..." * (len(pairs) > _MAPPED)
        page.say(f"mapping: {mapping.rule}; {', '.join(pairs[:_MAPPED])}{more}")
    page.warn(warnings)


def fim(value: float | None) -> str:
    """A FIM in percent, `-` without load."""
    return NONE if value is None else f"{value:.1f}"


def factor(value: float | None) -> str:
    """How many times the mean, `-` without load."""
    return NONE if value is None else f"{value:.2f}"


def chance_text(chance: Chance | None) -> str:
    """`24.2 (18 to 31)`: the mean, and the range of 90 % of random draws."""
    return NONE if chance is None else f"{chance.mean:.1f} ({chance.p05:.0f} to {chance.p95:.0f})"


def say_hashes(page: Page, switches: list[SwitchHash]) -> None:
    """The hash of every switch of a fabric that sets some."""
    for origin, words in _SEEDS_FROM.items():
        those = [switch for switch in switches if switch.seed_from == origin]
        if those:
            hashes = [f"{s.switch} {s.hash} ({s.fields}) 0x{s.seed:x}" for s in those[:_HASHES]]
            more = f", and {len(those) - _HASHES} more: --format json" * (len(those) > _HASHES)
            page.say(f"{words}: {', '.join(hashes)}{more}.", "dim")


def captured_links(results: Sequence[StrategyResult]) -> str:
    """Over which links the loads as captured are, where those of the strategies are over more."""
    counts = [sum(layer.links for layer in result.layers if layer.choice) for result in results]
    if results[0].name != AS_CAPTURED or counts[0] >= max(counts):
        return ""
    return (
        f"The row {AS_CAPTURED} is over the {human.counted(counts[0], 'captured link')} with a "
        f"choice, the other rows are over all {human.count(max(counts))}."
    )
