"""Queue pairs as iproute2 prints them, and as rocescope agent tells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rocescope.agent.findings import QueuePairCounts, QueuePairs


def entry(lqpn: int, rqpn: int, **other: Any) -> dict[str, Any]:
    """As iproute2 prints it (rdma/res-qp.c)."""
    return {
        "ifindex": 0, "ifname": "mlx5_0", "port": 1, "lqpn": lqpn, "rqpn": rqpn, "type": "RC",
        "state": "RTS", "rq-psn": 0, "sq-psn": 0, "path-mig-state": "MIGRATED", "pid": 7,
        "comm": "python",
    } | other  # fmt: skip


def of_agent(entries: Sequence[dict[str, Any]], known: int | None = None, why: str = "") -> bytes:
    """The answer of rocescope's agent with the same queue pairs; known, why: what it lacks."""
    pairs = [
        QueuePairCounts(
            adapter=one["ifname"], port=one["port"], qp=one["lqpn"], remote_qp=one["rqpn"] or None,
            type=one["type"], state=one["state"], pid=one["pid"], command=one["comm"], counters={},
            counted_with=0,
        )
        for one in entries
    ]  # fmt: skip
    return msgspec.json.encode(
        QueuePairs(
            time_ns=1,
            known=len(pairs) if known is None else known,
            unknown_because=why or None,
            counters_unknown_because=None,
            queue_pairs=pairs,
        )
    )
