"""Pairs flows as the two directions of a connection."""

from __future__ import annotations

import numpy as np

from ..measures.measuring import Measuring
from ..results.flow import Connection
from ..track import state as st
from ..track.pairing import service_name
from ..track.tracker import FlowTracker
from ..wire.opcodes import TRANSPORT_NAMES


def connections(
    measuring: Measuring, addresses: list[str]
) -> tuple[dict[int, int], list[Connection]]:
    """The connection of each flow that has a partner, by flow index; and the connections."""
    t = measuring.tracker
    of: dict[int, int] = {}
    found: list[Connection] = []
    services = t.find(measuring.cm.services)
    service_of = {services[key]: measuring.cm.services[key] for key in services}
    for f in np.flatnonzero(t.flows["peer"] >= 0).tolist():
        g = int(t.flows[f]["peer"])
        if g < f:
            continue
        one, other = t.flows[f], t.flows[g]
        evidence = int(one["evidence"] | other["evidence"])
        service = service_of.get(f, service_of.get(g))
        of[f] = of[g] = len(found)
        found.append(
            Connection(
                id=len(found),
                flows=[f, g],
                a=addresses[one["src"]],
                a_qp=int(other["dest_qp"]),
                b=addresses[one["dst"]],
                b_qp=int(one["dest_qp"]),
                transport=TRANSPORT_NAMES[one["transport"]],
                evidence=[name for bit, name in st.EVIDENCE_NAMES if evidence & bit],
                path_mtu=int(max(one["path_mtu"], other["path_mtu"])) or None,
                service=None if service is None else service_name(service),
                read_responses_missing=_responses_missing(t, f, g),
            )
        )
    return of, found


def _responses_missing(tracker: FlowTracker, f: int, g: int) -> int | None:
    """PSNs of READ responses between the two flows that were never seen; None without READs."""
    if not tracker.flows[f]["read_requests"] + tracker.flows[g]["read_requests"]:
        return None
    return int(tracker.missing(f, st.RESPONSES)[0] + tracker.missing(g, st.RESPONSES)[0])
