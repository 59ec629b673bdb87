"""How to check the rules of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

DEFAULT_CNP_INTERVAL_NS = 4_000
"""Minimum time between CNPs of ConnectX adapters unless set otherwise (assumed)."""

DEFAULT_REACTION_NS = 1_000_000_000
"""Software RDMA on a busy host took up to half a second (measured); adapters take microseconds."""


@dataclass(frozen=True, slots=True)
class HostCounters:
    """By how much the counters of one host grew while the capture ran."""

    host: str
    growth: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ConformanceOptions:
    """How to check."""

    cnp_interval_ns: int = DEFAULT_CNP_INTERVAL_NS
    """Minimum time between two CNPs of one pacing scope."""
    reaction_ns: int = DEFAULT_REACTION_NS
    """The longest an answer may take from the tap through its sender's queues back to the tap."""
    cnp_for_nak: bool = False
    """Receivers send a CNP for a NAK, too."""
    same_port: tuple[tuple[str, ...], ...] = ()
    """Addresses that belong to one port each; others have a port of their own."""
    address_of: Callable[[int], str] = str
    """The address of an endpoint, for `same_port`."""
    interface_of: Callable[[int], int] = int
    """The tap that stands for the interface of a tap: both directions are judged as one."""
    counters: HostCounters | None = None
    at_hosts: tuple[tuple[str, str | None], ...] = ()
    """Hosts next to a tap: address, and name of the tap; None when there is only one."""
