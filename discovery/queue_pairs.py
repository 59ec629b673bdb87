"""Queue pairs of all hosts and their peers, from `rdma -j resource show qp`.

Two queue pairs are peers if each has the number of the other as its remote number. Numbers repeat
on other hosts: a pair with several such partners has no known peer. The UDP source port
follows from both numbers by Linux's formula; an application may have set another one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from ..analyzer.errors import UsageError
from ..replay.generate.queue_pairs import linux_source_port
from .dialects.linux import QUEUE_PAIRS
from .results import HostQueuePair

_MOST = (1 << 24) - 1
_WITH_PEERS = ("RC", "UC", "XRC_INI", "XRC_TGT")
"""Types of connected queue pairs."""


class Entry(msgspec.Struct):
    """A queue pair as iproute2 prints it."""

    lqpn: int
    ifname: str = ""
    rqpn: int = 0
    type: str = ""
    state: str = ""
    pid: int | None = None
    comm: str = ""


def read_queue_pairs(folder: Path, name: str) -> list[Entry]:
    """The queue pairs of a host, none without its answer. UsageError names the file."""
    file = folder / f"{name}.{QUEUE_PAIRS}"
    try:
        entries = msgspec.json.decode(file.read_bytes() or b"[]", type=list[Entry])
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file}: not the output of rdma resource show qp: {error}") from None
    for entry in entries:
        if not (0 <= entry.lqpn <= _MOST and 0 <= entry.rqpn <= _MOST):
            raise UsageError(f"{file}: {entry.lqpn} or {entry.rqpn} is no number of a queue pair")
    return entries


def joined(hosts: Mapping[str, list[Entry]]) -> list[HostQueuePair]:
    """The queue pairs of hosts by name, with their peers."""
    by_numbers: dict[tuple[int, int], list[str]] = defaultdict(list)
    for host, entries in hosts.items():
        for entry in entries:
            if entry.type in _WITH_PEERS:
                by_numbers[entry.lqpn, entry.rqpn].append(host)
    found = []
    for host, entries in hosts.items():
        for entry in entries:
            connected = entry.type in _WITH_PEERS and entry.rqpn > 0
            peers = by_numbers.get((entry.rqpn, entry.lqpn), []) if connected else []
            twins = by_numbers.get((entry.lqpn, entry.rqpn), [])
            alone = len(peers) == 1 and len(twins) == 1 and peers != [host]
            found.append(
                HostQueuePair(
                    host=host,
                    device=entry.ifname,
                    local_qp=entry.lqpn,
                    remote_qp=entry.rqpn if connected else None,
                    type=entry.type,
                    state=entry.state,
                    pid=entry.pid,
                    command=entry.comm or None,
                    peer=peers[0] if alone else None,
                    inferred_udp_source_port=_source_port(entry) if connected else None,
                )
            )
    return found


def _source_port(entry: Entry) -> int:
    numbers = (np.array([number], np.int64) for number in (entry.lqpn, entry.rqpn))
    return int(linux_source_port(*numbers)[0])
