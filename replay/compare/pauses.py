"""Results of PFC: pauses and victims by port, causes, deadlocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..fabrics.fabric import Fabric
from ..packets.model.model import PS, EngineResult
from ..packets.model.pfc import PauseOutcome
from ..results.packets import PausedPort, PauseSummary


def pause_summary(results: Sequence[EngineResult], fabric: Fabric) -> PauseSummary | None:
    """The record of the runs of a strategy; None without PFC."""
    runs = [result.pauses for result in results if result.pauses is not None]
    if not runs:
        return None
    first, locked = runs[0], [one.deadlock for one in runs if one.deadlock and not one.may_pass]
    causes = np.argsort(-first.roots, kind="stable")[: np.count_nonzero(first.roots)]
    return PauseSummary(
        pauses=sum(int(one.pauses.sum()) for one in runs),
        paused_ns=sum(int(one.paused_ps.sum()) for one in runs) // PS,
        lost_without_headroom=sum(int(one.no_room.sum()) for one in runs),
        victim_flows=first.victim_flows,
        causes=[fabric.link_name(link) for link in causes.tolist()],
        ports=_ports(first, fabric),
        deadlocked_runs=len(locked),
        deadlock=[fabric.link_name(link) for link in locked[0]] if locked else [],
    )


def _ports(one: PauseOutcome, fabric: Fabric) -> list[PausedPort]:
    order = np.argsort(-one.paused_ps, kind="stable")
    return [
        PausedPort(
            port=fabric.link_name(link),
            layer=fabric.layers[int(fabric.links.layer[link])],
            pauses=int(one.pauses[link]),
            paused_ns=int(one.paused_ps[link]) // PS,
            longest_ns=int(one.longest_ps[link]) // PS,
            victims=None if one.victims is None else int(one.victims[link]),
        )
        for link in order.tolist()
        if one.pauses[link]
    ]


def pause_notes(result: EngineResult, fabric: Fabric) -> list[str]:
    """A headroom that is too small for its cable, in words."""
    one = result.pauses
    if one is None or not (one.headroom < one.needed).any():
        return []
    short = np.flatnonzero(one.headroom < one.needed)
    worst = int(short[np.argmax((one.needed - one.headroom)[short])])
    return [
        f"headroom={int(one.headroom[worst]):,} B is too small for {fabric.link_name(worst)}, "
        f"which needs {int(one.needed[worst]):,} B: "
        f"packets can be lost; {len(short):,} ports are short"
    ]


def circle_text(ports: Sequence[str]) -> str:
    """`a>b waits for b>c waits for a>b`."""
    return " waits for ".join([*ports, *ports[:1]])
