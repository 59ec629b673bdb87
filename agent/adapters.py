"""What the RDMA adapters of this host tell: queue pairs, their owners and their counters."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..probes.owners.nldev import QueuePairCounters, dump_counters, dump_queue_pairs
from ..probes.owners.queue_pairs import Resource
from ..probes.sysfs import DEVICES, devices, read_ports

_EVERY_S = 15.0
_MOST_SHARE = 200
"""A look that takes long is repeated after this many times as long: half a percent of a core."""
_MANAGEMENT = ("GSI", "SMI")
_PACKETS = {"in": "port_rcv_packets", "out": "port_xmit_packets"}


@dataclass(frozen=True, slots=True)
class Adapter:
    """An RDMA device of an interface."""

    name: str
    is_software: bool
    """Soft-RoCE: its packets pass the kernel, where probes see them."""


@dataclass(frozen=True, slots=True)
class AdapterState:
    """One look at the adapters."""

    queue_pairs: list[Resource] = field(default_factory=list)
    """Without those of the management."""
    counters: list[QueuePairCounters] = field(default_factory=list)
    reason: str | None = None
    """Why queue pairs are unknown; None: they are known."""
    counters_reason: str | None = None
    """Why adapters count no queue pair on its own."""
    packets: dict[tuple[str, str], int] = field(default_factory=dict)
    """RoCE packets by adapter and direction (in, out), by its own counters."""

    def states(self) -> dict[tuple[str, str, str], int]:
        """(adapter, type, state) -> number of queue pairs."""
        return dict(Counter((qp.device, qp.type, qp.state) for qp in self.queue_pairs))

    def in_error(self, adapter: str | None = None) -> list[Resource]:
        """Queue pairs in the error state: their connection has ended with an error."""
        return [
            pair
            for pair in self.queue_pairs
            if pair.state == "ERR" and adapter in (None, pair.device)
        ]

    def owner(self, adapters: Sequence[Adapter], local_qp: int) -> Resource | None:
        """The queue pair with this number on one of these adapters."""
        names = {adapter.name for adapter in adapters}
        for pair in self.queue_pairs:
            if pair.local_qp == local_qp and pair.device in names:
                return pair
        return None


class Adapters:
    """Looks at the adapters from time to time, in less than half a percent of a core."""

    def __init__(self, root: Path = DEVICES) -> None:
        self._root = root
        self._due = 0.0
        self.state = AdapterState()

    def of_interface(self, interface: str, namespace: str | None = None) -> list[Adapter] | None:
        """The RDMA devices of a network interface; None: unknown.

        namespace: the interface's, other than that of the agent. Names are of the agent's own, and
        devices may belong to one namespace, so only a kernel without RDMA is known to have none.
        """
        if namespace is not None:
            return None if self._root.is_dir() else []
        adapters = []
        for name in devices(self._root):
            folder = self._root / name
            parent = _text(folder / "parent")
            names = {parent, *(_text(path) for path in folder.glob("ports/*/gid_attrs/ndevs/*"))}
            names |= {path.name for path in folder.glob("device/net/*")}
            if interface and interface in names:
                adapters.append(Adapter(name, is_software=bool(parent)))
        return adapters

    def look(self) -> bool:
        """Look again if it is time; returns whether it was."""
        began = time.monotonic()
        if began < self._due:
            return False
        self.state = self._look() if devices(self._root) else AdapterState()
        took = time.monotonic() - began
        self._due = began + max(_EVERY_S, _MOST_SHARE * took)
        return True

    def _look(self) -> AdapterState:
        pairs, reason = dump_queue_pairs()
        counters, counters_reason = dump_counters()
        packets: Counter[tuple[str, str]] = Counter()
        for port in read_ports(self._root)[0]:
            for direction, name in _PACKETS.items():
                if name in port.counters:
                    packets[port.device, direction] += port.counters[name]
        return AdapterState(
            queue_pairs=[pair for pair in pairs if pair.type not in _MANAGEMENT],
            counters=counters,
            reason=reason,
            counters_reason=counters_reason,
            packets=dict(packets),
        )


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""
