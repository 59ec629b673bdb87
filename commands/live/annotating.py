"""`capture --annotate`: the file of a capture that has ended, with verdicts as comments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...analyzer.errors import RocescopeError
from ..options.progress import shown
from .capturing import say


def annotate(
    path: Path,
    frames: int,
    udp_ports: Sequence[int],
    quiet: bool,
    job_logs: tuple[str, ...] = (),
) -> None:
    """Replace a pcapng of this number of frames by itself with comments, as `export` writes them.

    If that fails or is interrupted, the file stays as it is, and a message says so.
    """
    from ...analyzer.pipeline.options import AnalyzeOptions
    from ...report.whole_file import whole_file
    from ...report.wireshark.export import export_pcapng

    if not quiet:
        say(f"writing comments into {path}; Ctrl-C ends this without comments")
    options = AnalyzeOptions(udp_ports=tuple(udp_ports), job_logs=job_logs)
    try:
        with shown("none" if quiet else "auto") as report, whole_file(path) as file:
            done = export_pcapng([str(path)], options, file, report)
            if done.frames != frames:
                raise RocescopeError(
                    f"{path} has {done.frames} packets, but {frames} were captured:"
                    " the file was changed during the capture"
                )
    except BaseException:
        say(f"{path} has all packets, but no comments: `export --pcapng` writes them")
        raise
    for warning in done.warnings:
        say(warning)
    if not quiet:
        say(done.outcome)
