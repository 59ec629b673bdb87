"""Small plots of the reproductions, as SVG in docs/reproductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from pathlib import Path
from types import MappingProxyType

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reproductions"

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888", "#000000")


def log_log_plot(
    name: str,
    title: str,
    axes: tuple[str, str],
    lines: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    labels: Mapping[float, str] = MappingProxyType({}),
) -> None:
    """Lines on two logarithmic axes, each (name, x, y). labels: of x, if not the number."""
    xs = [x for _, values, _ in lines for x in values]
    ys = [y for _, _, values in lines for y in values]
    left, top, width, height = 60, 30, 400, 280
    low_x, high_x = log10(min(xs)), log10(max(xs))
    low_y, high_y = log10(min(ys)) - 0.05, log10(max(ys)) + 0.05

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + width * (log10(x) - low_x) / (high_x - low_x),
            top + height * (high_y - log10(y)) / (high_y - low_y),
        )

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 370" font-family="sans-serif" '
        'font-size="12"><rect width="600" height="370" fill="#fff"/>',
        f'<text x="{left}" y="18" font-size="14">{title}</text>',
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#999"/>',
        f'<text x="{left + width / 2}" y="362" text-anchor="middle">{axes[0]}</text>',
        f'<text transform="translate(14 {top + height / 2}) rotate(-90)" '
        f'text-anchor="middle">{axes[1]}</text>',
    ]
    for x in sorted(set(xs)):
        px, _ = at(x, min(ys))
        parts.append(
            f'<text x="{px:.0f}" y="{top + height + 16}" text-anchor="middle">'
            f"{labels.get(x, f'{x:g}')}</text>"
        )
    for y in (1, 3, 10, 30, 100, 300, 1000, 3000, 10000):
        if low_y <= log10(y) <= high_y:
            _, py = at(min(xs), y)
            parts.append(f'<text x="{left - 6}" y="{py + 4:.0f}" text-anchor="end">{y}</text>')
            parts.append(
                f'<line x1="{left}" x2="{left + width}" y1="{py:.0f}" y2="{py:.0f}" stroke="#ddd"/>'
            )
    for i, (line, line_x, line_y) in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        points = " ".join(
            "{:.1f},{:.1f}".format(*at(x, y)) for x, y in zip(line_x, line_y, strict=True)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        y = top + 14 + 18 * i
        parts.append(
            f'<rect x="{left + width + 10}" y="{y - 9}" width="12" height="4" fill="{colour}"/>'
        )
        parts.append(f'<text x="{left + width + 27}" y="{y}">{line}</text>')
    _write(name, parts)


def range_plot(
    name: str, title: str, axis: str, rows: Sequence[tuple[str, float, float, float, float]]
) -> None:
    """A line per row: (name, reference, least, mean, most); the reference is a vertical mark."""
    left, top, width, height = 230, 30, 350, 26
    low = 0.95 * min(min(row[1:]) for row in rows)
    high = 1.05 * max(max(row[1:]) for row in rows)
    bottom = top + height * len(rows)

    def at(x: float) -> float:
        return left + width * (x - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 {bottom + 45}" '
        f'font-family="sans-serif" font-size="12"><rect width="600" height="{bottom + 45}" '
        'fill="#fff"/>',
        f'<text x="10" y="18" font-size="14">{title}</text>',
        f'<rect x="{left}" y="{top}" width="{width}" height="{bottom - top}" fill="none" '
        'stroke="#999"/>',
        f'<text x="{left + width / 2}" y="{bottom + 36}" text-anchor="middle">{axis}</text>',
    ]
    for x in range(int(low) + 1, int(high) + 1, 2):
        parts.append(f'<text x="{at(x):.0f}" y="{bottom + 16}" text-anchor="middle">{x}</text>')
    for i, (row, reference, least, mean, most) in enumerate(rows):
        y = top + height * i + height / 2
        parts += [
            f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{row}</text>',
            f'<line x1="{at(least):.1f}" x2="{at(most):.1f}" y1="{y}" y2="{y}" '
            f'stroke="{COLOURS[0]}" stroke-width="2"/>',
            f'<circle cx="{at(mean):.1f}" cy="{y}" r="4" fill="{COLOURS[0]}"/>',
            f'<line x1="{at(reference):.1f}" x2="{at(reference):.1f}" y1="{y - 9}" y2="{y + 9}" '
            f'stroke="{COLOURS[1]}" stroke-width="2"/>',
        ]
    _write(name, parts)


def _write(name: str, parts: Sequence[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.svg").write_text("\n".join([*parts, "</svg>\n"]))
    print(f"wrote docs/reproductions/{name}.svg")
