"""Options of the conformance checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

DEFAULT_CNP_INTERVAL_NS = 4_000
"""Minimum time between CNPs of ConnectX adapters unless set otherwise (assumed)."""

DEFAULT_REACTION_NS = 1_000_000_000
"""Software RDMA on a busy host took up to half a second (measured); adapters take microseconds."""


@dataclass(frozen=True, slots=True)
class HostCounters:
    """Growth of the counters of one host during the capture."""

    host: str
    growth: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ConformanceOptions:
    """Options of the checks."""

    cnp_interval_ns: int = DEFAULT_CNP_INTERVAL_NS
    """Minimum time between two CNPs of one pacing scope."""
    reaction_ns: int = DEFAULT_REACTION_NS
    """Longest time from a packet at the tap to its response at the tap."""
    cnp_for_nak: bool = False
    """Receivers also send a CNP with a NAK."""
    same_port: tuple[tuple[str, ...], ...] = ()
    """Groups of addresses of one port; every other address has its own port."""
    address_of: Callable[[int], str] = str
    """Address of an endpoint, for `same_port`."""
    interface_of: Callable[[int], int] = int
    """The tap that represents the interface of a tap: both directions are judged as one."""
    counters: HostCounters | None = None
    at_hosts: tuple[tuple[str, str | None], ...] = ()
    """Hosts next to a tap: address and name of the tap; None with only one tap."""
