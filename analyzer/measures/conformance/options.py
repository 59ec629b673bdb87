"""Options of the conformance checks: also hosts given by the user and the taps next to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from ...errors import UsageError

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


def endpoint_of(host: str, addresses: Sequence[str], option: str) -> int:
    """Index of a host among the addresses of a capture; UsageError names the option."""
    try:
        wanted = ip_address(host)
    except ValueError:
        raise UsageError(f"{option}: {host!r} is not an IP address") from None
    for index, text in enumerate(addresses):
        try:
            if ip_address(text) == wanted:
                return index
        except ValueError:
            continue
    few = ", ".join(addresses[:4]) + (", ..." if len(addresses) > 4 else "")
    raise UsageError(f"{option}: {host} is not in this capture, which holds {few}")


def parse_at_host(text: str) -> tuple[str, str | None]:
    """`ADDRESS` or `ADDRESS=TAP`."""
    address, _, tap = text.partition("=")
    return address, tap or None


def parse_same_port(text: str) -> tuple[str, ...]:
    """`ADDRESS,ADDRESS`: addresses of one port, in the format of the analysis."""
    try:
        addresses = tuple(str(ip_address(part.strip())) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--same-port: {text!r} is not a list of addresses like A,B") from None
    if len(set(addresses)) < 2:
        raise UsageError(f"--same-port: {text!r} needs two addresses, as A,B")
    return addresses


def hosts_at_taps(
    at_hosts: Sequence[tuple[str, str | None]], addresses: Sequence[str], taps: dict[int, str]
) -> dict[int, list[int]]:
    """Endpoints next to each tap; UsageError for hosts and taps that are not in the capture.

    taps: names of the taps with packets.
    """
    by_tap: dict[int, list[int]] = {tap: [] for tap in taps}
    for address, name in at_hosts:
        host = endpoint_of(address, addresses, "--at-host")
        chosen = [tap for tap, known in taps.items() if name is None or known == name]
        if len(chosen) != 1:
            few = ", ".join(list(taps.values())[:4]) + (", ..." if len(taps) > 4 else "")
            raise UsageError(
                f"--at-host: name the tap next to {address}, as {address}=TAP; taps are {few}"
            )
        by_tap[chosen[0]].append(host)
    return by_tap
