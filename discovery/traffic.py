"""The traffic of a fabric: queue pairs of hosts, and flows on their interfaces."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..analyzer.errors import RocescopeError, UnreadableInput, UsageError
from ..analyzer.jobs.job import Job, LoggedPair
from ..analyzer.results.flow import Owner
from ..analyzer.saved_file import decoded
from ..analyzer.wire.packets import PacketTable
from ..analyzer.words import printable
from ..probes.live import LiveSource
from ..replay.fabrics.fabric import Address, Fabric
from ..replay.generate.queue_pairs import linux_source_port
from ..replay.hashing.keys import address_text, packet_keys
from ..replay.results import EXACT, HostMapping
from ..replay.traffic.observed import Counting
from ..replay.traffic.traffic import Traffic
from .dialects.linux import AGENT, QUEUE_PAIRS, RDMA_LINKS
from .folder import Answers, read_folder
from .results import HostQueuePair

# Queue pairs of all hosts and their peers, from `rdma -j resource show qp` or rocescope's agent.
#
# Two queue pairs are inferred to be peers if each has the number of the other as its remote number.
# Hosts give the same numbers again and again, so the peer is known only if all hosts answered, both
# queue pairs are connected (state RTS), and no others have these numbers. The UDP source port
# follows from both numbers by Linux's formula; an application may have set another one.

_MOST = (1 << 24) - 1
_REASON = 200
"""Characters of a reason that is printed."""
PEER = {"RC": "RC", "UC": "UC", "XRC_INI": "XRC_TGT", "XRC_TGT": "XRC_INI"}
"""Types of connected queue pairs, and those of their peers."""


class Entry(msgspec.Struct):
    """A queue pair as iproute2 prints it."""

    lqpn: int
    ifname: str = ""
    rqpn: int = 0
    type: str = ""
    state: str = ""
    pid: int | None = None
    comm: str = ""


class _Pair(msgspec.Struct):
    """A queue pair as rocescope's agent reports it (agent/findings.py)."""

    adapter: str
    qp: int
    remote_qp: int | None
    type: str
    state: str
    pid: int | None
    command: str


class _Agent(msgspec.Struct):
    """The answer of rocescope's agent."""

    schema_version: Literal["1.0"]
    known: int
    unknown_because: str | None
    queue_pairs: list[_Pair]


def read_queue_pairs(folder: Path, name: str) -> list[Entry] | None:
    """The queue pairs of a host; None without its answer. UsageError names the file.

    A command that fails leaves an empty file. The answer of the agent counts only without that of
    `rdma`, and only if it is whole.
    """
    file = folder / f"{name}.{QUEUE_PAIRS}"
    entries = decoded(file, list[Entry], "the output of rdma resource show qp")
    if entries is None:
        file = folder / f"{name}.{AGENT}"
        answer = decoded(file, _Agent, "the output of rocescope agent")
        entries = None if answer is None else _of_agent(answer, file)
    for entry in entries or ():
        if not (0 <= entry.lqpn <= _MOST and 0 <= entry.rqpn <= _MOST):
            raise UsageError(f"{file}: {entry.lqpn} or {entry.rqpn} is not a QPN")
    return entries


def _of_agent(answer: _Agent, file: Path) -> list[Entry]:
    if answer.unknown_because is not None:
        reason = printable(answer.unknown_because)[:_REASON]
        raise UsageError(f"{file}: the agent does not know the queue pairs: {reason}")
    if answer.known != len(answer.queue_pairs):
        raise UsageError(f"{file}: {len(answer.queue_pairs):,} of {answer.known:,} queue pairs")
    return [
        Entry(p.qp, p.adapter, p.remote_qp or 0, p.type, p.state, p.pid, p.command)
        for p in answer.queue_pairs
    ]


def joined(hosts: Mapping[str, list[Entry]], complete: bool) -> list[HostQueuePair]:
    """The queue pairs of hosts by name, with their peers if the hosts are complete."""
    by_numbers: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for host, entries in hosts.items():
        for entry in entries:
            if entry.type in PEER and entry.state == "RTS":
                by_numbers[entry.type, entry.lqpn, entry.rqpn].append(host)
    pairs = []
    for host, entries in hosts.items():
        for entry in entries:
            connected = entry.type in PEER and entry.rqpn > 0
            alone = False
            if connected and complete:
                peers = by_numbers.get((PEER[entry.type], entry.rqpn, entry.lqpn), [])
                twins = by_numbers.get((entry.type, entry.lqpn, entry.rqpn), [])
                alone = len(peers) == 1 and twins == [host] and peers != [host]
            pairs.append(
                HostQueuePair(
                    host=host,
                    device=entry.ifname,
                    local_qp=entry.lqpn,
                    remote_qp=entry.rqpn if connected else None,
                    type=entry.type,
                    state=entry.state,
                    pid=entry.pid,
                    command=entry.comm or None,
                    inferred_peer=peers[0] if alone else None,
                    inferred_udp_source_port=_source_port(entry) if connected else None,
                )
            )
    return pairs


def _source_port(entry: Entry) -> int:
    numbers = (np.array([number], np.int64) for number in (entry.lqpn, entry.rqpn))
    return int(linux_source_port(*numbers)[0])


# The queue pairs of running hosts as one-way flows, from the answers of the hosts.
#
# Every connected queue pair whose peer is known (queue_pairs.py) sends one flow. Its address is the
# one that its network port has on the fabric, its UDP source port follows from Linux's formula:
# both are inferred. Packets and bytes are not known.

_NAMED = 5
"""Hosts named in a warning."""


class RdmaLink(msgspec.Struct):
    """A port of an RDMA device as iproute2 prints it."""

    ifname: str
    netdev: str = ""


class HostTraffic(NamedTuple):
    """The flows of queue pairs."""

    traffic: Traffic
    """One unit per flow; every flow counts as one byte."""
    ends: list[tuple[HostQueuePair, HostQueuePair]]
    """The queue pairs that send and receive each flow."""
    queue_pairs: int
    """Connected ones, those left out included."""


class _Host(NamedTuple):
    """The addresses of a host on the fabric, by port."""

    ports: dict[str, list[Address]]
    netdevs: dict[str, set[str]]
    """Ports by RDMA device."""

    def of(self, device: str, kind: type[Address]) -> set[Address]:
        """The addresses of this family that an RDMA device may have."""
        netdevs = self.netdevs.get(device) or self.ports.keys()
        return {a for name in netdevs for a in self.ports.get(name, ()) if isinstance(a, kind)}


def host_traffic(folder: Path, fabric: Fabric, job: Job | None = None) -> HostTraffic:
    """The flows of the hosts whose answers are in a folder.

    job: logs that name the ranks of queue pairs. What is left out is in the warnings of the
    traffic. UsageError if no flow is known.
    """
    answers, unread = read_folder(folder)
    warnings = [f"{printable(entry.name)}: {entry.kind}: {entry.reason}" for entry in unread]
    hosts: dict[str, _Host] = {}
    entries: dict[str, list[Entry]] = {}
    answered: set[int] = set()
    for entry in answers:
        name = entry.device.name
        if entry.asked is not None and entry.asked.kind != "host":
            continue
        try:
            listed = read_queue_pairs(folder, name)
            host, numbers = _host(entry, folder, fabric)
        except UsageError as error:
            warnings.append(str(error))
            continue
        if listed is None:
            if entry.asked is not None or numbers:
                warnings.append(
                    f"{name} did not report its queue pairs (rdma resource show qp, rocescope "
                    "agent)"
                )
            continue
        if not numbers:
            warnings.append(f"{name} has no address of a host of {fabric.name}")
        hosts[name], entries[name] = host, listed
        answered |= numbers
    silent = [fabric.host_name(h) for h in range(fabric.hosts) if h not in answered]
    pairs = joined(entries, complete=not silent)
    flows = _flows(pairs, hosts, fabric, silent, warnings)
    return flows if job is None else _with_ranks(flows, job)


def _host(replies: Answers, folder: Path, fabric: Fabric) -> tuple[_Host, set[int]]:
    """The addresses of a host on the fabric, and the hosts of the fabric that have them."""
    ports: dict[str, list[Address]] = {}
    numbers: set[int] = set()
    for port in replies.device.interfaces or ():
        for interface in port.addresses:
            number = fabric.addresses.host_of(interface.ip)
            if number is not None:
                ports.setdefault(port.name, []).append(interface.ip)
                numbers.add(number)
    netdevs: dict[str, set[str]] = {}
    file = folder / f"{replies.device.name}.{RDMA_LINKS}"
    for link in decoded(file, list[RdmaLink], "the output of rdma link show") or ():
        if link.netdev:
            netdevs.setdefault(link.ifname, set()).add(link.netdev)
    return _Host(ports, netdevs), numbers


def _flows(
    pairs: list[HostQueuePair],
    hosts: Mapping[str, _Host],
    fabric: Fabric,
    silent: list[str],
    warnings: list[str],
) -> HostTraffic:
    connected = [pair for pair in pairs if pair.remote_qp is not None and pair.state == "RTS"]
    by_numbers = {(pair.host, pair.type, pair.local_qp, pair.remote_qp): pair for pair in connected}
    ends: list[tuple[HostQueuePair, HostQueuePair]] = []
    addresses: list[tuple[Address, Address]] = []
    alone = nowhere = 0
    for pair in connected:
        far = (pair.inferred_peer or "", PEER[pair.type], pair.remote_qp or 0, pair.local_qp)
        peer = by_numbers.get(far)
        if peer is None:
            alone += 1
            continue
        way = _addresses(hosts[pair.host], pair.device, hosts[peer.host], peer.device)
        if way is None:
            nowhere += 1
            continue
        ends.append((pair, peer))
        addresses.append(way)
    if alone:
        why = "no other queue pair of the hosts, or several, have their numbers"
        if silent:
            more = ", ..." if len(silent) > _NAMED else ""
            why = (
                "numbers repeat from host to host, and hosts of the fabric did not answer: "
                f"{', '.join(silent[:_NAMED])}{more}"
            )
        warnings.append(_left_out(alone, len(connected), f"their peers are not known: {why}"))
    if nowhere:
        why = "their addresses are not known: the ports of their RDMA devices have none, or several"
        warnings.append(_left_out(nowhere, len(connected), why))
    if not ends:
        reason = warnings[-1] if warnings else "the hosts have no connected queue pair"
        raise UsageError(f"no flow of queue pairs is known: {reason}")
    return HostTraffic(_traffic(ends, addresses, fabric, warnings), ends, len(connected))


def _with_ranks(result: HostTraffic, job: Job) -> HostTraffic:
    """The flows with the ranks of both ends, where logs name exactly one queue pair."""
    named: dict[tuple[str | None, int], list[LoggedPair]] = {}
    for pair in job.pairs():
        named.setdefault((pair.address, pair.qpn), []).append(pair)
    owners: dict[int, Owner] = {}
    keys = result.traffic.keys
    for flow, ends in enumerate(result.ends):
        places = (keys.src[flow], ends[0].local_qp), (keys.dst[flow], ends[1].local_qp)
        src, dst = (named.get((address_text(packed), qpn), []) for packed, qpn in places)
        if len(dst) == 1:
            same = len(src) == 1 and None not in (src[0].comm, dst[0].comm)
            same = same and src[0].comm == dst[0].comm
            owners[flow] = _owner(dst[0], "destination", src[0].rank if same else None)
        elif len(src) == 1:
            owners[flow] = _owner(src[0], "source", None)
    warnings = result.traffic.warnings
    if not owners:
        warnings = (*warnings, "logs of the job name none of the queue pairs of the hosts")
    return result._replace(traffic=replace(result.traffic, owners=owners, warnings=warnings))


def _owner(pair: LoggedPair, end: str, peer_rank: int | None) -> Owner:
    return Owner(
        pid=None, command=None, rank=pair.rank, end=end, comm=pair.comm, peer_rank=peer_rank
    )


def _left_out(count: int, of: int, why: str) -> str:
    return f"{count:,} of {of:,} connected queue pairs are left out: {why}"


def _addresses(
    host: _Host, device: str, peer: _Host, peer_device: str
) -> tuple[Address, Address] | None:
    """The addresses of both ends, IPv4 if both have some; None: none, or several."""
    kinds: tuple[type[Address], ...] = (IPv4Address, IPv6Address)
    for kind in kinds:
        src, dst = host.of(device, kind), peer.of(peer_device, kind)
        if src and dst:
            return (src.pop(), dst.pop()) if len(src) == len(dst) == 1 else None
    return None


def _traffic(
    ends: list[tuple[HostQueuePair, HostQueuePair]],
    addresses: list[tuple[Address, Address]],
    fabric: Fabric,
    warnings: list[str],
) -> Traffic:
    n = len(ends)
    number = {a: fabric.addresses.host_of(a) for way in addresses for a in way}
    src, dst = ([number[way[side]] for way in addresses] for side in (0, 1))
    known = {str(a): fabric.host_name(h) for a, h in number.items() if h is not None}
    return Traffic(
        keys=packet_keys(
            [str(a) for a, _ in addresses],
            [str(b) for _, b in addresses],
            np.array([pair.inferred_udp_source_port for pair, _ in ends], np.uint16),
            dest_qp=np.array([pair.remote_qp for pair, _ in ends], np.uint32),
        ),
        src_host=np.array(src, np.int32),
        dst_host=np.array(dst, np.int32),
        flow=np.arange(n, dtype=np.int32),
        packets=np.zeros(n, np.int64),
        wire_bytes=np.ones(n, np.int64),
        first_ns=np.zeros(n, np.int64),
        last_ns=np.zeros(n, np.int64),
        warnings=tuple(warnings),
        mapping=HostMapping(rule=EXACT, hosts=known),
    )


# Flows that are captured on interfaces, while they appear.

TELL_SECONDS = 1.0
"""New flows are told together, so often at most."""


class LiveTraffic:
    """The flows that a source captures, mapped to the hosts of a fabric."""

    def __init__(
        self, source: LiveSource, fabric: Fabric, mapping: str = "exact", job: Job | None = None
    ) -> None:
        """job: logs that name the ranks of queue pairs."""
        self.source = source
        self._job = job
        self._fabric, self._mapping = fabric, mapping
        self._counting = Counting()
        self._counting.update(PacketTable.zeros(2))  # its machine code, before packets arrive
        self._counting = Counting()
        self._full = ""

    def run(
        self, check: Callable[[], None], tell: Callable[[Traffic], object] | None = None
    ) -> None:
        """Capture until the source stops. `check` is called many times a second, `tell` with the
        traffic so far whenever there are new flows.

        RocescopeError with more flows than fit in memory, without `tell`; with it, flows beyond are
        left out, which a warning of the traffic says.
        """
        known, due = 0, 0.0
        for table in self.source.tables():
            check()
            try:
                if not self._full:
                    self._counting.update(table)
            except RocescopeError as error:
                if tell is None:
                    raise
                self._full = f"further flows are not followed: {error}"
            now = time.monotonic()
            units = len(self._counting.counter.units) + bool(self._full)
            if tell is not None and units > known and now >= due:
                known, due = units, now + TELL_SECONDS
                tell(self.traffic())

    def traffic(self) -> Traffic:
        """The flows so far; what was not captured is in its warnings.

        UnreadableInput without a RoCE packet.
        """
        names = ", ".join(interface.label for interface in self.source.interfaces)
        if not len(self._counting.counter.units):
            raise UnreadableInput(f"no RoCE packet on {names}")
        traffic = self._counting.traffic(
            self.source.registry.endpoints, self._fabric, self._mapping, job=self._job
        )
        return replace(traffic, warnings=(*traffic.warnings, *self.missing()))

    def missing(self) -> list[str]:
        """What was not captured so far."""
        loss = self.source.loss()
        texts = [self._full] if self._full else []
        for number, what in (
            (loss.ring_full, "packets were lost because the ring was full: flows may be missing"),
            (loss.merged, "frames had been merged by the kernel (GRO or GSO) and are counted once"),
        ):
            if number:
                texts.append(f"{number:,} {what}")
        return texts
