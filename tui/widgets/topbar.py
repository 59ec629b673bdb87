"""Line 1: the source, its rates and how far it can be trusted. Line 2: the screens."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import Static

from .. import human
from ..actions import SCREENS
from ..snapshot import PathColumns, Snapshot


class TopBar(Static):
    """Source, rates, drops, truncation, and whether paths are known or inferred."""

    def show(
        self, snapshot: Snapshot, paths: PathColumns, frozen: bool, window: str, files: str
    ) -> None:
        """Draw the parts that fit, the important ones first."""
        parts = list(_parts(snapshot, paths, frozen, window))
        width = max(20, self.size.width or 80) - 1
        text = Text(" rocescope ▸ ", "bold")
        room = width - cell_len(text.plain)
        name = snapshot.source.name or files
        text.append(human.UNICODE.shorten(name, max(8, min(36, room // 3))), "bold")
        left = width - cell_len(text.plain)
        chosen: list[int] = []
        for index in sorted(range(len(parts)), key=lambda i: parts[i][2]):
            need = 2 + cell_len(parts[index][0])
            if need <= left:
                chosen.append(index)
                left -= need
        for index in sorted(chosen):
            text.append("  ")
            text.append(parts[index][0], parts[index][1])
        self.update(text, layout=False)


def _parts(
    snapshot: Snapshot, paths: PathColumns, frozen: bool, window: str
) -> list[tuple[str, str, int]]:
    """(text, style, rank): rank 0 must be seen first."""
    source = snapshot.source
    parts: list[tuple[str, str, int]] = []
    if source.error:
        parts.append((f"● {source.error}", "bold red", 0))
    if frozen:
        parts.append(("❚❚ frozen", "bold reverse", 0))
    if source.behind_ns:
        parts.append((f"◂◂ behind live by {human.duration(source.behind_ns)}", "bold reverse", 0))
    if source.recording:
        parts.append((f"● rec {source.recording}", "bold red", 2))
    if source.running:
        progress = source.progress
        if source.compiling:
            parts.append(("compiling, once per machine", "yellow", 1))
        elif source.kind == "live":
            parts.append(("live", "bold", 1))
        elif progress is not None:
            bar = human.UNICODE.bar(progress, 10).ljust(10, "·")
            parts.append((f"{bar} {progress * 100:.0f} %", "", 1))
        else:
            parts.append(("reading", "", 1))
    if window:
        parts.append((window, "bold", 2))
    if source.packets_per_second is not None:
        rate = human.count(round(source.packets_per_second))
        parts.append((f"{rate} pkt/s", "", 5))
    if source.bits_per_second is not None:
        parts.append((human.rate(source.bits_per_second), "", 4))
    if source.dropped:
        parts.append((f"● {human.count(source.dropped)} dropped", "bold red", 1))
    elif source.dropped == 0:
        parts.append(("dropped 0", "", 3))
    else:
        parts.append(("drops unknown", "dim", 6))
    if source.undecodable:
        parts.append((f"▲ {human.count(source.undecodable)} undecodable", "yellow", 2))
    if source.truncated:
        parts.append((f"{human.count(source.truncated)} truncated", "dim", 7))
    parts.append((f"paths {paths.trust}", "", 3))
    return parts


class Tabs(Static):
    """The screens with their number keys; click one to go there."""

    def show(self, current: str, counts: dict[str, int]) -> None:
        """Mark the screen that is shown."""
        width = self.size.width or 80
        long = [self._title(i, name, title, counts) for i, (name, title) in enumerate(SCREENS, 1)]
        if sum(map(len, long)) + 2 * len(long) > width:
            long = [f"{i} {title}" for i, (_, title) in enumerate(SCREENS, 1)]
        if sum(map(len, long)) + len(long) - 1 > width:
            long = [f"{i} {title[:4]}" for i, (_, title) in enumerate(SCREENS, 1)]
        gap = "  " if sum(map(len, long)) + 2 * len(long) <= width else " "
        text = Text(" " if gap == "  " else "")
        for (name, _), label in zip(SCREENS, long, strict=True):
            if name != SCREENS[0][0]:
                text.append(gap)
            begin = len(text.plain)
            text.append(label, "bold reverse" if name == current else "")
            text.apply_meta({"@click": f"app.go('{name}')"}, begin, len(text.plain))
        self.update(text, layout=False)

    @staticmethod
    def _title(number: int, name: str, title: str, counts: dict[str, int]) -> str:
        count = counts.get(name)
        return f"{number} {title} {human.count(count)}" if count else f"{number} {title}"
