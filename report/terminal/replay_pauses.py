"""Pauses of PFC on a terminal."""

from __future__ import annotations

from rich.table import Table

from ...replay.results.packets import PausedPort, PauseSummary
from ..words import human
from .page import Page, folded, numbers, texts
from .replay_parts import NONE

_MOST_CAUSES = 3
_MOST_STORMS = 3


def print_pauses(page: Page, pfc: PauseSummary) -> None:
    """How far the pauses of the first run spread, and whose queues caused them."""
    if pfc.lost_without_headroom:
        lost = human.counted(pfc.lost_without_headroom, "packet")
        page.warn([f"{lost} dropped because the headroom of a port was full."])
    if not pfc.ports:
        page.say("PFC paused no port in the first run.", "dim")
        _say_settings(page, pfc)
        return
    page.draw(lambda table: _layers(table, pfc.ports, len(pfc.priorities) > 1))
    causes = ", ".join(pfc.causes[:_MOST_CAUSES])
    more = len(pfc.causes) - _MOST_CAUSES
    text = f"PFC, first run: queues that caused pauses: {causes or 'none found'}"
    text += f" and {more:,} more. " if more > 0 else ". "
    if pfc.victim_flows is None:
        text += "Too many flows and links to count victims."
    else:
        text += f"Victims, flows that waited but use none of these links: {pfc.victim_flows:,}."
    page.say(text, "dim")
    _say_settings(page, pfc)
    if pfc.storms:
        page.warn([_storms(pfc)])


def _say_settings(page: Page, pfc: PauseSummary) -> None:
    """What `--lossless pfc` needs to repeat the result, defaults filled in."""
    settings = ", ".join(f"{key} {value}" for key, value in pfc.settings.items())
    page.say(f"PFC, in bytes of a switch or port: {settings}.", "dim")


def _storms(pfc: PauseSummary) -> str:
    """The ports that were paused for too long, and since when."""
    first = pfc.storms[:_MOST_STORMS]
    ports = ", ".join(
        f"{port.port} ({port.priority}, after {human.duration(port.storm_ns or 0)}, "
        f"{_longest([port])}{'' if port.endless else ' long'})"
        for port in first
    )
    more = len(pfc.storms) - len(first)
    ports += f" and {human.counted(more, 'port')} more" if more else ""
    after = human.duration(pfc.storm_after_ns)
    return f"Pause storm, first run: paused for {after} or longer without a break: {ports}."


def _longest(ports: list[PausedPort]) -> str:
    """The longest pause."""
    if any(port.endless for port in ports):
        return "endless"
    return human.duration(max(port.longest_ns for port in ports))


def _layers(table: Table, ports: list[PausedPort], several: bool) -> None:
    """One row per layer, direction and class of data, longest pauses first."""
    texts(table, "paused ports", *(["priority"] if several else []))
    numbers(table, "ports", "pauses", "longest")
    folded(table, "most time in pauses")
    numbers(table, "paused", "victims")
    by_layer: dict[tuple[str, str], list[PausedPort]] = {}
    for port in ports:
        by_layer.setdefault((port.layer, port.priority), []).append(port)
    for (layer, priority), members in by_layer.items():
        worst = members[0]
        known = [port.victims for port in members if port.victims is not None]
        table.add_row(
            layer,
            *([priority] if several else []),
            human.count(len(members)),
            human.count(sum(port.pauses for port in members)),
            _longest(members),
            worst.port,
            human.duration(worst.paused_ns),
            human.count(max(known)) if known else NONE,
        )
