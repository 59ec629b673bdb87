"""Pauses of PFC on a terminal."""

from __future__ import annotations

from rich.table import Table

from ...replay.results.packets import PausedPort, PauseSummary
from ..words import human
from .page import Page, folded, numbers, texts
from .replay_parts import NONE

_MOST_CAUSES = 3


def print_pauses(page: Page, pfc: PauseSummary) -> None:
    """How far the pauses of the first run spread, and whose queues caused them."""
    if pfc.lost_without_headroom:
        lost = human.counted(pfc.lost_without_headroom, "packet")
        page.warn([f"{lost} dropped because the headroom of a port was full."])
    if not pfc.ports:
        page.say("PFC paused no port in the first run.", "dim")
        return
    page.draw(lambda table: _layers(table, pfc.ports))
    causes = ", ".join(pfc.causes[:_MOST_CAUSES])
    more = len(pfc.causes) - _MOST_CAUSES
    text = f"PFC, first run: queues that caused pauses: {causes or 'none found'}"
    text += f" and {more:,} more. " if more > 0 else ". "
    if pfc.victim_flows is None:
        text += "Too many flows and links to count victims."
    else:
        text += f"Victims, flows that waited but use none of these links: {pfc.victim_flows:,}."
    page.say(text, "dim")


def _layers(table: Table, ports: list[PausedPort]) -> None:
    """One row per layer and direction, longest pauses first."""
    texts(table, "paused ports")
    numbers(table, "ports", "pauses", "longest")
    folded(table, "most time in pauses")
    numbers(table, "paused", "victims")
    by_layer: dict[str, list[PausedPort]] = {}
    for port in ports:
        by_layer.setdefault(port.layer, []).append(port)
    for layer, members in by_layer.items():
        worst = members[0]
        known = [port.victims for port in members if port.victims is not None]
        table.add_row(
            layer,
            human.count(len(members)),
            human.count(sum(port.pauses for port in members)),
            human.duration(max(port.longest_ns for port in members)),
            worst.port,
            human.duration(worst.paused_ns),
            human.count(max(known)) if known else NONE,
        )
