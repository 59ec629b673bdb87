"""Bytes per path beside the fair share: columns, and the line that an even split would give."""

from __future__ import annotations

from collections.abc import Sequence

from ....analyzer.results.paths import Imbalance
from ....replay.results.replay import StrategyResult
from ...words import human, verdicts
from ..chart import Chart
from ..drawing import WIDTH, Drawing, shorten, ticks

MOST = 64
"""Columns of a chart; the fullest paths come first where there are more."""
_HOT, _COLD = 1.25, 0.75
"""Times the fair share from which a path counts as overloaded or underused."""
_LEFT, _TOP, _PLOT = 56.0, 22.0, 200.0
_LETTER, _LABEL_LINES = 7, 4
"""Width of a letter; names below the columns take up to this many lines: they do not overlap."""


def paths(record: Imbalance) -> Chart:
    """Bytes of each parallel path of a set."""
    short = verdicts.path_names(record)
    fair = record.wire_bytes / record.paths
    loads = [(short[share.path], share.wire_bytes, fair, None) for share in record.shares]
    inferred = " The paths are inferred." if record.inferred else ""
    words = f"{human.counted(record.paths, 'path')}, {human.counted(record.flows, 'flow')}"
    name = f"Bytes per path of {verdicts.set_name(record)}"
    return _columns(name, f"{words}.{inferred}", loads, "path")


def links(strategy: StrategyResult, layer: str) -> Chart | None:
    """Bytes of each link of a layer with a strategy; None without load."""
    of_layer = [link for link in strategy.links if link.layer == layer]
    loads = [
        (
            link.name,
            link.wire_bytes,
            link.wire_bytes / link.over_mean if link.over_mean else None,
            link.flows,
        )
        for link in of_layer
    ]
    if not any(link.wire_bytes for link in of_layer):
        return None
    from ....replay.results.replay import AS_CAPTURED  # slow to load: only reports of replays

    how = strategy.title if strategy.name == AS_CAPTURED else f"placed by {strategy.title}"
    words = f"{human.counted(len(of_layer), 'link')} of layer {layer}, {how}."
    return _columns(f"Bytes per link, {layer}, {strategy.title}", words, loads, "link")


def _columns(
    name: str, words: str, loads: Sequence[tuple[str, int, float | None, int | None]], what: str
) -> Chart:
    """loads: name, bytes, fair share in bytes or None, flows or None."""
    by_load = sorted(loads, key=lambda load: -load[1])
    shown = by_load[:MOST]
    if len(loads) <= MOST:
        shown = sorted(loads, key=lambda load: (not load[0].isdigit(), load[0].zfill(8)))
    fair = [share for _, _, share, _ in shown if share]
    level = fair[0] if fair and max(fair) - min(fair) <= 0.01 * max(fair) else None
    if level is not None:
        shown = [(label, size, share or level, flows) for label, size, share, flows in shown]
    scale = ticks(max(*(size for _, size, _, _ in shown), *fair, 1))
    step = (WIDTH - 8 - _LEFT) / max(1, len(shown))
    lines = min(_LABEL_LINES, -(-_LETTER * max(len(load[0]) for load in shown) // int(step)))
    drawing = Drawing(_TOP + _PLOT + 16 + 15 * lines)
    base = _TOP + _PLOT
    for tick in scale:
        y = base - _PLOT * tick / scale[-1]
        drawing.line(_LEFT, y, WIDTH - 8, y, "axis")
        drawing.text(_LEFT - 6, y + 4, human.size(tick), "soft", "end")
    for number, (label, size, share, _) in enumerate(shown):
        x, height = _LEFT + step * (number + 0.12), _PLOT * size / scale[-1]
        times = size / share if share else 1.0
        kind, mark = ("two", "++") if times > _HOT else ("three", "--") if times < _COLD else \
            ("one", "")  # fmt: skip
        drawing.rect(x, base - height, step * 0.76, height, kind)
        if step >= 14:
            drawing.text(x + step * 0.38, base - height - 4, mark, "strong", "middle")
        fits = int(step * lines / _LETTER)
        if fits >= 3:
            y = base + 16 + 15 * (number % lines)
            shown_name, half = shorten(label, fits), _LETTER * min(len(label), fits) / 2
            if x + step * 0.38 + half > WIDTH:
                drawing.text(WIDTH - 2, y, shown_name, "soft", "end")
            else:
                drawing.text(x + step * 0.38, y, shown_name, "soft", "middle")
        if share and level is None:
            y = base - _PLOT * share / scale[-1]
            drawing.line(x - step * 0.1, y, x + step * 0.86, y, "fair")
    if level is not None:
        y = base - _PLOT * level / scale[-1]
        drawing.line(_LEFT, y, WIDTH - 8, y, "fair")
        drawing.text(WIDTH - 8, 14, f"dashed: fair share {human.size(level)}", "strong", "end")
    drawing.text(_LEFT, 14, "bytes", "soft")
    fullest = by_load[0]
    text = f"{words} The fullest is {fullest[0]} with {human.size(fullest[1])}"
    if fullest[2]:
        text += f", {fullest[1] / fullest[2]:.2f} times its fair share (dashed line)"
    text += "; ++ is above 1.25 times the fair share, -- below 0.75 times."
    rows = [
        (label, size, share, size / share if share else None, flows)
        for label, size, share, flows in shown
    ]
    left = len(loads) - len(shown)
    return Chart(
        name,
        text,
        drawing,
        (what, "bytes", "fair share, bytes", "times fair", "flows"),
        rows,
        f"The {MOST} fullest of {human.counted(len(loads), what)} are shown." if left else "",
    )
