"""The result of `discover` on a terminal: findings first, then devices and links."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from ...discovery.folder import NO_ANSWER, UNEXPECTED, UNREADABLE
from ...discovery.lost_members import LOST
from ...discovery.results import Discovery, Remark
from ..words import human
from .page import Page, folded, texts

_FINDINGS = (LOST, NO_ANSWER, UNREADABLE, UNEXPECTED)
"""Kinds of remarks that are faults of devices or of their answers."""
_MOST_REMARKS = 20
"""Of one kind."""
_MOST_ROWS = 1000


def fill_discovery(page: Page, result: Discovery) -> None:
    """What was found, what contradicts it, and what was not read."""
    title = (
        f"{result.source}: "
        f"{human.counted(result.switches, 'switch', 'switches')}, "
        f"{human.counted(result.hosts, 'host')}, {human.counted(len(result.links), 'link')}, "
        f"from the answers of {human.counted(len(result.devices), 'device')}"
    )
    page.line(title, "bold")
    for kind, remarks in _by_kind(result.remarks):
        bad = kind in _FINDINGS
        sign = page.glyphs.bad if bad else page.glyphs.warning
        for remark in remarks[:_MOST_REMARKS]:
            page.say(f"{sign} {_text(remark)}", "red" if bad else "yellow")
        page.left_out(len(remarks) - _MOST_REMARKS, f"remark: {kind}", f"remarks: {kind}")
    if result.switches_without_tables:
        names = ", ".join(result.switches_without_tables[:_MOST_REMARKS])
        left = len(result.switches_without_tables) - _MOST_REMARKS
        more = f" and {human.count(left)} more" if left > 0 else ""
        page.say(
            f"{page.glyphs.warning} Tables not read, shortest paths assumed: {names}{more}",
            "yellow",
        )
    if result.queue_pairs:
        known = sum(pair.inferred_peer is not None for pair in result.queue_pairs)
        hosts = len({pair.host for pair in result.queue_pairs})
        pairs = human.counted(len(result.queue_pairs), "queue pair")
        page.say(f"{pairs} on {human.counted(hosts, 'host')}; the peer of {known} is inferred")
    page.section("Devices")
    page.draw(lambda table: _devices(table, result))
    page.left_out(len(result.devices) - _MOST_ROWS, "device")
    page.section("Links")
    page.draw(lambda table: _links(table, result))
    page.left_out(len(result.links) - _MOST_ROWS, "link")


def _by_kind(remarks: list[Remark]) -> list[tuple[str, list[Remark]]]:
    """Remarks of one kind together, findings first, in the order of their appearance."""
    kinds: dict[str, list[Remark]] = {}
    for remark in sorted(remarks, key=lambda entry: entry.kind not in _FINDINGS):
        kinds.setdefault(remark.kind, []).append(remark)
    return list(kinds.items())


def _text(remark: Remark) -> str:
    device = f"{remark.device}: " if remark.device else ""
    return f"{remark.kind}: {device}{remark.text}"


def _devices(table: Table, result: Discovery) -> None:
    texts(table, "device", "kind", "dialect", "hash")
    folded(table, "not read")
    for row in result.devices[:_MOST_ROWS]:
        cells = (row.name, row.kind, row.dialect, row.hash or "-", ", ".join(row.not_read) or "-")
        table.add_row(*map(Text, cells))


def _links(table: Table, result: Discovery) -> None:
    texts(table, "link", "ports")
    folded(table, "evidence")
    for link in result.links[:_MOST_ROWS]:
        ports = " - ".join(port or "?" for port in link.ports)
        cells = (link.name.replace(">", "-"), ports, link.evidence)
        table.add_row(*map(Text, cells))
