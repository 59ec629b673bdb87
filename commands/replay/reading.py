"""Captures read for a replay, with progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options.progress import ProgressAs, shown

if TYPE_CHECKING:
    from ...replay.compare.prepared import PreparedReplay
    from ...replay.traffic.traffic import Traffic


def read_traffic(
    prepared: PreparedReplay, progress: ProgressAs, *, messages: bool = False
) -> Traffic:
    """`PreparedReplay.read` with the progress of --progress."""
    from ...analyzer.analysis.progress import Progress

    name = prepared.request.sources[0]
    with shown(progress) as report:

        def tell(done: int, total: int | None) -> None:
            if report is not None:
                report(Progress(name, done, total, 0, 0))

        return prepared.read(tell, messages=messages)
