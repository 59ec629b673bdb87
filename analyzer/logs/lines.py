"""What single lines of job logs say: NCCL and RCCL INFO and WARN lines, perftest's output.

Lines are untrusted text. A line counts only if it is complete and of a known form; `suspect` tells
lines about queue pairs, communicators or errors whose form is not known.
"""

from __future__ import annotations

import ipaddress
import re
import time
from typing import NamedTuple

_PREFIX = re.compile(
    r"(?:\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)[^\]]{0,16}\] )?"
    r"([A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}):(\d{1,10}):(\d{1,10}) \[(-?\d{1,4})\] "
    r"(?:\S{1,200} )?NCCL (?:INFO|WARN|ERROR) "
)
_QUEUE_PAIR = re.compile(
    r"NET/IB ?: (?:\w{1,64}: )?(?:NCCL (?:Merged)?)?Dev \d{1,4} (?:IbDev (\d{1,4}) )?Port (\d{1,3})"
    r" (?:qpn|qp_num) (\d{1,8}) mtu \d{1,5} (?:query_ece=\{[^{}]{0,200}\} )?"
    r"GID -?\d{1,5} \(([0-9A-Fa-f]{1,16})/([0-9A-Fa-f]{1,16})\)"
)
_CREATED = re.compile(
    r"NET/IB ?: (\w{1,64}): QP created: port=(\d{1,3}) dev=(\d{1,4}) devName=([\w.\-]{1,64})"
    r" ndevs=\d+ nmdevs=\d+ qp_num=(\d{1,8}) "
)
_COMMUNICATOR = re.compile(
    r"comm (0x[0-9a-f]{1,16}) rank (\d{1,9}) nranks (\d{1,9}) cudaDev (-?\d{1,4})"
    r"(?: nvmlDev -?\d{1,4})? busId [0-9a-f]{1,16}(?: parent 0x[0-9a-f]{1,16})?"
    r"(?:[\w ()]{0,120}?)(?: commId (0x[0-9a-f]{1,16}))?"
    r" - (Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)"
)
_CHANNEL = re.compile(
    r"Channel (\d{1,5})(?:/\d{1,5})? : (\d{1,9})\[[0-9a-f]{1,9}\] -> (\d{1,9})\[[0-9a-f]{1,9}\]"
    r" \[(send|receive)\] via NET/"
)
_DEVICES = re.compile(r"\[(\d{1,4})\]([\w.\-]{1,64}):(\d{1,3})/RoCE")
_FAILED = re.compile(r"NET/IB ?: .{0,80}Got CQE with error \(.{0,200}\bqp_num=(\d{1,8})\)")
_COMPLETION = re.compile(
    r"NET/IB ?: Got completion from peer \S{1,80} with"
    r" (?:status=(?:[A-Z_]{1,40}\()?|error )(\d{1,3})\b"
)
_GIDS = re.compile(r" localGid ([0-9A-Fa-f:.]{2,45}) remoteGids ?([0-9A-Fa-f:.]{2,45})")
_PERFTEST = re.compile(r"^ *(local|remote) address: LID \S{1,8} QPN 0x([0-9a-f]{1,6}) PSN 0x")
_PERFTEST_GID = re.compile(r"^ *GID: ((?:\d{2,3}:){15}\d{2,3})\s*$")
_PERFTEST_DEVICE = re.compile(r"\bDevice {1,12}: ([\w.\-]{1,64})\s*$")
_SUSPECT = re.compile(
    r"NET/IB.{0,200}(?:Dev \d+ Port \d+ \w+ \d+ mtu|QP created|Got CQE|Got completion from)"
    r"|comm 0x[0-9a-f]+ .{0,200} - Init "
    r"|Channel \d+.{0,40} via NET/IB"
)

INTERESTING = re.compile(rb"NET/| - (?:Init|Destroy|Abort) | address: LID |GID: |Device  ")
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
    name: str
    rank: int
    gpu: int
    step: str


class ChannelLine(NamedTuple):
    """A channel of the process to a peer over the network."""

    channel: int
    sender: int
    receiver: int
    sends: bool


class DevicesLine(NamedTuple):
    """The RoCE devices of the process: number, name and port."""

    devices: list[tuple[int, str, int]]


class ErrorLine(NamedTuple):
    """A completion with an error: the queue pair in one line, the status in the next."""

    qpn: int | None
    status: int | None
    local: str | None
    remote: str | None


class GidLine(NamedTuple):
    """A GID of a device of this host by its index; without an address: the index that is used."""

    device: str
    gid_index: int
    address: str | None = None


class EndLine(NamedTuple):
    """The end of a queue pair of the process; without a number: of all on a device."""

    qpn: int | None
    device: str | None = None


class PerftestLine(NamedTuple):
    """One end of a queue pair of perftest, its GID, or its device: one of them is known."""

    local: bool = False
    qpn: int | None = None
    address: str | None = None
    device: str | None = None


Said = QueuePairLine | CommunicatorLine | ChannelLine | DevicesLine | ErrorLine | GidLine | EndLine


def said(line: str) -> tuple[Speaker, int | None, Said] | None:
    """Who says what, and when in ns if the line has a time; None for any other line."""
    prefix = _PREFIX.search(line)
    if prefix is None:
        return None
    moment, host, pid, _thread, gpu = prefix.groups()
    what = _said(line[prefix.end() :])
    if what is None:
        return None
    return Speaker(host, int(pid), int(gpu)), _time_ns(moment), what


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
        pointer, rank, _ranks, gpu, name, step = match.groups()
        known = name is not None and int(name, 16) != 0
        return CommunicatorLine(pointer, name if known else pointer, int(rank), int(gpu), step)
    if match := _CHANNEL.match(text):
        channel, sender, receiver, way = match.groups()
        return ChannelLine(int(channel), int(sender), int(receiver), way == "send")
    if match := _FAILED.match(text):
        return ErrorLine(int(match[1]), None, None, None)
    if match := _COMPLETION.match(text):
        gids = _GIDS.search(text)
        local, remote = (None, None) if gids is None else map(gid_address, gids.groups())
        return ErrorLine(None, int(match[1]), local, remote)
    if text.startswith("NET/IB") and " : Using " in text:
        found_devices = [(int(n), name, int(port)) for n, name, port in _DEVICES.findall(text)]
        return DevicesLine(found_devices) if found_devices else None
    return None


def perftest(line: str) -> PerftestLine | None:
    """What a line of perftest's output says."""
    if match := _PERFTEST.match(line):
        return PerftestLine(match[1] == "local", int(match[2], 16))
    if match := _PERFTEST_GID.match(line):
        numbers = [int(part) for part in match[1].split(":")]
        if max(numbers) < 256:
            return PerftestLine(address=_written(bytes(numbers)))
    if match := _PERFTEST_DEVICE.search(line):
        return PerftestLine(device=match[1])
    return None


def suspect(line: str) -> bool:
    """Whether a line that says nothing known is about what should be known."""
    return _SUSPECT.search(line) is not None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _gid(prefix: int, interface: int) -> str:
    """NCCL prints the two halves of a GID as numbers of a little-endian host."""
    return _written(prefix.to_bytes(8, "little") + interface.to_bytes(8, "little"))


def _written(gid: bytes) -> str:
    address = ipaddress.IPv6Address(gid)
    return str(address.ipv4_mapped or address)


def gid_address(text: str) -> str | None:
    """The address of a GID as inet_ntop writes it; None for anything else."""
    try:
        return _written(ipaddress.IPv6Address(text).packed)
    except ValueError:
        return None


def _time_ns(moment: str | None) -> int | None:
    """NCCL writes local time without its zone: it is read as the local time here (TZ)."""
    if moment is None:
        return None
    try:
        parsed = time.strptime(moment.replace("T", " "), "%Y-%m-%d %H:%M:%S")
        return int(time.mktime(parsed)) * 1_000_000_000
    except (ValueError, OverflowError):
        return None
