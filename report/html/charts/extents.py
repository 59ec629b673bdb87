"""The distribution of the reordering extent over all flows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ....analyzer.results.flow import Flow
from ...words import human
from ..chart import Chart
from ..drawing import WIDTH, Drawing, ticks

_LEFT, _TOP, _PLOT = 56.0, 22.0, 180.0


def extents(flows: Iterable[Flow]) -> Chart | None:
    """Late packets by extent, in powers of two; None without late packets."""
    octaves: Counter[int] = Counter()
    most = late_flows = 0
    for flow in flows:
        if flow.reordering is None or not flow.reordering.extent_histogram:
            continue
        late_flows += 1
        most = max(most, flow.reordering.max_extent)
        for bucket in flow.reordering.extent_histogram:
            octaves[max(1, bucket.low).bit_length() - 1] += bucket.count
    total = sum(octaves.values())
    if not total:
        return None
    last = max(octaves)
    counts = [octaves[k] for k in range(last + 1)]
    labels = ["1"] + [f"{1 << k} to {(2 << k) - 1}" for k in range(1, last + 1)]
    scale = ticks(max(counts))
    drawing, base = Drawing(_TOP + _PLOT + 44), _TOP + _PLOT
    for tick in scale:
        y = base - _PLOT * tick / scale[-1]
        drawing.line(_LEFT, y, WIDTH - 48, y, "axis")
        drawing.text(_LEFT - 6, y + 4, human.count(round(tick)), "soft", "end")
    step = (WIDTH - 48 - _LEFT) / len(counts)
    rows: list[tuple[str, int, float, float]] = []
    below, line = 0, []
    for number, (label, count) in enumerate(zip(labels, counts, strict=True)):
        below += count
        x, height = _LEFT + step * number, _PLOT * count / scale[-1]
        drawing.rect(x + step * 0.1, base - height, step * 0.8, height, "one")
        if step > 34 or number % 2 == 0:
            drawing.text(x + step / 2, base + 16, label, "soft", "middle")
        line.append((x + step, base - _PLOT * below / total))
        rows.append((label, count, 100 * count / total, 100 * below / total))
    drawing.path([(_LEFT, base), *line], "fair")
    drawing.text(WIDTH - 44, _TOP + 4, "100 %", "soft")
    drawing.text(WIDTH - 44, base + 4, "0 %", "soft")
    drawing.text(_LEFT, 14, "late packets", "soft")
    drawing.text((_LEFT + WIDTH - 48) / 2, base + 36, "extent in packets", "soft", "middle")
    half = next(row[0] for row in rows if row[3] >= 50)
    return Chart(
        "Distribution of the reordering extent",
        f"{human.counted(total, 'late packet')} of {human.counted(late_flows, 'flow')}; half have "
        f"an extent of at most {half.split()[-1]} packets, the largest is {human.count(most)}. "
        "The dashed line is the share at or below each extent.",
        drawing,
        ("extent, packets", "late packets", "% of them", "% up to here"),
        rows,
    )
