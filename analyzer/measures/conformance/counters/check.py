"""Compares a host's counters with the packets at a tap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .....kernels.named import NamedTuple
from ....errors import UsageError
from ....results.conformance import CounterCheck
from ....wire.opcodes import OPERATION_NAMES, RC, XRC
from ..hosts import endpoint_of
from ..options import HostCounters
from ..state import BY_READ, BY_TIMEOUT
from . import names as names
from .names import COUNTERS

_SENT = frozenset((names.PACKETS_SENT, names.NAKS_SENT, names.RNR_SENT, names.CNPS_SENT))
_JUDGED = frozenset((names.TIMEOUTS, names.REWINDS, names.READS_AGAIN))


class TapCounts(NamedTuple):
    """State of one tap, one entry per flow."""

    tap: str
    flows: NDArray[np.void]
    """FLOW records."""
    states: NDArray[np.void]
    """REQUESTER records."""
    opcodes: NDArray[np.int64]
    """int64[flows, 256]."""


def check_counters(
    counters: HostCounters,
    taps: Sequence[TapCounts],
    addresses: Sequence[str],
    damaged: int | None = None,
) -> list[CounterCheck]:
    """Compare every known counter with the tap that agrees with most of them.

    That is the tap next to the host, if there is one: other taps also see packets that are lost
    later. Among equal taps it is the one with the most packets of the host. damaged: packets to the
    host that a mirroring switch corrupted; None when unknown. UsageError when the capture has no
    packet of the host.
    """
    host = endpoint_of(counters.host, addresses, "--host")
    seen = [tap for tap in taps if _packets_of(tap, host)]
    if not seen:
        raise UsageError(f"--host: no packet of {counters.host} in this capture")
    known = sorted((name, n) for name, n in counters.growth.items() if name in COUNTERS)
    checks = []
    for tap in sorted(seen, key=lambda tap: -_packets_of(tap, host)):
        captured = _captured(tap, host)
        if damaged is not None:
            captured[names.DAMAGED_RECEIVED] = damaged
        checks.append([_beside(counters.host, tap.tap, *one, captured) for one in known])
    return max(checks, key=lambda found: sum(one.agrees is True for one in found))


def _packets_of(tap: TapCounts, host: int) -> int:
    flows = tap.flows
    return int(flows["packets"][(flows["src"] == host) | (flows["dst"] == host)].sum())


def _captured(tap: TapCounts, host: int) -> dict[str, int]:
    """All quantities of names.py."""
    flows, states = tap.flows, tap.states
    sent, received = flows["src"] == host, flows["dst"] == host
    asks, answers = sent[: len(states)], received[: len(states)]

    def total(values: NDArray[Any], of: NDArray[np.bool_]) -> int:
        return int(values[of].sum())

    def requests(*operations: str) -> int:
        wanted = [
            transport << 5 | code
            for code, name in OPERATION_NAMES.items()
            for transport in (RC, XRC)
            if name in operations
        ]
        return int(tap.opcodes[: len(flows)][received][:, wanted].sum())

    rewinds = states["rewinds"]
    return {
        names.PACKETS_SENT: total(flows["packets"], sent),
        names.PACKETS_RECEIVED: total(flows["packets"], received),
        names.NAKS_SENT: total(states["naks"], answers),
        names.NAKS_RECEIVED: total(states["naks"], asks),
        names.RNR_SENT: total(states["rnr_naks"], answers),
        names.RNR_RECEIVED: total(states["rnr_naks"], asks),
        names.TIMEOUTS: total(rewinds[:, BY_TIMEOUT], asks),
        names.REWINDS: total(rewinds.sum(axis=1), asks),
        names.READS_AGAIN: total(rewinds[:, BY_READ], asks),
        names.DUPLICATES: total(states["duplicates"], answers),
        names.BEYOND: total(states["beyond"], answers),
        names.CNPS_SENT: total(flows["cnps"], sent),
        names.CNPS_RECEIVED: total(flows["cnps"], received),
        names.MARKED_RECEIVED: total(flows["ecn_marked"], received),
        names.READS_RECEIVED: total(flows["read_requests"], received),
        names.WRITES_RECEIVED: requests("WRITE_FIRST", "WRITE_ONLY", "WRITE_ONLY_IMM"),
        names.SENDS_RECEIVED: requests("SEND_FIRST", "SEND_ONLY", "SEND_ONLY_IMM", "SEND_ONLY_INV"),
        names.ATOMICS_RECEIVED: requests("COMPARE_SWAP", "FETCH_ADD"),
    }


def _beside(host: str, tap: str, name: str, grew: int, captured: dict[str, int]) -> CounterCheck:
    counter = COUNTERS[name]
    seen = captured.get(counter.quantity)
    text = ""
    if seen is None:
        text = names.AS_DAMAGED
    elif seen != grew and counter.quantity != names.DAMAGED_RECEIVED:
        if counter.quantity in _JUDGED:
            text = names.AS_JUDGED
        else:
            text = names.AS_SENT if counter.quantity in _SENT else names.AS_RECEIVED
            if grew > seen:
                text = "the tap or the capture missed some, or they belong to other interfaces"
    return CounterCheck(
        host=host,
        tap=tap,
        counter=name,
        driver=counter.driver,
        grew_by=grew,
        captured=seen,
        agrees=None if seen is None else seen == grew,
        meaning=counter.meaning,
        text=text,
    )
