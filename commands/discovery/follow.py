"""`rocescope trace --follow`: events until Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..live.capturing import ended_by_signals
from ..options.output import ReportOutput, write_results

if TYPE_CHECKING:
    from ...discovery.asking.commands import Line
    from ...discovery.dialects.dialect import Dialect
    from ...discovery.following.follow import Follow
    from ...replay.fabrics.fabric import Fabric
    from ...replay.traffic.traffic import Traffic


def follow(
    line: Line,
    dialects: Mapping[str, Dialect],
    fabric: Fabric,
    traffic: Traffic,
    seconds: float | None,
    top: int,
    to: ReportOutput,
    growing: Callable[[Follow], None] | None = None,
) -> int:
    """Print events until Ctrl-C or the end of the duration; then a summary.

    growing: called once it follows; adds the traffic whenever it has new flows.
    """
    from ...discovery.following.follow import Follow
    from ...report.files import encode_json
    from ...report.terminal.follow import FollowPrinter

    following = Follow(line, dialects, fabric, traffic)
    printer = FollowPrinter(sys.stdout, top, to.color) if to.chosen() == "table" else None
    last = None
    with ended_by_signals(following):
        for event in following.events(seconds):
            last = event
            if event.kind == "began" and growing is not None:
                growing(following)
            if printer is None:
                write_results(encode_json(event), None)
            elif event.kind != "ended":
                printer.event(event)
    if printer is not None and last is not None:
        printer.summary(last, following.summary())
    return 0
