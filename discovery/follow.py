"""Follows a fabric: routes and flows that change while it watches.

`ip monitor` prints a line for every change of a link, a route or a next hop. What it says is not
read: it only shows that the tables are to be read, so that hostile output can cause no more than
that.
"""

from __future__ import annotations

import queue
import re
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, NamedTuple

import numpy as np

from ..analyzer.errors import UsageError
from ..analyzer.results.base import Record, about
from ..analyzer.words import printable
from ..kernels.kernel import Array, Bools, Ints
from ..replay.compare.flows import NO_CHANCES, result_of
from ..replay.compare.summaries import mapped
from ..replay.fabrics.devices import Device
from ..replay.fabrics.fabric import Fabric
from ..replay.fabrics.topology import Reread
from ..replay.flows.loads import Placement
from ..replay.results import SCHEMA_VERSION
from ..replay.strategies.base import Outcome
from ..replay.traffic.traffic import Traffic
from .asking import Line, Request, Said
from .dialects.dialect import Dialect, Question
from .dialects.linux import LINUX
from .tracing.paths import TracedPaths, trace_paths
from .tracing.trace import through, traced_flows

# Events of `trace --follow`. Field names are the names of the JSON output, one object per line.


class Move(Record, frozen=True, kw_only=True):
    """A flow, or one entropy value of it, and its path before and after."""

    flow: int
    src: str
    dst: str
    src_port: int
    dest_qp: int
    src_rank: Annotated[int | None, about("null: no log of the job names it")] = None
    dst_rank: int | None = None
    before: Annotated[list[str], about("the known links from the source host on")]
    after: list[str]
    ends_because: Annotated[str | None, about("why the path is not known to its destination now")]


class FollowEvent(Record, frozen=True, kw_only=True):
    """Something that happened, and how the paths are now."""

    time: Annotated[str, about("UTC; of a change: first output of its device")]
    kind: Annotated[
        Literal["began", "changed", "flows", "lost", "back", "ended"],
        about(
            "flows: new flows were captured (--live); lost: a device does not answer, "
            "and its paths are those of its last answer; "
            "back: it answers again"
        ),
    ]
    seconds: Annotated[float, about("from the beginning to this event, by a monotonic clock")]
    devices: list[str]
    problem: Annotated[str | None, about("why a device was lost")] = None
    flows: int
    complete_flows: int
    moved_flows: Annotated[int, about("flows with another path; of ended: in all")]
    new_flows: Annotated[int, about("flows that were captured since (--live)")] = 0
    moves: Annotated[list[Move], about("of new flows: before is empty")]
    fim_percent: Annotated[
        float | None, about("FIM of flows of the least even layer; null: no path has a choice")
    ]
    lost_devices: Annotated[list[str], about("lost at this time: what they change is not known")]
    remarks: list[str] = []
    schema_version: str = SCHEMA_VERSION


class FollowSummary(Record, frozen=True, kw_only=True):
    """The whole time, when it has ended."""

    seconds: float
    changes: int
    readings: Annotated[int, about("answers of devices that were read")]
    fim_least_percent: float | None
    fim_most_percent: float | None
    ever_lost: Annotated[dict[str, float], about("seconds without each device")]


# Traced paths of which only those through changed switches are walked again.


class CurrentPaths:
    """The paths of flows under the tables as of now.

    Taps are no evidence here: packets were captured before a change.
    """

    def __init__(self, traffic: Traffic, state: Reread) -> None:
        self.traffic = replace(traffic, windows=None, messages=None, seen=None)
        self._state = state
        self.paths = trace_paths(self.traffic, state.fabric)

    def retrace(self, switches: Sequence[str]) -> tuple[TracedPaths, Ints]:
        """Walk the flows through these switches: (the paths before, rows with another path)."""
        before, fabric = self.paths, self._state.fabric
        numbers = np.array([fabric.nodes.names.index(name) for name in switches], np.int64)
        rows = np.flatnonzero(
            through(before, fabric, switches)
            | self._state.begins_at(numbers, self.traffic.src_host)
        )
        if not len(rows):
            return before, rows
        part = np.zeros(len(self.traffic), np.bool_)
        part[rows] = True
        self.paths = _with(before, rows, trace_paths(self.traffic.take(part), fabric))
        return before, rows[_differ(before, self.paths, rows)]

    def grow(self, traffic: Traffic) -> tuple[TracedPaths, Ints]:
        """Take over the traffic of now, whose first rows are those of before, and walk the new
        rows: (the paths before, without links in these rows; the new rows)."""
        old, n = len(self.traffic), len(traffic)
        self.traffic = replace(traffic, windows=None, messages=None, seen=None)
        rows = np.arange(old, n)
        if not len(rows):
            return self.paths, rows
        before = _fitted(self.paths, n, self.paths.placement.links.shape[1])
        part = trace_paths(self.traffic.take(rows), self._state.fabric)
        self.paths = _with(before, rows, part)
        return before, rows

    @property
    def complete(self) -> Bools:
        """bool[units]: whether the path is known to the destination."""
        return ~self.paths.placement.dropped

    def fim_percent(self) -> float | None:
        """FIM of flows of the least even layer, over complete paths."""
        complete = self.complete
        if not complete.any():
            return None
        placement = Placement(self.paths.placement.links[complete], ~complete[complete])
        placed = Outcome(self.traffic.take(complete), placement, {})
        return result_of("now", placed, self._state.fabric, known=NO_CHANCES).fim_percent


_EMPTY = -1, True, 0, 0, -1, False
"""In each column of paths, where there are none."""


def _columns(paths: TracedPaths) -> tuple[Array, ...]:
    return *paths.placement, *paths[1:]


def _fitted(paths: TracedPaths, units: int, hops: int) -> TracedPaths:
    """A copy of the paths with so many rows and hops."""
    fitted: list[Array] = []
    for column, empty in zip(_columns(paths), _EMPTY, strict=True):
        wide = np.full((units, hops)[: column.ndim], empty, column.dtype)
        wide[tuple(map(slice, column.shape))] = column
        fitted.append(wide)
    links, dropped, *rest = fitted
    return TracedPaths(Placement(links, dropped), *rest)


def _with(before: TracedPaths, rows: Ints, part: TracedPaths) -> TracedPaths:
    """The paths with other ones in some rows."""
    hops = max(before.placement.links.shape[1], part.placement.links.shape[1])
    after = _fitted(before, len(before.reason), hops)
    for column, new in zip(_columns(after), _columns(_fitted(part, len(rows), hops)), strict=True):
        column[rows] = new
    return after


def _differ(before: TracedPaths, after: TracedPaths, rows: Ints) -> Bools:
    """bool[n]: whether these rows have another path, or end for another reason."""
    new = after.placement.links
    old = _fitted(before, *new.shape).placement.links
    differing: Bools = (old[rows] != new[rows]).any(1) | (before.reason[rows] != after.reason[rows])
    return differing


MONITOR = "ip monitor link route nexthop"
QUIET_SECONDS, MOST_SECONDS = 0.05, 0.5
"""A device is read when it has said nothing for so long, and at the latest after this."""
AGAIN_SECONDS = 1.0
"""A device is read a second time after this: `ip monitor` does not tell when it listens."""
_RETRY_SECONDS = 5.0
"""After an answer that failed, while the device is still heard; twice as long each further time."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
LISTENS = ("linux", "frr")
"""Dialects whose kernel forwards and whose `ip monitor` was tested."""


FIRST_SECONDS = 15.0
"""What has not answered then does not delay the beginning."""
TOGETHER_SECONDS = 0.3
"""Devices whose readings end within this time are one event."""


class _Heard(NamedTuple):
    device: str
    at: float
    """Seconds of time.monotonic()."""
    lost: str | None = None
    """Why the device is not heard any longer; None: it printed something."""


class _Read(NamedTuple):
    """What one device answered when it was read."""

    device: str
    first: float
    """When it was first heard, in seconds of time.monotonic(); tells one reading from another."""
    contents: Device | None
    problem: str
    """Why there are no contents."""
    answered: set[str]
    """Suffixes of the answers that it gave."""
    folder: str
    """Where they were: places in them begin with it."""


class Follow:
    """Follows the paths of flows until `stop`."""

    def __init__(
        self, line: Line, dialects: Mapping[str, Dialect], fabric: Fabric, traffic: Traffic
    ) -> None:
        """dialects: of the switches; empty: all of Linux. UsageError if the fabric tells no ports,
        or no switch can be followed."""
        if fabric.origin is None or not any(any(ports) for ports in fabric.origin.ports):
            raise UsageError(
                f"{fabric.name} does not name the ports of its switches: --follow needs a fabric "
                "of rocescope discover"
            )
        self._line = line
        names = fabric.nodes.names[: fabric.switches]
        dialects = dialects or dict.fromkeys(names, LINUX)
        self._dialects = {
            name: dialects[name]
            for name in names
            if name in dialects and dialects[name].name in LISTENS
        }
        if not self._dialects:
            raise UsageError("no switch of the fabric is a device that --follow can listen to")
        self._lost = {
            name: "not a device that --follow can listen to"
            for name in names
            if name not in self._dialects
        }
        self._traffic, self._warnings = mapped(traffic, fabric)
        self._state = Reread(fabric)
        self._heard: queue.SimpleQueue[_Heard | _Read | Traffic | None] = queue.SimpleQueue()
        self._reading: dict[str, float] = {}
        """Devices that are being read, and when they were first heard."""
        self._stopped = threading.Event()
        self._since: dict[str, float] = {}
        self._away: dict[str, float] = {}
        self._answered: dict[str, set[str]] = {}
        """Suffixes of the answers that each device gave when it was last read."""
        self._retries: dict[str, threading.Timer] = {}
        self._readings = self._changes = self._moved = 0
        self._fims: list[float] = []

    def stop(self) -> None:
        """End `events`; also called by handlers of signals."""
        self._stopped.set()
        self._heard.put(None)

    def add(self, traffic: Traffic) -> None:
        """Follow this traffic from now on: its first units are those of before. Also called by
        other threads."""
        self._heard.put(traffic)

    def events(self, seconds: float | None = None) -> Iterator[FollowEvent]:
        """The first reading, then every change, until `stop` or for this many seconds."""
        self._began, self._began_unix = time.monotonic(), time.time()
        self._end = None if seconds is None else self._began + seconds
        threads = [
            threading.Thread(target=self._listen, args=(name,), name=f"follow {name}", daemon=True)
            for name in self._dialects
        ]
        for thread in threads:
            thread.start()
        try:
            self._take(self._first_readings())
            self._current = CurrentPaths(self._traffic, self._state)
            yield self._event("began", list(self._dialects), remarks=self._warnings)
            yield from self._changing()
            yield self._event("ended", [])
        finally:
            self._stopped.set()
            for timer in self._retries.values():
                timer.cancel()
            self._line.close()
        self._seconds = time.monotonic() - self._began

    @property
    def traffic(self) -> Traffic:
        """The flows between hosts of the fabric; rows as in `paths`."""
        return self._traffic

    @property
    def fabric(self) -> Fabric:
        """The fabric with the tables of now."""
        return self._state.fabric

    @property
    def paths(self) -> TracedPaths:
        """The paths of now. For the thread that takes `events`."""
        return self._current.paths

    def summary(self) -> FollowSummary:
        """After the end of `events`."""
        now = time.monotonic()
        for name, since in self._since.items():
            self._away[name] = self._away.get(name, 0.0) + now - since
        return FollowSummary(
            seconds=self._seconds,
            changes=self._changes,
            readings=self._readings,
            fim_least_percent=min(self._fims, default=None),
            fim_most_percent=max(self._fims, default=None),
            ever_lost=dict(sorted(self._away.items())),
        )

    def _listen(self, name: str) -> None:
        """In a thread of its own: run `ip monitor`, and again whenever it ends."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopped.is_set():
            began = time.monotonic()
            timers: list[threading.Timer] = []

            def heard(timers: list[threading.Timer] = timers) -> None:
                self._note(name)
                if not timers:
                    timers.append(self._later(name, AGAIN_SECONDS))

            reason = self._line.listen(name, MONITOR, heard)
            for timer in timers:
                timer.cancel()
            if time.monotonic() - began > _LONGEST_PAUSE_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            self._heard.put(_Heard(name, time.monotonic(), reason))
            self._stopped.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _later(self, name: str, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self._note, (name,))
        timer.daemon = True
        timer.start()
        return timer

    def _retry(self, name: str) -> None:
        """Read a device again later."""
        pause = _RETRY_SECONDS
        if (last := self._retries.get(name)) is not None:
            last.cancel()
            pause = min(2 * last.interval, _LONGEST_PAUSE_SECONDS)
        self._retries[name] = self._later(name, pause)

    def _note(self, name: str) -> None:
        self._heard.put(_Heard(name, time.monotonic()))

    def _changing(self) -> Iterator[FollowEvent]:
        """Events from now on. `dirty`: when each device was first heard, and last."""
        dirty: dict[str, tuple[float, float]] = {}
        done: list[_Read] = []
        since = 0.0
        while not self._stopped.is_set():
            now = time.monotonic()
            if self._end is not None and now >= self._end:
                return
            idle = {name: heard for name, heard in dirty.items() if name not in self._reading}
            due = _due(idle)
            if due is not None and due <= now:
                for name, (first, _) in idle.items():
                    del dirty[name]
                    self._begin_reading(name, first)
                continue
            if done and (not self._reading or now >= since + TOGETHER_SECONDS):
                readings, done = done, []
                yield from self._changed(readings)
                continue
            together = since + TOGETHER_SECONDS if done else None
            until = min((at for at in (self._end, due, together) if at is not None), default=None)
            try:
                heard = self._heard.get(timeout=None if until is None else until - now)
            except queue.Empty:
                continue
            if heard is None:
                return
            if isinstance(heard, Traffic):
                yield from self._more(heard)
            elif isinstance(heard, _Read):
                if self._reading.get(heard.device) == heard.first:
                    del self._reading[heard.device]
                    since = since if done else time.monotonic()
                    done.append(heard)
            elif heard.lost is not None:
                dirty.pop(heard.device, None)
                self._reading.pop(heard.device, None)
                done = [reading for reading in done if reading.device != heard.device]
                yield from self._gone(heard.device, heard.lost)
            else:
                first, _ = dirty.get(heard.device, (heard.at, heard.at))
                dirty[heard.device] = (first, heard.at)

    def _begin_reading(self, name: str, first: float) -> None:
        """Read a device in its own thread: one that says nothing delays no other."""
        self._reading[name] = first

        def read() -> None:
            try:
                reading = self._asked(name, first)
            except Exception as error:  # without an answer it would be read for ever
                reason = (isinstance(error, OSError) and error.strerror) or str(error)
                problem = f"its answers could not be read: {reason or type(error).__name__}"
                reading = _Read(name, first, None, problem, set(), "")
            self._heard.put(reading)

        threading.Thread(target=read, name=f"read {name}", daemon=True).start()

    def _first_readings(self) -> list[_Read]:
        """What the devices answer at first; one that takes too long is lost until it answers."""
        for name in self._dialects:
            self._begin_reading(name, self._began)
        readings: list[_Read] = []
        later: list[_Heard | Traffic | None] = []
        end = self._began + FIRST_SECONDS
        while self._reading and None not in later:
            try:
                heard = self._heard.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(heard, _Read):
                del self._reading[heard.device]
                readings.append(heard)
            else:
                later.append(heard)
        for late in later:
            self._heard.put(late)
        for name in self._reading:
            self._lost[name] = f"no answer within {FIRST_SECONDS:g} s"
            self._since[name] = self._began
        return readings

    def _more(self, traffic: Traffic) -> Iterator[FollowEvent]:
        """New flows, if some run between hosts of the fabric."""
        traffic, warnings = mapped(traffic, self._state.fabric)
        remarks = [text for text in warnings if text not in self._warnings]
        self._warnings = warnings
        before, rows = self._current.grow(traffic)
        self._traffic = traffic
        if len(rows):
            yield self._event("flows", [], remarks=remarks, before=before, moved=rows)

    def _gone(self, name: str, reason: str) -> Iterator[FollowEvent]:
        known = name in self._lost
        self._lost[name] = printable(reason)
        if not known:
            self._since[name] = time.monotonic()
            yield self._event("lost", [name])

    def _changed(self, readings: Sequence[_Read]) -> Iterator[FollowEvent]:
        """Take over what devices answered, and walk the flows through those that changed."""
        away = set(self._lost)
        first_heard = {reading.device: reading.first for reading in reversed(readings)}
        differ, remarks = self._take(readings)
        for name in [name for name in first_heard if name in away and name not in self._lost]:
            since = self._since.pop(name, None)
            if since is not None:
                self._away[name] = self._away.get(name, 0.0) + time.monotonic() - since
            yield self._event("back", [name])
        for name in [name for name in first_heard if name in self._lost]:
            self._retry(name)
            if name not in away:
                self._since[name] = time.monotonic()
                yield self._event("lost", [name])
        if not differ:
            return
        self._changes += 1
        before, moved = self._current.retrace(differ)
        self._moved += len(moved)
        first = min(first_heard[name] for name in differ)
        yield self._event("changed", differ, first, remarks, before, moved)

    def _asked(self, name: str, first: float) -> _Read:
        """Read a device. One that no longer answers what it answered before tells nothing: a
        failure is no change."""
        dialect = self._dialects[name]
        asked = [entry for entry in dialect.questions if not (entry.root or entry.counts)]
        needed = {dialect.needed, *self._answered.get(name, ())}
        said = self._line([Request(name, question.command) for question in asked])
        with TemporaryDirectory(prefix="rocescope-") as temporary:
            folder = Path(temporary)
            problem = ""
            answered: set[str] = set()
            for question, entry in zip(asked, said, strict=True):
                if not entry.problem or (question.partial and _ended(entry)):
                    (folder / f"{name}.{question.suffix}").write_bytes(entry.output)
                    answered.add(question.suffix)
                elif question.suffix in needed:
                    problem = problem or f"{question.command}: {entry.problem}"
            read = None
            if not problem:
                try:
                    read = dialect.read(folder, name)
                except UsageError as error:
                    problem = str(error).replace(f"{folder}/", "")
                else:
                    problem = next(iter(read.unexpected), "")
            return _Read(name, first, None if problem else read, problem, answered, f"{folder}/")

    def _take(self, readings: Sequence[_Read]) -> tuple[list[str], list[str]]:
        """Take over what devices told: (those that forward otherwise than before, remarks)."""
        differ, remarks = [], []
        for reading in readings:
            name = reading.device
            if reading.contents is None:
                self._lost[name] = printable(reading.problem)
                continue
            self._lost.pop(name, None)
            if (timer := self._retries.pop(name, None)) is not None:
                timer.cancel()
            self._answered[name] = reading.answered
            self._readings += 1
            changed, notes = self._state.update(reading.contents, f"{MONITOR}: read while tracing")
            if changed:
                differ += [] if name in differ else [name]  # it may have been read twice
                remarks += [
                    f"{note.device}: {note.kind}: {note.text}".replace(reading.folder, "")
                    for note in notes
                ]
        return differ, remarks

    def _event(
        self,
        kind: str,
        devices: list[str],
        at: float | None = None,
        remarks: Sequence[str] = (),
        before: TracedPaths | None = None,
        moved: Ints | None = None,
    ) -> FollowEvent:
        """at: when it happened, in seconds of time.monotonic(); None: now."""
        now = time.monotonic()
        happened = self._began_unix + (now if at is None else at) - self._began
        fim = self._current.fim_percent()
        if fim is not None:
            self._fims.append(fim)
        moves = [] if before is None or moved is None else self._moves(before, moved)
        return FollowEvent(
            time=datetime.fromtimestamp(happened, UTC).isoformat(timespec="milliseconds"),
            seconds=now - self._began,
            kind=kind,  # type: ignore[arg-type]
            devices=devices,
            problem=self._lost.get(devices[0]) if kind == "lost" else None,
            flows=len(self._traffic),
            complete_flows=int(self._current.complete.sum()),
            moved_flows=self._moved if kind == "ended" else 0 if kind == "flows" else len(moves),
            new_flows=len(moves) if kind == "flows" else 0,
            moves=moves,
            fim_percent=fim,
            lost_devices=sorted(self._lost),
            remarks=list(remarks),
        )

    def _moves(self, before: TracedPaths, rows: Ints) -> list[Move]:
        old, new = (
            traced_flows(self._traffic, self._state.fabric, paths, rows)
            for paths in (before, self._current.paths)
        )
        return [
            Move(
                flow=now.flow,
                src=now.src,
                dst=now.dst,
                src_port=now.src_port,
                dest_qp=now.dest_qp,
                src_rank=now.src_rank,
                dst_rank=now.dst_rank,
                before=was.links,
                after=now.links,
                ends_because=now.reason,
            )
            for was, now in zip(old, new, strict=True)
        ]


def _due(dirty: Mapping[str, tuple[float, float]]) -> float | None:
    """When devices are to be read that were heard first and last at these times."""
    return min(
        (min(last + QUIET_SECONDS, first + MOST_SECONDS) for first, last in dirty.values()),
        default=None,
    )


def _ended(said: Said) -> bool:
    """Whether a command that failed printed all it had: it was not cut off."""
    return bool(said.output) and said.problem.startswith("exit status")


# A gate for SSH: a key of rocescope runs its read-only commands and nothing else.
#
# sshd starts the gate in place of any command (`command=` in authorized_keys) and gives it what
# was asked for in SSH_ORIGINAL_COMMAND. The gate compares the whole text with its list: nothing of
# it is given to a shell.

_PATHS = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin"
_HOME = {"vtysh": "/usr/bin/vtysh"}
"""Where programs that need root are; sudoers lines have full paths."""
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
"""Names that useradd makes: in sudoers, ALL, %group, #uid and lists mean other users."""


def gate_script(dialect: Dialect, user: str) -> str:
    """A shell script for `command=`, with its installation and the sudoers lines as comments; for
    a system without a shell the configuration of a role.

    UsageError for a user whose name could be more than a name in a comment or a sudoers line.
    """
    if not _USER.fullmatch(user):
        raise UsageError(f"{user!r} is not a user name: lower-case letters, digits, - and _")
    questions = dialect.questions_for("host")
    if dialect.role is not None:
        return dialect.role(tuple(q.command for q in questions), user)
    rooted = [q for q in questions if q.root]
    lines = [
        "#!/bin/sh",
        f"# Commands of rocescope discover for the dialect {dialect.name}; all others are refused.",
        f"# Install it as /usr/local/bin/rocescope-gate (root, mode 755), make a user {user},",
        "# and write in its authorized_keys, in one line before the key:",
        '#   restrict,command="/usr/local/bin/rocescope-gate" ssh-ed25519 ...',
    ]
    if rooted:
        lines.append("# These lines are for /etc/sudoers.d/rocescope (check: visudo -cf FILE):")
        lines += [f"#   {user} ALL=(root) NOPASSWD: {_sudoers(q)}" for q in rooted]
    lines += [f"PATH={_PATHS}", "export PATH", 'case "$SSH_ORIGINAL_COMMAND" in']
    for question in questions:
        exact = shlex.join(["sudo", "-n"] * question.root + _words(question))
        lines.append(f"{shlex.quote(question.command)}) exec {exact} ;;")
    if dialect.name in LISTENS:
        lines.append(f"{shlex.quote(MONITOR)}) exec {MONITOR} ;;")
    lines += [
        "*) echo 'refused: not a command of rocescope discover' >&2; exit 126 ;;",
        "esac",
    ]
    return "\n".join(lines) + "\n"


def _words(question: Question) -> list[str]:
    program, *words = shlex.split(question.command)
    return [_HOME.get(program, program), *words]


def _sudoers(question: Question) -> str:
    """The command as sudo compares it: words joined by blanks, special characters escaped."""
    text = " ".join(_words(question))
    return "".join(f"\\{c}" if c in ",:=\\" else c for c in text)
