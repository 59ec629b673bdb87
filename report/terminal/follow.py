"""Events of `trace --follow` on a terminal: a line for each, then the flows that moved."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from typing import TextIO

from ...discovery.following.results import FollowEvent, FollowSummary, Move
from ..words import human
from .page import ColorWhen, page_on
from .ranks import ranks_text

_LOST = "switches that were lost"


class FollowPrinter:
    """Prints events as they come."""

    def __init__(self, stream: TextIO, top: int, color: ColorWhen) -> None:
        self._stream, self._top = stream, top
        self._page = page_on(stream, color)
        self._fim: float | None = None

    def event(self, event: FollowEvent) -> None:
        """One event; of the flows that moved the first `top`."""
        page, when = self._page, f"{event.time[11:23]} "
        names = ", ".join(event.devices[: self._top])
        if len(event.devices) > self._top:
            names += f" and {human.count(len(event.devices) - self._top)} more"
        if event.kind == "began":
            page.line(
                f"{when}following {human.counted(event.flows, 'flow')} over "
                f"{human.counted(len(event.devices), 'switch', 'switches')}, "
                f"{human.count(event.complete_flows)} with a known path; {_fim(event)}"
            )
        elif event.kind == "changed":
            was = "" if self._fim is None else f" (before {self._fim:.1f} %)"
            page.line(
                f"{when}{names} changed: {human.counted(event.moved_flows, 'flow')} moved, "
                f"{human.count(event.complete_flows)} of {human.count(event.flows)} with a known "
                f"path; {_fim(event)}{was}"
            )
            self._moves(event.moves)
        elif event.kind == "flows":
            page.line(
                f"{when}{human.counted(event.new_flows, 'new flow')}: "
                f"{human.count(event.complete_flows)} of {human.count(event.flows)} with a known "
                f"path; {_fim(event)}"
            )
            self._paths(event.moves)
        elif event.kind == "lost":
            page.line(f"{when}{page.glyphs.bad} {names} lost: {event.problem}", "red")
        elif event.kind == "back":
            page.line(f"{when}{names} back")
        for text in event.remarks[: self._top]:
            page.line(f"  {page.glyphs.warning} {text}", "yellow")
        page.left_out(len(event.remarks) - self._top, "remark")
        if event.kind == "began" and event.lost_devices:
            lost = ", ".join(event.lost_devices[: self._top])
            count = human.counted(len(event.lost_devices), "switch", "switches")
            page.line(f"  {page.glyphs.bad} lost: {count}: {lost}", "red")
        self._fim = event.fim_percent
        self._stream.flush()

    def _paths(self, moves: list[Move]) -> None:
        """The paths of new flows."""
        for move in moves[: self._top]:
            why = "" if move.ends_because is None else f" ({move.ends_because})"
            self._page.line(f"  {_flow(move)}: {' '.join(move.after) or 'no path'}{why}")
        if len(moves) > self._top:
            self._page.line(f"  and {human.counted(len(moves) - self._top, 'flow')} more")

    def _moves(self, moves: list[Move]) -> None:
        kinds = Counter(_step(move) for move in moves)
        for (before, after, why), flows in kinds.most_common(self._top):
            reason = f" ({why})" if why else ""
            self._page.line(f"  {human.counted(flows, 'flow')}: {before} to {after}{reason}")
        for move in moves[: self._top]:
            self._page.line(
                f"  {_flow(move)}: "
                f"{' '.join(move.before) or 'no path'} to {' '.join(move.after) or 'no path'}"
            )
        if len(moves) > self._top:
            self._page.line(f"  and {human.counted(len(moves) - self._top, 'flow')} more")

    def summary(self, event: FollowEvent, summary: FollowSummary) -> None:
        """The end."""
        page = self._page
        page.section("Followed")
        least, most = summary.fim_least_percent, summary.fim_most_percent
        fim = "" if least is None else f" FIM was {least:.1f} % to {most:.1f} %."
        page.say(
            f"{human.counted(summary.changes, 'change')} in "
            f"{human.duration(summary.seconds * 1e9)}, {human.counted(event.moved_flows, 'move')} "
            f"of flows, {human.counted(summary.readings, 'reading')} of switches.{fim}"
        )
        page.left_out(len(summary.ever_lost) - self._top, "switch that was lost", _LOST)
        for name, seconds in list(summary.ever_lost.items())[: self._top]:
            still = ", and is still lost" if name in event.lost_devices else ""
            without = human.duration(seconds * 1e9)
            page.say(f"{page.glyphs.bad} {name} was lost for {without}{still}", "red")
        never = [name for name in event.lost_devices if name not in summary.ever_lost]
        if never:
            names = ", ".join(never[: self._top])
            page.say(
                f"{page.glyphs.bad} no answer since the start: "
                f"{human.counted(len(never), 'switch', 'switches')}: {names}; their paths are "
                "those of the fabric file",
                "red",
            )


def _flow(move: Move) -> str:
    ranks = ranks_text(move.src_rank, move.dst_rank)
    of_ranks = f" ranks {ranks}" if ranks else ""
    flow = f"{move.src}>{move.dst} QP {human.queue_pair(move.dest_qp)}"
    return f"{flow} port {move.src_port}{of_ranks}"


def _fim(event: FollowEvent) -> str:
    return "FIM unknown" if event.fim_percent is None else f"FIM {event.fim_percent:.1f} %"


def _step(move: Move) -> tuple[str, str, str | None]:
    """The first links of a path that differ, and why it ends now if it does."""
    for before, after in zip_longest(move.before, move.after, fillvalue="no link"):
        if before != after:
            return before, after, move.ends_because
    return "the same links", "the same links", move.ends_because
