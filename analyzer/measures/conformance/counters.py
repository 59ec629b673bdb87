"""Compares saved counters of a host with the packets at a tap.

Counters come from `ethtool -S`, `rdma statistic`, and sysfs hw_counters. Names: mlx5 (kernel
drivers/infiniband/hw/mlx5/counters.c), irdma (verbs.c), bnxt_re (hw_counters.c), rxe
(rxe_hw_counters.c). The meanings are from these sources and the vendors' pages; Lumina measured
that ConnectX counts one out_of_sequence per NAK (SIGCOMM 2023).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import NamedTuple
from ...errors import UnreadableInput, UsageError
from ...results.analysis import CounterCheck
from ...wire.bth import OPERATION_NAMES, RC, XRC
from .options import HostCounters, endpoint_of
from .state import BY_READ, BY_TIMEOUT

PACKETS_SENT = "packets_sent"
PACKETS_RECEIVED = "packets_received"
NAKS_SENT = "naks_sent"
NAKS_RECEIVED = "naks_received"
RNR_SENT = "rnr_naks_sent"
RNR_RECEIVED = "rnr_naks_received"
TIMEOUTS = "timeouts"
REWINDS = "rewinds"
READS_AGAIN = "reads_asked_again"
DUPLICATES = "duplicate_requests_received"
BEYOND = "requests_received_beyond"
CNPS_SENT = "cnps_sent"
CNPS_RECEIVED = "cnps_received"
MARKED_RECEIVED = "marked_received"
READS_RECEIVED = "reads_received"
WRITES_RECEIVED = "writes_received"
SENDS_RECEIVED = "sends_received"
ATOMICS_RECEIVED = "atomics_received"
DAMAGED_RECEIVED = "damaged_received"

AS_SENT: Final = "the tap may be after a loss, or the capture began late"
AS_RECEIVED: Final = "packets lost after the tap do not reach the host's counter"
AS_JUDGED: Final = "a capture shows timeouts only as silence, and no packet lost before the tap"


AS_DAMAGED: Final = "only a mirror that corrupts packets knows which ones arrived damaged"


class Counter(NamedTuple):
    """One counter of a driver."""

    driver: str
    quantity: str
    meaning: str


COUNTERS: Final = {
    "sent_pkts": Counter("rxe", PACKETS_SENT, "packets sent"),
    "rcvd_pkts": Counter("rxe", PACKETS_RECEIVED, "packets received"),
    "out_of_seq_request": Counter("rxe", NAKS_SENT, "NAKs sent for a lost packet"),
    "rcvd_seq_err": Counter("rxe", NAKS_RECEIVED, "NAKs received for a lost packet"),
    "duplicate_request": Counter("rxe, mlx5", DUPLICATES, "duplicate requests received"),
    "completer_retry_err": Counter("rxe", REWINDS, "rewinds"),
    "rcvd_rnr_err": Counter("rxe", RNR_RECEIVED, "RNR NAKs received"),
    "send_rnr_err": Counter("rxe", RNR_SENT, "RNR NAKs sent"),
    "packet_seq_err": Counter("mlx5", NAKS_RECEIVED, "NAKs received for a lost packet"),
    "out_of_sequence": Counter("mlx5", NAKS_SENT, "gaps detected, one NAK each"),
    "local_ack_timeout_err": Counter("mlx5", TIMEOUTS, "ACK timeouts"),
    "implied_nak_seq_err": Counter("mlx5", READS_AGAIN, "READ requests retransmitted after a gap"),
    "rnr_nak_retry_err": Counter("mlx5", RNR_RECEIVED, "RNR NAKs received"),
    "out_of_buffer": Counter(
        "mlx5", RNR_SENT, "requests without a receive buffer, one RNR NAK each"
    ),
    "rx_icrc_encapsulated": Counter("mlx5", DAMAGED_RECEIVED, "packets with a wrong ICRC"),
    "np_cnp_sent": Counter("mlx5", CNPS_SENT, "CNPs sent"),
    "np_ecn_marked_roce_packets": Counter("mlx5", MARKED_RECEIVED, "CE-marked packets received"),
    "rp_cnp_handled": Counter("mlx5", CNPS_RECEIVED, "CNPs received and handled"),
    "rx_read_requests": Counter("mlx5", READS_RECEIVED, "READ requests received"),
    "rx_write_requests": Counter("mlx5", WRITES_RECEIVED, "WRITE requests received"),
    "rx_atomic_requests": Counter("mlx5", ATOMICS_RECEIVED, "atomic requests received"),
    "rx_vport_rdma_unicast_packets": Counter("mlx5", PACKETS_RECEIVED, "RoCE packets received"),
    "tx_vport_rdma_unicast_packets": Counter("mlx5", PACKETS_SENT, "RoCE packets sent"),
    "cnpSent": Counter("irdma", CNPS_SENT, "CNPs sent"),
    "cnpHandled": Counter("irdma", CNPS_RECEIVED, "CNPs received and handled"),
    "RxECNMrkd": Counter("irdma", MARKED_RECEIVED, "CE-marked packets received"),
    "InRdmaReads": Counter("irdma", READS_RECEIVED, "READ requests received"),
    "iwInRdmaReads": Counter("irdma", READS_RECEIVED, "READ requests received"),
    "iwInRdmaWrites": Counter("irdma", WRITES_RECEIVED, "WRITE requests received"),
    "iwInRdmaSends": Counter("irdma", SENDS_RECEIVED, "SEND requests received"),
    "Nak Sequence Error Implied": Counter("irdma", READS_AGAIN, "READ requests retransmitted"),
    "InRdmaWrites": Counter("irdma", WRITES_RECEIVED, "WRITE requests received"),
    "InRdmaSends": Counter("irdma", SENDS_RECEIVED, "SEND requests received"),
    "RTO": Counter("irdma", TIMEOUTS, "ACK timeouts"),
    "Nak Sequence Error": Counter("irdma", NAKS_RECEIVED, "NAKs received for a lost packet"),
    "RNR received": Counter("irdma", RNR_RECEIVED, "RNR NAKs received"),
    "RNR sent": Counter("irdma", RNR_SENT, "RNR NAKs sent"),
    "Rcvd Out of order packets": Counter("irdma", BEYOND, "requests received after a gap"),
    "to_retransmits": Counter("bnxt_re", TIMEOUTS, "timeouts with retransmission"),
    "seq_err_naks_rcvd": Counter("bnxt_re", NAKS_RECEIVED, "NAKs received for a lost packet"),
    "rnr_naks_rcvd": Counter("bnxt_re", RNR_RECEIVED, "RNR NAKs received"),
    "missing_resp": Counter("bnxt_re", READS_AGAIN, "missing READ responses"),
    "dup_req": Counter("bnxt_re", DUPLICATES, "duplicate requests received"),
    "rx_ecn_marked_pkts": Counter("bnxt_re", MARKED_RECEIVED, "CE-marked packets received"),
    "tx_cnp_pkts": Counter("bnxt_re", CNPS_SENT, "CNPs sent"),
    "rx_cnp_pkts": Counter("bnxt_re", CNPS_RECEIVED, "CNPs received"),
    "oos_drop_count": Counter("bnxt_re", BEYOND, "requests dropped after a gap"),
    "rx_roce_only_pkts": Counter("bnxt_re", PACKETS_RECEIVED, "RoCE packets received"),
    "tx_roce_only_pkts": Counter("bnxt_re", PACKETS_SENT, "RoCE packets sent"),
}


_MAX_BYTES = 16 << 20
_COLON = re.compile(r"^\s*(?:\S*/)?([A-Za-z][\w. \-\[\]]*?)\s*[:=]\s*(\d+)\s*$")
"""`name: 12` of ethtool, `/sys/class/infiniband/.../name:12` of grep."""
_PAIRS = re.compile(r"([A-Za-z_]\w*(?: [A-Za-z_]\w*)*) (\d+)(?=\s|$)")
"""`link mlx5_0/1 name 12 name 34` of rdma statistic; irdma has names of several words."""


def read_counters(path: Path) -> dict[str, int]:
    """Counters by name, summed over ports.

    Formats: the output of `ethtool -S`, of `rdma statistic show link`, plain or as JSON (-j), lines
    `name value`, the output of `grep . .../hw_counters/*`, and a copy of such a folder.
    UnreadableInput when it holds no counter.
    """
    if path.is_dir():
        counts: dict[str, int] = {}
        for file in sorted(p for p in path.iterdir() if p.is_file()):
            text = _text(file).strip()
            if text.isdecimal():
                counts[file.name] = int(text)
    else:
        counts = _parse(_text(path))
    if not counts:
        raise UnreadableInput(
            f"{path}: no counter in it; save ethtool -S, rdma statistic or grep . hw_counters/*"
        )
    return counts


def growth(before: Path, after: Path) -> dict[str, int]:
    """Growth of each counter that both files have; UnreadableInput without a common counter."""
    first, second = read_counters(before), read_counters(after)
    both = {name: second[name] - first[name] for name in second if name in first}
    if not both:
        raise UnreadableInput(f"{before} and {after} have no counter in common")
    if all(value <= 0 for value in both.values()) and any(both.values()):
        raise UnreadableInput(f"{before} was saved after {after}: swap the two files")
    return both


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except OSError as error:
        raise UnreadableInput(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _parse(text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    if text.lstrip()[:1] in ("[", "{"):
        try:
            _walk_json(json.loads(text), counts)
        except ValueError:
            return {}
        return counts
    for line in text.splitlines():
        match = _COLON.match(line)
        if match is not None:
            _add(counts, match[1], int(match[2]))
            continue
        body = line.partition("/")[2].partition(" ")[2] if line.startswith("link ") else line
        for name, value in _PAIRS.findall(body):
            _add(counts, name, int(value))
    return counts


def _walk_json(node: Any, counts: dict[str, int]) -> None:
    """Every number with a name; ports and indices are not counters."""
    if isinstance(node, list):
        for item in node:
            _walk_json(item, counts)
    elif isinstance(node, dict):
        for name, value in node.items():
            if isinstance(value, dict | list):
                _walk_json(value, counts)
            elif isinstance(value, int) and name not in ("port", "ifindex", "qpn"):
                _add(counts, name, value)


def _add(counts: dict[str, int], name: str, value: int) -> None:
    counts[name] = counts.get(name, 0) + value


_SENT = frozenset((PACKETS_SENT, NAKS_SENT, RNR_SENT, CNPS_SENT))
_JUDGED = frozenset((TIMEOUTS, REWINDS, READS_AGAIN))


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
            captured[DAMAGED_RECEIVED] = damaged
        checks.append([_beside(counters.host, tap.tap, *check, captured) for check in known])
    return max(checks, key=lambda of_tap: sum(check.agrees is True for check in of_tap))


def _packets_of(tap: TapCounts, host: int) -> int:
    flows = tap.flows
    return int(flows["packets"][(flows["src"] == host) | (flows["dst"] == host)].sum())


def _captured(tap: TapCounts, host: int) -> dict[str, int]:
    """All quantities of a host at a tap."""
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
        PACKETS_SENT: total(flows["packets"], sent),
        PACKETS_RECEIVED: total(flows["packets"], received),
        NAKS_SENT: total(states["naks"], answers),
        NAKS_RECEIVED: total(states["naks"], asks),
        RNR_SENT: total(states["rnr_naks"], answers),
        RNR_RECEIVED: total(states["rnr_naks"], asks),
        TIMEOUTS: total(rewinds[:, BY_TIMEOUT], asks),
        REWINDS: total(rewinds.sum(axis=1), asks),
        READS_AGAIN: total(rewinds[:, BY_READ], asks),
        DUPLICATES: total(states["duplicates"], answers),
        BEYOND: total(states["beyond"], answers),
        CNPS_SENT: total(flows["cnps"], sent),
        CNPS_RECEIVED: total(flows["cnps"], received),
        MARKED_RECEIVED: total(flows["ecn_marked"], received),
        READS_RECEIVED: total(flows["read_requests"], received),
        WRITES_RECEIVED: requests("WRITE_FIRST", "WRITE_ONLY", "WRITE_ONLY_IMM"),
        SENDS_RECEIVED: requests("SEND_FIRST", "SEND_ONLY", "SEND_ONLY_IMM", "SEND_ONLY_INV"),
        ATOMICS_RECEIVED: requests("COMPARE_SWAP", "FETCH_ADD"),
    }


def _beside(host: str, tap: str, name: str, grew: int, captured: dict[str, int]) -> CounterCheck:
    counter = COUNTERS[name]
    seen = captured.get(counter.quantity)
    text = ""
    if seen is None:
        text = AS_DAMAGED
    elif seen != grew and counter.quantity != DAMAGED_RECEIVED:
        if counter.quantity in _JUDGED:
            text = AS_JUDGED
        else:
            text = AS_SENT if counter.quantity in _SENT else AS_RECEIVED
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
