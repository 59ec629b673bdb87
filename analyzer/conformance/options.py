"""How to check the rules of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
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
    counters: HostCounters | None = None
    at_hosts: tuple[tuple[str, str | None], ...] = ()
    """Hosts next to a tap: address, and name of the tap; None when there is only one."""
