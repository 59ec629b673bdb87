"""The pacing scope that explains the CNPs of a tap."""

from __future__ import annotations

import numpy as np

from ..measures.conformance.cnp import PORT, SCOPE_NAMES, CnpPacing
from ..results.conformance import CnpConformance, CnpScope


def cnp_conformance(pacing: CnpPacing, tap: str) -> CnpConformance:
    """CE marks and CNPs of one tap, in every scope."""
    scopes = [_scope(name, pacing.scopes[at]) for at, name in enumerate(SCOPE_NAMES)]
    marks = int(pacing.scopes[PORT]["marks"].sum())
    cnps = int(pacing.scopes[PORT]["cnps"].sum())
    explained: list[str] = []
    causes = int(pacing.scopes[PORT]["expected"].sum())
    if not marks and not cnps:
        text = "no CE marks and no CNPs"
    elif not cnps:
        text = (
            f"{marks:,} CE-marked packets and no CNPs: the receivers do not notify"
            " (optional), or the CNPs take another path"
        )
    elif not causes:
        text = f"{cnps:,} CNPs and no CE marks: the tap is before the switch that marks"
    else:
        least = min(scope.difference for scope in scopes)
        explained = [s.scope for s in scopes if s.difference == least and not s.too_close]
        best = " and ".join(explained).replace("_", " ")
        text = (
            f"paced per {best}: {least:,} CNPs differ from what the marks should cause"
            if explained
            else "CNPs are closer than the minimum interval in the best matching scope"
        )
    return CnpConformance(
        tap=tap,
        min_interval_ns=pacing.interval_ns,
        ecn_marked_packets=marks,
        cnps=cnps,
        scopes=scopes,
        explained_by=explained,
        text=text,
    )


def _scope(name: str, found: np.ndarray) -> CnpScope:
    active = found[(found["expected"] > 0) | (found["cnps"] > 0)]
    several = active[active["cnps"] > 1]
    return CnpScope(
        scope=name,
        notifiers=len(active),
        expected_cnps=int(active["expected"].sum()),
        difference=int(np.abs(active["expected"] - active["cnps"]).sum()),
        too_close=int(active["close"].sum()),
        least_spacing_ns=int(several["least"].min()) if len(several) else None,
    )
