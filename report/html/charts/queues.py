"""Queues of a replay packet by packet over time."""

from __future__ import annotations

from ....replay.results.replay import LinkLoad, StrategyResult
from ...words import human
from ..chart import Chart
from .lines import MOST, lines


def queues(strategy: StrategyResult) -> Chart | None:
    """The link with the longest queue of each layer; None if no packet waited."""
    if strategy.packets is None:
        return None
    longest: dict[str, LinkLoad] = {}
    for link in strategy.links:
        most = max(link.queue_bytes_over_time or (0,))
        if most > max(_queue(longest.get(link.layer)), default=0):
            longest[link.layer] = link
    queued = sorted(longest.values(), key=lambda link: -max(_queue(link)))
    if not queued:
        return None
    shown, stretch = queued[:MOST], strategy.packets.load_stretch_ns
    named = [
        (
            f"{link.name} ({link.layer}), at most {human.size(max(_queue(link)))}",
            [
                (stretch * (number + side), float(size))
                for number, size in enumerate(_queue(link))
                for side in (0, 1)
            ],
        )
        for link in shown
    ]
    rows = [
        (stretch * number, *sizes)
        for number, sizes in enumerate(zip(*map(_queue, shown), strict=True))
    ]
    words = f"The longest queue of each layer in intervals of {human.duration(stretch)}, the "
    words += "packet in service included; 0 where no packet waited. First run."
    left = len(queued) - len(shown)
    return Chart(
        f"Queues over time, {strategy.title}",
        words,
        lines(named, max(_queue(shown[0])), human.size, "time since the first packet"),
        ("from, ns", *(f"{link.name}, B" for link in shown)),
        rows,
        f"{human.counted(left, 'layer')} with shorter queues not shown." if left else "",
    )


def _queue(link: LinkLoad | None) -> list[int]:
    return [] if link is None else link.queue_bytes_over_time or []
