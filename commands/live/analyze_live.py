"""`rocescope analyze --live`: a line per interval, the report at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...analyzer.errors import UsageError
from ...analyzer.units import parse_duration, parse_size
from .capturing import Ending, ended_by_signals, said_if_slow, say, say_owners_unknown, say_what

if TYPE_CHECKING:
    from ...analyzer.results.analysis import Analysis
    from ...analyzer.results.live import LiveInterval

Hook: TypeAlias = Literal["tc", "xdp", "xdp-generic", "clsact"]


@dataclass(frozen=True, slots=True)
class LiveArguments:
    """The options that only --live takes, as given."""

    netns: str | None
    hook: Hook | None
    snaplen: int | None
    ring: str | None
    interval: str | None
    duration: str | None
    count: int | None

    def refuse(self) -> None:
        """UsageError when one is given without --live."""
        for name in self.__slots__:
            if getattr(self, name) is not None:
                raise UsageError(f"--{name} is for --live: rocescope analyze --live IFACE")


def analyze_live(
    interfaces: Sequence[str],
    given: LiveArguments,
    *,
    json: bool,
    filter: str | None,
    udp_ports: tuple[int, ...],
    path_by: Literal["entropy", "tap", "srv6"],
    window_ns: int,
    writes_file: bool,
) -> tuple[Analysis, int]:
    """Analyse interfaces until something ends it, printing the intervals; with the exit code."""
    from ...probes.live import LiveOptions
    from ...probes.live_analysis import LiveAnalysis, MeasureOptions
    from ...probes.rights.dropping import WRITING

    if given.count is not None and given.count < 1:
        raise UsageError("--count takes a number of packets, at least 1")
    live = LiveOptions(
        hook=given.hook or "tc",
        namespace=given.netns,
        snap_bytes=96 if given.snaplen is None else given.snaplen,
        ring_bytes=parse_size(given.ring, "--ring") if given.ring else None,
        udp_ports=udp_ports,
        filter=filter,
    )
    options = MeasureOptions(
        path_by=path_by,
        window_ns=window_ns,
        interval_ns=parse_duration(given.interval or "1s", "--interval"),
        count=given.count,
        keep_privileges=WRITING if writes_file else (),
    )
    seconds = parse_duration(given.duration, "--duration") / 1e9 if given.duration else None
    analysis = LiveAnalysis(interfaces, live, options)
    with ended_by_signals(analysis.source), ExitStack() as stack:
        with said_if_slow("still preparing: the first run on a machine compiles its kernels"):
            stack.enter_context(analysis)
        say_what(analysis.source)
        say_owners_unknown(analysis.reasons)
        known = len(analysis.reasons)
        analysis.run(_json_line if json else _table_lines, Ending(analysis.source, seconds).check)
        result = analysis.result()
        say_owners_unknown(analysis.reasons[known:])
    if not json and not writes_file:
        print()
    if analysis.ended_by is not None:
        say(f"ended early, {analysis.ended_by}")
    return result, 1 if analysis.ended_by is not None else 0


def _json_line(interval: LiveInterval) -> None:
    from ...report.files.text import encode_interval

    sys.stdout.buffer.write(encode_interval(interval))
    sys.stdout.buffer.flush()


def _table_lines(interval: LiveInterval) -> None:
    from ...report.terminal.intervals import interval_lines

    print("\n".join(interval_lines(interval)), flush=True)
