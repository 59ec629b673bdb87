"""Options and messages of the commands that capture on interfaces."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeAlias

from ...analyzer.errors import UsageError
from ...analyzer.words import parse_duration, parse_size, printable
from ..table import Parameter
from .reading import Selection

if TYPE_CHECKING:
    from ...probes.counters.counters import CounterSource
    from ...probes.live import LiveOptions, LiveSource


IDLE_AFTER = "60s"
"""Default of --idle-after."""
Hook: TypeAlias = Literal["tc", "xdp", "xdp-generic", "clsact"]


@dataclass(frozen=True)
class Capturing:
    """How probes capture.

    Parameters
    ----------
    netns
        Network namespace of the interfaces: a name of `ip netns`, a path, or pid:N.
    hook
        tc sees both directions; xdp sees only received packets, at the highest rates.
    snaplen
        Bytes kept of each frame; encapsulated frames and small WRITEs keep 256.
    ring
        Size of the buffer between kernel and program for each CPU, for example 64MiB. Default: 64
        MiB for all CPUs together; 16 MiB each for more than four, at most 512 MiB together.
    """

    netns: str | None = None
    hook: Hook = "tc"
    snaplen: Annotated[int, Parameter(alias="-s")] = 128
    ring: str | None = None

    def options(self, selection: Selection, sample: int = 1) -> LiveOptions:
        """These options with a selection; sample: one packet in N of each flow."""
        from ...probes.live import LiveOptions

        return LiveOptions(
            hook=self.hook,
            namespace=self.netns,
            snap_bytes=self.snaplen,
            ring_bytes=parse_size(self.ring, "--ring") if self.ring else None,
            udp_ports=selection.udp_ports,
            sample=sample,
            filter=selection.filter,
        )


@dataclass(frozen=True)
class Until:
    """When a capture ends.

    Parameters
    ----------
    duration
        End after this time, for example 10s.
    count
        End after this many packets.
    """

    duration: str | None = None
    count: Annotated[int | None, Parameter(alias="-c")] = None

    @property
    def seconds(self) -> float | None:
        """The duration. UsageError also for a count below 1."""
        if self.count is not None and self.count < 1:
            raise UsageError("--count must be 1 or more")
        return parse_duration(self.duration, "--duration") / 1e9 if self.duration else None


CAPTURING, UNTIL = Capturing(), Until()


_CHECK_EVERY_S = 1.0


class Stoppable(Protocol):
    """A source that runs until `stop`."""

    def stop(self) -> None: ...


class Told:
    """Says each line once."""

    def __init__(self) -> None:
        self._lines: set[str] = set()

    def say(self, lines: Sequence[str]) -> None:
        """Print the lines that are new."""
        for line in lines:
            if line not in self._lines:
                self._lines.add(line)
                say(line)


class Ending:
    """Stops a source at the end of its duration or when all its interfaces have disappeared.

    Says which programs of others run before the probes.
    """

    def __init__(self, source: LiveSource, seconds: float | None) -> None:
        self._source = source
        if seconds is not None:
            source.ends = time.monotonic() + seconds
        self._checked = time.monotonic()
        self._gone: set[str] = set()
        self._told = Told()
        self._told.say(source.others.lines())

    def check(self) -> None:
        """Test the end conditions; call this several times a second."""
        from ...probes.hooks.attach import GONE

        now = time.monotonic()
        if now - self._checked < _CHECK_EVERY_S:
            return
        self._checked = now
        self._told.say(self._source.others.lines())
        for interface in self._source.gone():
            if interface.label not in self._gone:
                self._gone.add(interface.label)
                say(f"interface {interface.label} {GONE}")
        if len(self._gone) == len(self._source.interfaces):
            self._source.stop()


@contextmanager
def writable_later(file: Path | None) -> Iterator[Path | None]:
    """Within it, this file can be written although the process has given up its privileges.

    Yields the file itself where it is a link. None: standard output.
    """
    from ...probes.file_maker import maker_for
    from ...probes.file_maker_process import Use
    from ...report.whole_file import made_by, target

    if file is None:
        yield None
        return
    file = target(file)
    made = maker_for(file.parent, re.escape(file.name), Use.NAMED)
    with made or nullcontext() as maker, made_by(maker):
        yield file


def say(text: str) -> None:
    """Print a message line on standard error, if that still exists: a terminal may be gone."""
    with suppress(OSError):
        print(f"rocescope: {printable(text)}", file=sys.stderr, flush=True)


def say_what(source: LiveSource | CounterSource, doing: str = "capturing") -> None:
    """Print where the probes are attached."""
    where = [f"{a.interface.label} {a.direction} ({a.hook})" for a in source.attachments]
    say(f"{doing} on {', '.join(where)}; Ctrl-C ends it")


def say_owners_unknown(reasons: Sequence[str]) -> None:
    """Print why owners of queue pairs may be unknown, if there are reasons."""
    if reasons:
        say(f"owners of queue pairs may be unknown: {'; '.join(reasons)}")


@contextmanager
def ended_by_signals(source: Stoppable) -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP ends the capture cleanly, the second at once.

    A SIGHUP that is ignored from the start (nohup) stays ignored.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        source.stop()
        signal.signal(number, _raise if number == signal.SIGINT else signal.SIG_DFL)

    def _raise(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {}
    with suppress(ValueError):  # not the main thread
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def said_if_slow(text: str, seconds: float = 5.0) -> Iterator[None]:
    """Print a message if the work takes longer. A signal, not a thread: threads keep privileges."""
    try:
        before = signal.signal(signal.SIGALRM, lambda *_: say(text))
    except ValueError:  # not the main thread
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
