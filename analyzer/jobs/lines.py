"""Log files of jobs: their lines in constant memory, and what a line says.

Lines are untrusted text. A line counts only if it is complete and of a known form; `suspect` tells
lines about queue pairs, communicators or errors whose form is not known. Launchers and collectors
may write something before each line, and terminals colour it.
"""

from __future__ import annotations

import calendar
import glob
import ipaddress
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ..capture.bytestream import RawStream, compression
from ..errors import UsageError
from .perftest import without_times, written

if TYPE_CHECKING:
    from ..capture.decompress import DecompressedStream

_PIECE_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 14
_MAGIC_BYTES = 16
_ROTATED = re.compile(
    r"(.+?)(?:\.(\d{1,9})|-(\d{8})(?:-?\d{2,10})?)?(?:\.(?:gz|zst|xz|bz2|lz4))?", re.DOTALL
)


def named(patterns: Sequence[str]) -> tuple[str, ...]:
    """The files that patterns name, sorted: rotated parts of a log are in order of their age.

    Of what a wildcard finds only regular files count: a pipe of somebody else has no end.
    UsageError for a pattern without a file, and for a device, which has no end either.
    """
    paths: dict[str, None] = {}
    for pattern in patterns:
        names = oldest_first(glob.glob(pattern, recursive=True)) or glob.glob(glob.escape(pattern))
        names = [
            path
            for path in names
            if os.path.isfile(path) or (path == pattern and not os.path.isdir(path))
        ]
        if not names:
            raise UsageError(f"--nccl-log: no file is named {pattern}")
        for path in names:
            if _is_device(path):
                raise UsageError(f"--nccl-log: {path} is a device: give files, pipes or folders")
        paths.update(dict.fromkeys(names))
    return tuple(paths)


def _is_device(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:  # reading it says why
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def oldest_first(paths: Iterable[str]) -> list[str]:
    """Paths in order of their names; parts that logrotate makes (job.log.2.gz, job.log.1, job.log;
    job.log-20261123, job.log) in order of their age."""

    def age(path: str) -> tuple[str, bool, int, str]:
        match = _ROTATED.fullmatch(path)
        assert match is not None
        base, number, date = match.groups()
        return base, not (number or date), int(date or -int(number or 0)), path

    return sorted(paths, key=age)


def lines(path: str) -> Iterator[bytes]:
    """The complete lines of a file without their ends; errors as `open_capture`.

    Lines beyond LONGEST_LINE_BYTES and a last line without an end say nothing for certain: they are
    left out.
    """
    raw = RawStream(path)
    kind = compression(raw.peek(_MAGIC_BYTES))
    stream: RawStream | DecompressedStream = raw
    if kind is not None:
        from ..capture.decompress import DecompressedStream  # its libraries load slowly

        stream = DecompressedStream(raw, kind)
    with closing(stream):
        piece = memoryview(bytearray(_PIECE_BYTES))
        rest, too_long = b"", False
        while got := stream.read_into(piece):
            first, *others = bytes(piece[:got]).split(b"\n")
            rest = b"" if too_long else rest + first
            if others:
                if not too_long and len(rest) <= LONGEST_LINE_BYTES:
                    yield rest
                *complete, rest = others
                yield from (line for line in complete if len(line) <= LONGEST_LINE_BYTES)
                too_long = False
            if len(rest) > LONGEST_LINE_BYTES:
                rest, too_long = b"", True


_CONTROLS = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[=>78DEHMc])"
)
"""Colours and other commands to a terminal (ECMA-48; titles as xterm has them)."""
_PRINTED_COLOUR = re.compile(
    r"(?:\^\[|\\x1[bB]|\\u001[bB]|\\033|\\e|#033|\u241b)\[[\d;]{0,16}[mK]"
    r"|\[\d{1,3}(?:;\d{1,3}){0,4}m(?![\w.\-]{0,63}:\d{1,10} *:\w{1,10}(?::\d{1,10})?\])"
)
"""A colour whose escape character was printed or removed; not the beginning of a line of UCX, whose
host may be called 1m2."""
_PREFIX = re.compile(
    r"(?:\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)([^\]]{0,16})\] )?"
    r"(?<![\w.\-])([A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}):(\d{1,10}):(\d{1,10}) \[(-?\d{1,4})\] "
    r"(?:\S{1,200} (?:\([^()]{0,200}\) )?)?NCCL (?:INFO|WARN|ERROR) "
)
_NET = r"NET/[A-Za-z][\w./\-]{0,40} ?: "
"""What the built-in transport (IB) and plugins (IBP, IBext_v8, ...) write before their lines."""
_QUEUE_PAIR = re.compile(
    _NET + r"(?:\w{1,64}: )?(?:NCCL (?:Merged)?)?Dev \d{1,4} (?:IbDev (\d{1,4}) )?Port (\d{1,3})"
    r" (?:qpn|qp_num) (\d{1,8}) mtu \d{1,5} (?:query_ece=\{[^{}]{0,200}\} )?"
    r"GID -?\d{1,5} \(([0-9A-Fa-f]{1,16})/([0-9A-Fa-f]{1,16})\)"
)
_CREATED = re.compile(
    _NET + r"(\w{1,64}): QP created: port=(\d{1,3}) dev=(\d{1,4}) devName=([\w.\-]{1,64})"
    r" ndevs=\d+ nmdevs=\d+ qp_num=(\d{1,8}) "
)
_COMMUNICATOR = re.compile(
    r"comm (0x[0-9a-f]{1,16}) rank (\d{1,9}) nranks (\d{1,9}) cudaDev (-?\d{1,4})"
    r"(?: nvmlDev -?\d{1,4})? busId [0-9a-f]{1,16}((?: [\w ().,=/%\-]{0,200}?)?)"
    r" ?- (Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)"
)
"""The details vary: NCCL names the identifier, or the parent of a communicator that was split off;
RCCL adds sizes. They have no colon: a line that runs into another one says nothing."""
_IDENTIFIER = re.compile(r" commId (0x[0-9a-f]{1,16})\b")
_SPLIT = re.compile(
    r" parent (0x[0-9a-f]{1,16}) (?:splitCount|childCount) (\d{1,9}) color (-?\d{1,10}) "
)
_CHANNEL = re.compile(
    r"Channel (\d{1,5})(?:/\d{1,5})? : (\d{1,9})\[[0-9a-f]{1,9}\] -> (\d{1,9})\[[0-9a-f]{1,9}\]"
    r" \[(send|receive)\] via NET/(?:\S{1,64} comm (0x[0-9a-f]{1,16}) nRanks )?"
)
_DEVICES = re.compile(r"\[(\d{1,4})\]([\w.\-]{1,64}):(\d{1,3})/RoCE")
_USING = re.compile(_NET + "Using ")
_FAILED = re.compile(_NET + r".{0,80}Got CQE with error \(.{0,200}\bqp_num=(\d{1,8})\)")
_COMPLETION = re.compile(
    _NET + r"(?:\w{1,64}: )?Got completion from peer \S{1,80} with"
    r" (?:status=(?:[A-Z_]{1,40}\()?|error )(\d{1,3})\b"
)
_GIDS = re.compile(r" localGid ([0-9A-Fa-f:.]{2,45}) remoteGids ?([0-9A-Fa-f:.]{2,45})")
_SUSPECT = re.compile(
    r"NET/\w.{0,200}(?:Dev \d+ Port \d+ \w+ \d+ mtu|QP created|Got CQE|Got completion from)"
    r"|comm 0x[0-9a-f]+ .{0,200}- Init "
    r"|Channel \d+.{0,40} via NET/IB"
)

INTERESTING = re.compile(rb"NET/|- (?:Init|Destroy|Abort) ")
"""Only lines with one of these can say something; the others are not decoded."""


class Speaker(NamedTuple):
    """The process of a line."""

    host: str
    pid: int
    gpu: int


class QueuePairLine(NamedTuple):
    """A queue pair of the process, with its address or with its device."""

    qpn: int
    port: int
    number: int | None
    """The device's number in the process."""
    device: str | None
    address: str | None
    sends: bool
    """Whether it sends the data of its channel; receivers send answers only."""
    remote: tuple[str, int] | None = None
    """Address and queue pair number at the other end."""


class CommunicatorLine(NamedTuple):
    """A communicator of the process begins, is ready, or ends."""

    pointer: str
    name: str | None
    """Its identifier, the same in all its processes."""
    rank: int
    gpu: int
    step: str
    split: tuple[str, int, int] | None = None
    """Pointer of the communicator it was split from, number of that split, colour."""


class ChannelLine(NamedTuple):
    """A channel of the process to a peer over the network."""

    channel: int
    sender: int
    receiver: int
    sends: bool
    comm: str | None = None
    """Pointer of the communicator."""


class DevicesLine(NamedTuple):
    """The RoCE devices of the process: number, name and port."""

    devices: list[tuple[int, str, int]]


class ErrorLine(NamedTuple):
    """A completion with an error: the queue pair in one line, the status in the next."""

    qpn: int | None
    status: int | None
    local: str | None
    remote: str | None
    remote_qpn: int | None = None
    device: str | None = None


class GidLine(NamedTuple):
    """A GID of a device of this host by its index; without an address: the index that is used."""

    device: str
    gid_index: int
    address: str | None = None


class EndLine(NamedTuple):
    """The end of a queue pair of the process; without a number: of all on a device."""

    qpn: int | None
    device: str | None = None


Said = QueuePairLine | CommunicatorLine | ChannelLine | DevicesLine | ErrorLine | GidLine | EndLine


def readable(raw: bytes) -> bytes:
    """A line without commands to a terminal."""
    return _CONTROLS.sub(b"", raw) if b"\x1b" in raw else raw


def decoded(raw: bytes) -> str:
    """The text of a `readable` line."""
    return _PRINTED_COLOUR.sub("", raw.decode("utf-8", "replace")).rstrip("\r")


def said(line: str) -> tuple[Speaker, int | None, Said] | None:
    """Who says what, and when in ns if the line has a time; None for any other line."""
    prefix = _PREFIX.search(line)
    if prefix is None:
        return None
    moment, fraction_and_zone, host, pid, _thread, gpu = prefix.groups()
    text = line[prefix.end() :]
    if " NCCL INFO " in text or " NCCL WARN " in text:  # of two processes that wrote at once
        return None
    what = _said(text)
    if what is None:
        return None
    return Speaker(host, int(pid), int(gpu)), _time_ns(moment, fraction_and_zone), what


def _said(text: str) -> Said | None:
    if match := _QUEUE_PAIR.match(text):
        number, port, qpn, prefix, interface = match.groups()
        address = _gid(int(prefix, 16), int(interface, 16))
        return QueuePairLine(int(qpn), int(port), _number(number), None, address, True)
    if match := _CREATED.match(text):
        function, port, number, device, qpn = match.groups()
        sends = "Receiver" not in function
        return QueuePairLine(int(qpn), int(port), int(number), device, None, sends)
    if match := _COMMUNICATOR.search(text):
        pointer, rank, _ranks, gpu, details, step = match.groups()
        identifier, split = _IDENTIFIER.search(details), _SPLIT.search(details + " ")
        name = identifier[1] if identifier is not None and int(identifier[1], 16) else None
        origin = None if split is None else (split[1], int(split[2]), int(split[3]))
        return CommunicatorLine(pointer, name, int(rank), int(gpu), step, origin)
    if match := _CHANNEL.match(text):
        channel, sender, receiver, way, comm = match.groups()
        return ChannelLine(int(channel), int(sender), int(receiver), way == "send", comm)
    if match := _FAILED.match(text):
        return ErrorLine(int(match[1]), None, None, None)
    if match := _COMPLETION.match(text):
        gids = _GIDS.search(text)
        local, remote = (None, None) if gids is None else map(gid_address, gids.groups())
        return ErrorLine(None, int(match[1]), local, remote)
    if _USING.match(text):
        found_devices = [(int(n), name, int(port)) for n, name, port in _DEVICES.findall(text)]
        return DevicesLine(found_devices) if found_devices else None
    return None


def suspect(line: str) -> bool:
    """Whether a line that says nothing known is about what should be known."""
    return _SUSPECT.search(line) is not None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _gid(prefix: int, interface: int) -> str:
    """NCCL prints the two halves of a GID as numbers of a little-endian host."""
    return written(prefix.to_bytes(8, "little") + interface.to_bytes(8, "little"))


def gid_address(text: str) -> str | None:
    """The address of a GID as inet_ntop writes it; None for anything else."""
    try:
        return written(ipaddress.IPv6Address(text).packed)
    except ValueError:
        return None


_ZONE = re.compile(r"(?:[.,](\d{1,9}))? ?(?:(Z|UTC)|([+-])(\d\d):?(\d\d))?")


def _time_ns(moment: str | None, fraction_and_zone: str | None) -> int | None:
    """NCCL writes local time without its zone: it is read as the local time here (TZ)."""
    if moment is None:
        return None
    match = _ZONE.match(fraction_and_zone or "")
    assert match is not None
    fraction, utc, sign, hours, minutes = match.groups()
    try:
        parsed = time.strptime(moment.replace("T", " "), "%Y-%m-%d %H:%M:%S")
        if utc is None and sign is None:
            seconds = int(time.mktime(parsed))
        else:
            east = int(hours or 0) * 3600 + int(minutes or 0) * 60
            seconds = calendar.timegm(parsed) - (-east if sign == "-" else east)
    except (ValueError, OverflowError):
        return None
    return seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


# What lines of UCX's log say, at UCX_LOG_LEVEL=debug for queue pairs, at any level for errors.
#
# A queue pair of RC takes two lines of one thread: the first names the address of the peer, the
# second both queue pair numbers. An error of an mlx5 device takes two lines as well. Queue pairs of
# DC (targets, DCT, and initiators, DCI) name neither device nor peer: the device is that of the
# interface that the thread is just making. UCX knows no ranks: they are labels that mpirun
# (`--tag-output`) or srun (`--label`) write before each line.

_UCX_PREFIX = re.compile(
    r"(?:\[(\d{9,11})\.(\d{6})\] )?"
    r"\[([A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}):(\d{1,10}) *:(\w{1,10})(?::\d{1,10})?\] +"
    r"(?:[\w.\-]{1,40}:\d{1,6} +)?(?:UCX +[A-Z]{4,5} +)?"
)
_LABEL = re.compile(
    r"(?:\[[^\[\],]{1,64},(\d{1,9})\](?:\[[^\[\]]{1,80}\])?<std(?:out|err|diag)>: ?"
    r"|^ *(\d{1,9}): ?)$"
)
_ROUTE = re.compile(r"iface 0x[0-9a-f]{1,16}: ah_attr dlid=.{0,120}? dgid=([0-9A-Fa-f:.]{2,45}) ")
_CONNECTED = re.compile(
    r"connected rc (?:devx )?qp 0x([0-9a-f]{1,6}) on ([\w.\-]{1,64}):(\d{1,3})(?:/RoCE)?"
    r" to lid .{1,60} remote_qp 0x([0-9a-f]{1,6}) mtu \d"
)
_UCX_CREATED = re.compile(
    r"(?:[\w.\-]{1,64}: )?iface[= ]0x[0-9a-f]{1,16}:? created UD QP 0x([0-9a-f]{1,6})"
    r" on ([\w.\-]{1,64}):(\d{1,3}) TX wr"
)
_INTERFACE = re.compile(
    r"using pkey\[\d{1,5}\] 0x[0-9a-f]{1,4} on ([\w.\-]{1,64}):(\d{1,3})/(RoCE|IB)\b"
)
_MADE = re.compile(r"created (?:dc iface 0x[0-9a-f]{1,16}$|interface\[\d{1,4}\]=0x)")
_TARGET = re.compile(
    r"dc iface 0x[0-9a-f]{1,16}: using '\w{1,20}' policy with \d{1,5} dcis and \d{1,9} cqes, dct"
    r" 0x([0-9a-f]{1,6})$"
)
_INITIATOR = re.compile(r"created DevX DCI 0x([0-9a-f]{1,6}), rdma_wr_disabled=")
_GID_USED = re.compile(r"([\w.\-]{1,64}):\d{1,3} using gid_index (\d{1,5})(?![0-9])")
_GID = re.compile(
    r"iface 0x[0-9a-f]{1,16}: adding gid ([0-9A-Fa-f:.]{2,45}) to hash on device ([\w.\-]{1,64})"
    r" port \d{1,3} index (\d{1,5})\)"
)
_FLUSHED = re.compile(
    r"IB Async event on [\w.\-]{1,64}: SRQ-attached QP 0x([0-9a-f]{1,6}) was flushed"
)
_OPENED = re.compile(r"initialized device '([\w.\-]{1,64})' \(")
_CLOSED = re.compile(r"destroying ib device ([\w.\-]{1,64})$")
_SYNDROME = re.compile(r".{1,80} on ([\w.\-]{1,64}):\d{1,3}/RoCE \(synd 0x([0-9a-f]{1,2}) vend ")
_UCX_FAILED = re.compile(r"(?:RC|DCI|DC|UD|XRC) QP 0x([0-9a-f]{1,6}) wqe\[\d{1,6}\]: ")
_UCX_FAILED_1_5 = re.compile(
    r"(?:FATAL: )?Error on ([\w.\-]{1,64}):\d{1,3} QP 0x([0-9a-f]{1,6}) wqe\[\d{1,6}\]: .{1,80}"
    r" \(synd 0x([0-9a-f]{1,2}) vend "
)
_UCX_COMPLETION = re.compile(
    r"send completion with error: ([\w /\-]{1,80}?) \[qpn 0x([0-9a-f]{1,6}) wrid 0x"
)
_REMOTE = re.compile(r"\[rqpn 0x([0-9a-f]{1,6}) [^\]]{0,120}?\bdgid[ =]([0-9A-Fa-f:.]{2,45})[ \]]")
_UCX_SUSPECT = re.compile(
    r"connected rc .{0,20}qp 0x\w+ on .{1,80}/RoCE|/RoCE \(synd 0x|dc iface .{1,100}\bdct\b"
    r"|created .{0,20}DCI 0x|SRQ-attached QP"
)
_STATUSES: Final = {
    0x01: 1, 0x02: 2, 0x04: 4, 0x05: 5, 0x06: 6, 0x10: 7, 0x11: 8, 0x12: 9, 0x13: 10, 0x14: 11,
    0x15: 12, 0x16: 13, 0x22: 16,
}  # fmt: skip
"""ibv_wc_status by the syndrome of an mlx5 completion (rdma-core, providers/mlx5/cq.c)."""
_STATUS_NAMES: Final = {"transport retry counter exceeded": 12, "RNR retry counter exceeded": 13}
"""As ibv_wc_status_str names them."""
_MOST_THREADS = 100_000
_SEVERAL = 2
"""Devices do not show which one is meant."""

UCX_INTERESTING = (
    rb" dgid=|connected rc |created UD QP |\(synd 0x| QP 0x|completion with error: |dc iface 0x"
    rb"|DCI 0x|using pkey\[|using gid_index |adding gid |created interface\[|initialized device '"
    rb"|destroying ib device "
)

_Process = tuple[str, int]
_Thread = tuple[str, int, str]
_OpenDevice = tuple[str, int, str]
_K = TypeVar("_K")
_T = TypeVar("_T")


class Heard(NamedTuple):
    """A line of UCX."""

    speaker: Speaker
    time_ns: int | None
    """UCX writes seconds since 1970."""
    what: Said | None
    """None: the first line of two."""
    label: int | None
    """The rank that mpirun or srun wrote before the line."""


class UcxLog:
    """Lines of UCX, with what earlier lines of the same threads said."""

    def __init__(self) -> None:
        self._routes: dict[_Thread, str] = {}
        self._statuses: dict[_Thread, tuple[int | None, str]] = {}
        """Status and device of an error whose queue pair the next line names."""
        self._making: dict[_Thread, tuple[str, int] | None] = {}
        """Device and port of the interface that a thread is just making; None: of InfiniBand."""
        self._dc: dict[_Process, frozenset[tuple[str, int]]] = {}
        """Devices and ports with DC of a process, at most `_SEVERAL`."""
        self._open: dict[_OpenDevice, int] = {}
        """How many times a process has opened a device."""

    def said(self, line: str) -> Heard | None:
        """Who says what; None for any other line."""
        for prefix in _UCX_PREFIX.finditer(line):  # a time before the line may look like one
            seconds, micros, host, pid, thread = prefix.groups()
            known, what = self._said((host, int(pid), thread), line[prefix.end() :])
            if not known:
                continue
            time_ns = None if seconds is None else (int(seconds) * 1_000_000 + int(micros)) * 1000
            match = _LABEL.search(without_times(line[: prefix.start()]))
            label = None if match is None else int(match[1] or match[2])
            return Heard(Speaker(host, int(pid), -1), time_ns, what, label)
        return None

    def _said(self, thread: _Thread, text: str) -> tuple[bool, Said | None]:
        """Whether the line is known, and what it says with the line before."""
        if match := _ROUTE.match(text):
            _keep(self._routes, thread, match[1])
            return True, None
        if match := _SYNDROME.match(text):
            device, syndrome = match.groups()
            _keep(self._statuses, thread, (_STATUSES.get(int(syndrome, 16)), device))
            return True, None
        if match := _CONNECTED.match(text):
            qpn, device, port, remote_qpn = match.groups()
            address = gid_address(self._routes.pop(thread, ""))
            remote = None if address is None else (address, int(remote_qpn, 16))
            return True, QueuePairLine(int(qpn, 16), int(port), None, device, None, True, remote)
        if match := _UCX_CREATED.match(text):
            qpn, device, port = match.groups()
            return True, QueuePairLine(int(qpn, 16), int(port), None, device, None, True)
        if match := _FLUSHED.match(text):
            return True, EndLine(int(match[1], 16))
        if (match := _UCX_FAILED.match(text)) and thread in self._statuses:
            status, device = self._statuses.pop(thread)
            return True, ErrorLine(int(match[1], 16), status, None, *_remote(text), device)
        if match := _UCX_FAILED_1_5.match(text):
            device, qpn, syndrome = match.groups()
            status = _STATUSES.get(int(syndrome, 16))
            return True, ErrorLine(int(qpn, 16), status, None, None, None, device)
        if match := _UCX_COMPLETION.match(text):
            status = _STATUS_NAMES.get(match[1])
            return True, ErrorLine(int(match[2], 16), status, None, *_remote(text))
        return self._said_of_devices(thread, text)

    def _said_of_devices(self, thread: _Thread, text: str) -> tuple[bool, Said | None]:
        """As `_said`, of lines about devices, their GIDs and their queue pairs of DC."""
        if match := _INTERFACE.match(text):
            device, port, layer = match.groups()
            _keep(self._making, thread, (device, int(port)) if layer == "RoCE" else None)
            return True, None
        if _MADE.match(text):
            self._making.pop(thread, None)
            return True, None
        if match := _TARGET.match(text):
            return True, self._target(thread, int(match[1], 16))
        if match := _INITIATOR.match(text):
            return True, self._initiator(thread, int(match[1], 16))
        if match := _GID_USED.match(text):
            return True, GidLine(match[1], int(match[2]))
        if match := _GID.match(text):
            address = gid_address(match[1])
            return True, None if address is None else GidLine(match[2], int(match[3]), address)
        if match := _OPENED.match(text):
            opened = (*thread[:2], match[1])
            _keep(self._open, opened, self._open.get(opened, 0) + 1)
            return True, None
        if match := _CLOSED.match(text):
            left = self._open.pop((*thread[:2], match[1]), 0) - 1
            if left > 0:
                self._open[*thread[:2], match[1]] = left
            return True, EndLine(None, match[1]) if left == 0 else None
        return False, None

    def _target(self, thread: _Thread, qpn: int) -> QueuePairLine | None:
        """A DCT; its number is 0 where the device matches tags."""
        where = self._making.get(thread)
        if where is None:
            return None
        known = self._dc.get(thread[:2], frozenset())
        if len(known) < _SEVERAL:
            _keep(self._dc, thread[:2], known | {where})
        return QueuePairLine(qpn, where[1], None, where[0], None, False) if qpn else None

    def _initiator(self, thread: _Thread, qpn: int) -> QueuePairLine | None:
        """A DCI, made with its interface, or later, which shows its device only if the process has
        DC on no other."""
        where = self._making.get(thread)
        if thread not in self._making:
            devices = self._dc.get(thread[:2], frozenset())
            where = next(iter(devices)) if len(devices) == 1 else None
        return None if where is None else QueuePairLine(qpn, where[1], None, where[0], None, True)


def suspect_ucx(line: str) -> bool:
    """Whether a line of UCX that says nothing known is about what should be known."""
    return _UCX_PREFIX.search(line) is not None and _UCX_SUSPECT.search(line) is not None


def _remote(text: str) -> tuple[str | None, int | None]:
    """Address and queue pair at the other end."""
    match = _REMOTE.search(text)
    return (None, None) if match is None else (gid_address(match[2]), int(match[1], 16))


def _keep(kept: dict[_K, _T], key: _K, value: _T) -> None:
    if len(kept) >= _MOST_THREADS and key not in kept:
        kept.clear()
    kept[key] = value
