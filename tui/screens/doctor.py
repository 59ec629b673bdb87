"""Screen D: the set-up: the capture and the available tools."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from ...report import human
from ..session.snapshot import Snapshot
from ..settings import settings_path
from .base import RoceScreen, own_bindings

GOOD, DOUBT, BAD = ("✓", "green"), ("▲", "yellow"), ("●", "bold red")


class DoctorScreen(RoceScreen):
    """Findings, the worst first."""

    name_ = "doctor"
    spare_of = "VerticalScroll"
    BINDINGS = own_bindings("doctor")

    def body(self) -> ComposeResult:
        with VerticalScroll(classes="columns"):
            yield Static(id="findings")

    def draw(self, snapshot: Snapshot) -> str:
        live = snapshot.source.kind == "live"
        findings = [*source_findings(snapshot), *tool_findings(live)]
        table = Table.grid(padding=(0, 1))
        for (glyph, style), line in sorted(findings, key=lambda f: [BAD, DOUBT, GOOD].index(f[0])):
            table.add_row(Text(glyph, style), Text(line))
        self.query_one("#findings", Static).update(table)
        bad = sum(1 for kind, _ in findings if kind == BAD)
        doubts = sum(1 for kind, _ in findings if kind == DOUBT)
        problems = human.counted(bad, "problem") if bad else "no problem"
        warnings = human.counted(doubts, "warning") if doubts else "no warning"
        return f"Set-up of this host and of the capture: {problems}, {warnings}."


Finding = tuple[tuple[str, str], str]


def source_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Losses of the capture, and what cannot be seen in it."""
    source = snapshot.source
    if source.error:
        yield BAD, source.error
    if source.dropped:
        yield BAD, f"{human.count(source.dropped)} frames were dropped by the capture"
    elif source.dropped is None and source.frames:
        yield (
            DOUBT,
            "dropped frames are unknown: the file has no drop counter (pcapng files can have it)",
        )
    elif source.frames:
        yield GOOD, "the capture dropped no frame"
    if source.frames and not len(snapshot.flows) and not source.running:
        frames = human.counted(source.frames, "frame")
        yield DOUBT, f"no RoCE packet in {frames}: is it on another UDP port (--udp-port)?"
    if source.undecodable:
        yield DOUBT, f"{human.counted(source.undecodable, 'frame')} could not be decoded"
    if source.truncated:
        yield (
            GOOD,
            (
                f"{human.count(source.truncated)} of {human.counted(source.frames, 'frame')}"
                f" {'is' if source.truncated == 1 else 'are'} cut by the snap length; sizes come"
                " from the IP headers"
            ),
        )
    for warning in source.warnings:
        yield DOUBT, warning
    if not len(snapshot.flows):
        return
    several = "tap" in snapshot.paths and len(source.tap_names) > 1
    if several and (source.kind != "live" or "," in source.name):
        yield GOOD, "several taps: paths by tap are known (p on screens 2 and 4)"
    else:
        yield (
            DOUBT,
            "one tap: paths are inferred from UDP source ports; a capture of each link makes"
            " them known",
        )


def tool_findings(live: bool) -> Iterator[Finding]:
    """Programs, privileges and files that the other screens need.

    live: probes are attached, with privileges that are given up since.
    """
    tshark = shutil.which("tshark")
    yield (
        (GOOD, f"tshark: {tshark}")
        if tshark
        else (DOUBT, "tshark is not installed: no dissection on screen 7 (apt install tshark)")
    )
    if not live:
        root = os.geteuid() == 0
        yield (
            (GOOD if root else DOUBT),
            (
                "live probes: you are root"
                if root
                else "live probes need root or CAP_BPF and CAP_NET_ADMIN"
            ),
        )
    if os.environ.get("NO_COLOR"):
        yield GOOD, "NO_COLOR is set: only glyphs mark problems"
    encoding = (getattr(sys.__stdout__, "encoding", None) or "").lower()
    if not encoding.startswith("utf"):
        yield (
            DOUBT,
            f"the terminal encoding is {encoding or 'unknown'}, not UTF-8: bars may look wrong",
        )
    path = settings_path()
    yield GOOD, f"settings: {path}{'' if path.exists() else ' (no such file: defaults apply)'}"
