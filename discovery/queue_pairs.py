"""Queue pairs of all hosts and their peers, from `rdma -j resource show qp` or rocescope's agent.

Two queue pairs are inferred to be peers if each has the number of the other as its remote number.
Hosts give the same numbers again and again, so the peer is known only if all hosts answered, both
queue pairs are connected (state RTS), and no others have these numbers. The UDP source port follows
from both numbers by Linux's formula; an application may have set another one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from ..analyzer.errors import UsageError
from ..analyzer.saved_file import decoded
from ..analyzer.words import printable
from ..replay.generate.queue_pairs import linux_source_port
from .dialects.linux import AGENT, QUEUE_PAIRS
from .results import HostQueuePair

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
    """A queue pair as rocescope's agent reports it (agent/results.py)."""

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
