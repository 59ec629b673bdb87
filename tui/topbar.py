"""Line 1: the source, its rates and limits of trust. Line 2: the screens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import Static

from ..report import human
from .actions import FURTHER, SCREENS
from .session.snapshot import PathColumns, Snapshot, SourceState


class Part(NamedTuple):
    """A part of line 1."""

    text: str
    style: str = ""
    rank: int = 0
    """On narrow terminals parts with the highest rank are omitted first."""
    short: str = ""
    """Short form for narrow terminals."""
    trust: bool = False
    """Rank of the source and its limits of trust: omitted last."""


LONG, SHORT = " rocescope ▸ ", " ▸ "
LONGEST_NAME, SHORT_NAME, SHORTEST_NAME = 36, 14, 8
MAY_GO = 5
"""Parts from this rank on are omitted before more important parts are shortened."""


class TopBar(Static):
    """Source, rates, drops, truncation, and whether paths are known or inferred."""

    def show(
        self, snapshot: Snapshot, paths: PathColumns, frozen: bool, window: str, files: str
    ) -> None:
        """Draw the parts that fit, the important ones first."""
        width = max(20, self.size.width or 80) - 1
        name = snapshot.source.name or files
        everything = list(_parts(snapshot, paths, frozen, window))
        needed = sum(1 for part in everything if part.short or part.rank < MAY_GO)
        # Values take precedence over the full name of the source and the name of the program.
        for brand, most in (
            (LONG, LONGEST_NAME),
            (LONG, SHORT_NAME),
            (SHORT, SHORT_NAME),
            (SHORT, SHORTEST_NAME),
        ):
            text, room = Text(brand, "bold"), width - cell_len(brand)
            parts = _fitting(everything, room - min(most, len(name)))
            if len(parts) >= needed:
                break
        left = room - sum(2 + cell_len(part.text) for part in parts)
        text.append(
            human.UNICODE.shorten(name, max(SHORTEST_NAME, min(LONGEST_NAME, left))), "bold"
        )
        for part in parts:
            text.append("  ")
            text.append(part.text, part.style)
        self.update(text, layout=False)


def _fitting(parts: list[Part], room: int) -> list[Part]:
    """As many parts as fit, in short form if not all fit."""

    def needed() -> int:
        return sum(2 + cell_len(part.text) for part in parts)

    for rank in sorted({part.rank for part in parts}, reverse=True):
        if needed() > room:
            parts = [p._replace(text=p.short) if p.short and p.rank == rank else p for p in parts]
        if needed() > room and rank >= MAY_GO:
            parts = [part for part in parts if part.short or part.rank != rank]
    while len(parts) > 1 and needed() > room:
        parts.remove(max(parts, key=lambda part: (not part.trust, part.rank)))
    return parts


def _parts(snapshot: Snapshot, paths: PathColumns, frozen: bool, window: str) -> Iterator[Part]:
    """All parts, in reading order."""
    source = snapshot.source
    if source.error:
        yield Part(f"● {source.error}", "bold red", trust=True)
    if source.kind == "live" and source.warnings:
        said = human.counted(len(source.warnings), "warning")
        yield Part(f"▲ {said}, see D", "yellow", 1, "▲ see D", trust=True)
    if frozen:
        yield Part("❚❚ frozen", "bold reverse", trust=True)
    if source.behind_ns:
        behind = human.duration(source.behind_ns)
        yield Part(f"◂◂ behind live by {behind}", "bold reverse", 0, f"◂◂ {behind} ago", trust=True)
    if source.recording:
        yield Part(f"● rec {source.recording}", "bold red", 2, "● rec")
    yield from _progress(source)
    if window:
        yield Part(window, "bold", 2, trust=True)
    if source.packets_per_second is not None:
        yield Part(f"{human.count(round(source.packets_per_second))} pkt/s", "", 8)
    if source.bits_per_second is not None:
        yield Part(human.rate(source.bits_per_second), "", 4)
    if source.dropped:
        yield Part(f"● {human.count(source.dropped)} dropped", "bold red", 1, trust=True)
    elif source.dropped == 0:
        yield Part("dropped 0", "", 3, trust=True)
    else:
        yield Part("drops unknown", "dim", 6, "drops ?", trust=True)
    if source.undecodable:
        odd = f"▲ {human.count(source.undecodable)} undec"
        yield Part(f"{odd}odable", "yellow", 2, f"{odd}.", trust=True)
    if source.truncated:
        cut = human.count(source.truncated)
        yield Part(f"{cut} truncated", "dim", 7, f"{cut} cut", trust=True)
    yield Part(f"paths {paths.trust}", "", 3, trust=True)


def _progress(source: SourceState) -> Iterator[Part]:
    """The state of reading."""
    if not source.running:
        if source.stopped_early:
            done = source.progress
            where = "early" if done is None else f"at {int(done * 100)} %"
            yield Part(f"■ stopped {where}", "bold", 1, trust=True)
        elif source.kind == "live" and source.frames and not source.error:
            yield Part("■ stopped", "bold", 1)
    elif source.compiling:
        yield Part("compiling, once per machine", "yellow", 1, "compiling")
    elif source.kind == "live" and source.progress is None:
        yield Part("live", "bold", 1)
    elif source.progress is not None:
        bar = human.UNICODE.bar(source.progress, 10).ljust(10, "·")
        percent = f"{source.progress * 100:.0f} %"
        yield Part(f"{bar} {percent}", "", 1, percent)
    else:
        yield Part("reading", "", 1)


class Tabs(Static):
    """The screens with their number keys; click one to go there."""

    _shown: tuple[str, dict[str, int], int] | None = None

    def show(self, current: str, counts: dict[str, int]) -> None:
        """Mark the screen that is shown; a further screen stands at the end while it is shown."""
        width = self.size.width or 80
        if self._shown == (current, counts, width):
            return
        self._shown = current, counts, width
        screens = [*SCREENS, *(entry for entry in FURTHER if entry[1] == current)]
        long = [self._title(*screen, counts) for screen in screens]
        if sum(map(len, long)) + 2 * len(long) > width:
            long = [f"{key} {title}" for key, _, title in screens]
        for letters in (4, 3):
            if sum(map(len, long)) + len(long) - 1 > width:
                long = [f"{key} {title[:letters]}" for key, _, title in screens]
        gap = "  " if sum(map(len, long)) + 2 * len(long) <= width else " "
        text = Text(" " if gap == "  " else "")
        for number, ((_, name, _), label) in enumerate(zip(screens, long, strict=True)):
            if number:
                text.append(gap)
            begin = len(text.plain)
            text.append(label, "bold reverse" if name == current else "")
            text.apply_meta({"@click": f"app.go('{name}')"}, begin, len(text.plain))
        self.update(text, layout=False)

    @staticmethod
    def _title(key: str, name: str, title: str, counts: dict[str, int]) -> str:
        count = counts.get(name)
        return f"{key} {title} {human.count(count)}" if count else f"{key} {title}"
