"""Parameters of the transport at hosts, with their sources.

| parameter | source |
|---|---|
| recovery `ideal` | paper: zero-overhead erasure code; assumed: hosts learn of losses at once |
| reordering threshold 32 (6 for all-to-all) | paper (arXiv 2507.21372, section 8), SACK |
| timeout 70 us | paper (REPS, arXiv 2407.21625); the value of MRC is not public |
| 7 equal timeouts, then doubling | MRC's public API: linear at most 7, then exponential |
| retries | InfiniBand specification, volume 1, 9.9.2: a counter of 0 to 7, reset by progress |
| MPR 1,024 packets | MRC's public API: 8 units of 128 in the examples; default: no limit |
| go-back-N | InfiniBand specification, volume 1: one NAK per gap |
| congestion control NSCC | UET reference simulator, see congestion/nscc.py |
| congestion control DCQCN | paper (SIGCOMM 2015): see congestion/dcqcn.py |
| congestion control Swift | paper (SIGCOMM 2020): see congestion/swift.py |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....analyzer.errors import UsageError
from . import recovery
from .congestion.registry import ALGORITHMS, NONE

RECOVERIES: Final = {
    "none": recovery.NO_RECOVERY,
    "ideal": recovery.IDEAL,
    "sack": recovery.SACK,
    "go-back-n": recovery.GO_BACK_N,
}

MOST_RETRIES: Final = 255


@dataclass(frozen=True)
class Transport:
    """How hosts send. UsageError names an invalid parameter."""

    recovery: str = "none"
    """none, ideal, sack, go-back-n."""
    congestion: str = NONE
    """One of ALGORITHMS; none: line rate."""
    reordering_packets: int = 32
    """SACK: a packet is lost when a packet sent N packets later is acknowledged."""
    rto_ps: int = 70_000_000
    """A packet that is not acknowledged within this time is lost."""
    linear_retries: int = 7
    """Number of consecutive timeouts without doubling; each further timeout doubles the time."""
    retries: int | None = None
    """A flow whose packets time out again after this many consecutive timeouts has failed: it sends
    nothing more, as a queue pair in the error state. None: it continues forever."""
    mpr_packets: int = 0
    """Maximum of packets sent beyond the first unacknowledged packet; 0: no limit."""
    rate_share: float = 1.0
    """Share of the line rate at which a NIC sends data (rho_max)."""

    def __post_init__(self) -> None:
        for name, known in (("recovery", RECOVERIES), ("congestion", ALGORITHMS)):
            if getattr(self, name) not in known:
                raise UsageError(
                    f"{name} must be one of {', '.join(known)}, not {getattr(self, name)}"
                )
        if not 1 <= self.reordering_packets <= 1 << 20:
            raise UsageError(f"reordering_packets must be 1 or more, not {self.reordering_packets}")
        if not 1_000 <= self.rto_ps <= 10**13:
            raise UsageError("rto_ps must be 1 ns to 10 s")
        if not 0 <= self.linear_retries <= 1 << 20:
            raise UsageError(f"linear_retries must be 0 or more, not {self.linear_retries}")
        if self.retries is not None:
            if not 0 <= self.retries <= MOST_RETRIES:
                raise UsageError(f"retries must be 0 to {MOST_RETRIES}, not {self.retries}")
            if self.recovery not in ("sack", "go-back-n"):
                raise UsageError("retries needs recovery=sack or recovery=go-back-n")
        if not 0 <= self.mpr_packets <= 1 << 20:
            raise UsageError(
                f"mpr_packets must be 1 or more, or 0 for no limit, not {self.mpr_packets}"
            )
        if not 0.01 <= self.rate_share <= 1.0:
            raise UsageError(f"rate_share must be 0.01 to 1, not {self.rate_share}")

    def described(self) -> dict[str, str]:
        """The relevant parameters, in the words of `replay --transport`."""
        told = {"recovery": self.recovery}
        if self.congestion != NONE:
            told["congestion"] = self.congestion
        if self.recovery == "sack":
            told["reordering"] = str(self.reordering_packets)
        if self.recovery != "none":
            told["rto"] = f"{self.rto_ps / 1e6:g}us"
        if self.recovery in ("sack", "go-back-n"):
            told["linear"] = str(self.linear_retries)
        if self.retries is not None:
            told["retries"] = str(self.retries)
        if self.mpr_packets:
            told["mpr"] = str(self.mpr_packets)
        if self.rate_share != 1.0:
            told["rate"] = f"{100 * self.rate_share:g}%"
        return told
