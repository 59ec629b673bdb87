"""`rocescope capture`: RoCE packets of interfaces into a pcapng, or flow counters of the kernel."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from ..analyzer.errors import RocescopeError, UsageError
from ..analyzer.words import parse_duration, parse_size
from .options.capturing import (
    CAPTURING,
    UNTIL,
    Capturing,
    Ending,
    Told,
    Until,
    ended_by_signals,
    say,
    say_owners_unknown,
    say_what,
    writable_later,
)
from .options.output import write_results
from .options.progress import shown
from .options.reading import JOB_LOGS, SELECTION, JobLogs, Selection
from .options.taps import STANDARD_OUTPUT
from .table import Parameter

if TYPE_CHECKING:
    from ..analyzer.results.analysis import Analysis
    from ..probes.capture_files import CaptureFiles, Rotation
    from ..probes.counters.counters import CounterOptions, CounterSource
    from ..probes.file_maker import FileMaker
    from ..probes.live import LiveSource
    from ..probes.owners.watch import OwnerWatch


# `capture --annotate`: the file of a capture that has ended, with verdicts as comments.


def annotate_capture(
    path: Path,
    frames: int,
    udp_ports: Sequence[int],
    quiet: bool,
    job_logs: tuple[str, ...] = (),
) -> None:
    """Replace a pcapng of this number of frames by itself with comments, as `export` writes them.

    If that fails or is interrupted, the file stays as it is, and a message says so.
    """
    from ..analyzer.pipeline.options import AnalyzeOptions
    from ..report.whole_file import whole_file
    from ..report.wireshark.export import export_pcapng

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


# `rocescope capture --counters`: flow counters in the kernel, read at intervals.

Format: TypeAlias = Literal["table", "json"]
_POLL_S = 0.05
_CHECK_EVERY_S = 1.0


class Counting:
    """Running counters on interfaces; `stop` ends them cleanly."""

    def __init__(
        self,
        interfaces: Sequence[str],
        options: CounterOptions,
        format: Format | None,
        write: Path | None,
        seconds: float | None,
        interval: float | None,
    ) -> None:
        self._interfaces, self._options = interfaces, options
        to_file = write is not None and write != STANDARD_OUTPUT
        self._write = write if to_file else None
        self._format = format or ("table" if write is None else "json")
        if to_file and self._format != "json":
            raise UsageError("--format cannot be combined with -w: --counters writes JSON to files")
        self._seconds, self._interval = seconds, interval
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End after one last reading."""
        self._stopping.set()

    def run(self) -> int:
        """Count until the end condition; returns the exit code."""
        from ..probes.counters.counters import CounterSource
        from ..probes.rights import become_unprivileged

        with (
            writable_later(self._write) as self._write,
            CounterSource(self._interfaces, self._options) as source,
        ):
            become_unprivileged(source.privileges())
            say_what(source, "counting")
            self._wait(source)
            source.detach()
            self._report(source, True)
        return 0

    def _wait(self, source: CounterSource) -> None:
        begin = checked = time.monotonic()
        notes = Told()
        notes.say(source.others.lines())
        read = begin
        while not self._stopping.is_set():
            now = time.monotonic()
            if self._seconds is not None and now - begin >= self._seconds:
                return
            if self._interval is not None and now - read >= self._interval:
                read += self._interval
                self._report(source, False)
            if now - checked >= _CHECK_EVERY_S:
                checked = now
                source.note()
                notes.say(source.others.lines())
                if len(source.gone()) == len(source.interfaces):
                    say("all interfaces have disappeared or lost their probes")
                    return
            self._stopping.wait(_POLL_S)

    def _report(self, source: CounterSource, last: bool) -> None:
        from ..probes.counters.counters import analysis_of

        reading = source.read()
        analysis = analysis_of(source, reading)
        if last:
            say(
                f"{reading.total('counted')} packets counted,"
                f" {int(reading.lost_packets.sum())} of them missing from the flows, because"
                " entries were evicted"
            )
        self._print(analysis)

    def _print(self, analysis: Analysis) -> None:
        if self._format == "json":
            from ..report.files import encode

            write_results(encode(analysis, "json"), self._write)
            return
        from ..report.terminal.page import page_on
        from ..report.terminal.report import Report

        Report(analysis, page_on(sys.stdout)).print()


_CAPTURE_POLL_S = 0.2
"""Maximum delay of a packet to the file; full rings wake the reader earlier."""


def capture(
    *interfaces: Annotated[str, Parameter(required=True, name="IFACE")],
    write: Annotated[Path | None, Parameter(alias="-w")] = None,
    until: Annotated[Until, Parameter(name="*")] = UNTIL,
    selection: Annotated[Selection, Parameter(name="*")] = SELECTION,
    capturing: Annotated[Capturing, Parameter(name="*")] = CAPTURING,
    sample: int = 1,
    rotate_size: str | None = None,
    rotate_every: str | None = None,
    files: int | None = None,
    annotate: Annotated[bool, Parameter(show_default=False)] = False,
    logs: Annotated[JobLogs, Parameter(name="*")] = JOB_LOGS,
    no_owners: Annotated[bool, Parameter(show_default=False)] = False,
    quiet: Annotated[bool, Parameter(show_default=False)] = False,
    counters: Annotated[bool, Parameter(show_default=False)] = False,
    interval: Annotated[str | None, Parameter(group="With --counters")] = None,
    max_flows: Annotated[int | None, Parameter(group="With --counters")] = None,
    format: Annotated[
        Literal["table", "json"] | None, Parameter(alias="-f", group="With --counters")
    ] = None,
) -> int:
    """Capture RoCE packets into a pcapng file, or count them in the kernel.

    Parameters
    ----------
    interfaces
        Interfaces, or NETNS:IFACE in another network namespace.
    write
        The pcapng to write; - is standard output. Without --write packets are only counted.
        With --counters: the JSON file to write.
    sample
        Keep one packet in N of each flow.
    rotate_size
        Start a new file at this size, for example 1GB.
    rotate_every
        Start a new file after this time, for example 10min.
    files
        Keep only the newest N files.
    annotate
        At the end, mark late, lost and retransmitted packets in the file with packet comments for
        Wireshark.
    no_owners
        Do not record in the file which process and rank owns each queue pair of this host.
    quiet
        Print only errors and dropped packets.
    counters
        Only count packets in the kernel, per flow and UDP source port.
    interval
        Report at this interval, such as 10s, and at the end. Default: only at the end.
    max_flows
        Maximum number of flows times UDP source ports on each CPU, default 8192.
    format
        table: the report for people; json: everything.
    """
    if counters:
        from ..probes.counters.counters import CounterOptions

        _refuse(
            "--counters cannot be combined with {}: no packets are kept",
            **{"--count": until.count, "--ring": capturing.ring, "--rotate-size": rotate_size},
            **{"--rotate-every": rotate_every, "--files": files},
            **{"--snaplen": capturing.snaplen != CAPTURING.snaplen, "--sample": sample != 1},
            **{"--annotate": annotate, "--nccl-log": logs.nccl_log},
        )
        options = CounterOptions(
            hook=capturing.hook,
            namespace=capturing.netns,
            max_flows=max_flows,
            udp_ports=selection.udp_ports,
            filter=selection.filter,
        )
        every = None if interval is None else parse_duration(interval, "--interval") / 1e9
        counting = Counting(interfaces, options, format, write, until.seconds, every)
        with ended_by_signals(counting):
            return counting.run()
    _refuse(
        "{} needs --counters",
        **{"--interval": interval, "--max-flows": max_flows, "--format": format},
    )
    from ..probes.capture_files import Rotation, names_of_series
    from ..probes.file_maker import maker_for
    from ..probes.file_maker_process import Use
    from ..probes.live import LiveSource
    from ..probes.owners.watch import watch_owners
    from ..probes.rights import become_unprivileged

    rotation = Rotation(
        None if rotate_size is None else parse_size(rotate_size, "--rotate-size"),
        None if rotate_every is None else parse_duration(rotate_every, "--rotate-every") / 1e9,
        files,
    )
    _check_output(write, rotation, annotate)
    job_logs = logs.patterns(must_exist=False)
    if job_logs and not annotate:
        raise UsageError("--nccl-log names ranks in the comments of --annotate: give both")
    seconds = until.seconds
    source = LiveSource(interfaces, capturing.options(selection, sample), to_blocks=True)
    with ExitStack() as lasting:
        if annotate:
            write = lasting.enter_context(writable_later(write))
        with ended_by_signals(source), ExitStack() as stack:
            watch = maker = None
            unknown: list[str] = []
            if write is not None and rotation.rotates:
                maker = maker_for(write.parent, names_of_series(write), Use.SERIES)
                if maker is not None:
                    stack.enter_context(maker)
            if write is not None and not no_owners:
                source.check()
                watch = watch_owners(source.interfaces, stack, unknown)
            stack.enter_context(source)  # last: nobody reads its rings while the helper starts
            running = _Capture(source, write, rotation, seconds, until.count, watch, maker, quiet)
            become_unprivileged(source.privileges())
            if not quiet:
                say_what(source)
            if watch is None or not quiet:
                say_owners_unknown(unknown)
            running.run()
        if annotate and write is not None and running.written:
            annotate_capture(write, running.written, selection.udp_ports, quiet, job_logs)
    return 0


def _refuse(why: str, **options: object) -> None:
    for option, value in options.items():
        if value not in (None, False):
            raise UsageError(why.format(option))


class _Capture:
    """One running capture."""

    def __init__(
        self,
        source: LiveSource,
        write: Path | None,
        rotation: Rotation,
        seconds: float | None,
        count: int | None,
        watch: OwnerWatch | None,
        maker: FileMaker | None,
        quiet: bool,
    ) -> None:
        from ..probes.owners.watch import OwnerComments

        self._source = source
        self._owners = OwnerComments(watch) if watch is not None else None
        known = self._owners.new() if self._owners is not None else []
        self._files = None if write is None else _files(source, write, rotation, known, maker)
        self._ending = Ending(source, seconds)
        self._left = count
        self._told = Told()
        self._quiet = quiet
        self._reader = select.poll()
        if write == STANDARD_OUTPUT:
            self._reader.register(sys.stdout.fileno(), 0)  # only shows that its reader has gone

    @property
    def written(self) -> int:
        """Packets in the files."""
        return self._files.written if self._files is not None else 0

    def run(self) -> None:
        """Capture until the end condition."""
        try:
            self._poll()
        except BrokenPipeError:
            self._files = None
            raise
        finally:
            # The counters are complete after the probes are detached and the rings are empty.
            self._source.finish()
            try:
                if self._files is not None:
                    self._tell_owners(at_once=True)
                    self._files.close()
            finally:
                self._summary()

    def _poll(self) -> None:
        for blocks in self._source.blocks(_CAPTURE_POLL_S, self._left):
            if len(blocks.data):
                if self._files is not None:
                    self._files.write(blocks)
                if self._left is not None:
                    self._left -= int(blocks.frames.sum())
                    if self._left <= 0:
                        return
            self._check()

    def _check(self) -> None:
        self._ending.check()
        if any(event & select.POLLERR for _, event in self._reader.poll(0)):
            raise BrokenPipeError
        if self._files is not None:
            self._tell_owners()
            self._files.tick()

    def _tell_owners(self, at_once: bool = False) -> None:
        if self._owners is not None and self._files is not None:
            self._files.comment(self._owners.new(at_once))
            self._told.say(self._owners.ended)

    def _summary(self) -> None:
        loss = self._source.loss()
        if self._quiet and not loss.ring_full:
            return
        parts = [f"{loss.exported} packets captured of {loss.matched} RoCE packets"]
        if self._files is not None:
            parts[0] = f"{self.written} packets written, {loss.matched} RoCE packets seen"
        parts.append(f"{loss.ring_full} lost because the ring was full")
        for number, what in (
            (loss.filtered, "filtered out"),
            (loss.sampled_out, "not in the sample"),
            (loss.too_short, "frames too short to read"),
            (loss.merged, "frames merged by the kernel (GRO or GSO) before the probe saw them"),
            (loss.ultra_ethernet, "packets of Ultra Ethernet seen, not captured"),
            (self._source.clock_steps, "steps of the wall clock"),
        ):
            if number:
                parts.append(f"{number} {what}")
        say(", ".join(parts))


def _files(
    source: LiveSource,
    write: Path,
    rotation: Rotation,
    owners: Sequence[str],
    maker: FileMaker | None,
) -> CaptureFiles:
    from ..probes.capture_files import CaptureFiles

    options = source.options
    hooks = sorted({attachment.hook for attachment in source.attachments})
    comments = [f"hook: {', '.join(hooks)}", f"kernel: {' '.join(os.uname()[:3:2])}"]
    if options.filter:
        comments.append(f"filter: {options.filter}")
    comments += [f"warning: {line}" for line in source.others.lines()]
    if options.sample > 1:
        comments.append(f"sample: one packet in {options.sample}")
    path = None if write == STANDARD_OUTPUT else write
    return CaptureFiles(
        path, source.head(*comments), source.loss_by_tap, rotation, owners, maker=maker
    )


def _check_output(write: Path | None, rotation: Rotation, annotate: bool) -> None:
    if rotation.keep is not None and (rotation.keep < 1 or not rotation.rotates):
        raise UsageError("--files must be 1 or more and needs --rotate-size or --rotate-every")
    if write is None and rotation.rotates:
        raise UsageError("--rotate-size and --rotate-every need a file: give -w FILE")
    if write == STANDARD_OUTPUT:
        if rotation.rotates:
            raise UsageError("standard output cannot be rotated: give -w FILE")
        if sys.stdout.isatty():
            raise UsageError("a capture is binary: give -w FILE or redirect standard output")
    if annotate:
        if rotation.rotates:
            raise UsageError(
                "--annotate cannot be combined with rotation: `rocescope export --pcapng FILE...`"
                " writes the files of a series with comments"
            )
        if write is None or write == STANDARD_OUTPUT or (write.exists() and not write.is_file()):
            raise UsageError("--annotate reads the capture again: give -w FILE, a regular file")
