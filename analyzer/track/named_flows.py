"""The flows of a tracker with their addresses as texts, for the join with logs and queue pairs."""

from __future__ import annotations

from ...kernels.named import NamedTuple
from ..wire.endpoints import Endpoints
from .tracker import FlowTracker


class NamedFlow(NamedTuple):
    """A flow of the capture."""

    number: int
    src: str
    dst: str
    dest_qp: int
    peer: int
    first_ns: int
    last_ns: int


def named_flows(tracker: FlowTracker, endpoints: Endpoints) -> list[NamedFlow]:
    """The flows of a tracker by their numbers."""
    texts = endpoints.texts()
    return [
        NamedFlow(
            number,
            texts[flow["src"]],
            texts[flow["dst"]],
            int(flow["dest_qp"]),
            int(flow["peer"]),
            int(flow["first_time"]),
            int(flow["last_time"]),
        )
        for number, flow in enumerate(tracker.flows)
    ]
