"""Pauses of PFC as results: the ports that paused, storms, deadlocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.kernel import Ints
from ..fabrics.fabric import Fabric
from ..packets.model.model import PS, EngineResult, Model
from ..packets.model.queueing import PauseOutcome
from ..results import PausedPort, PausedPriority, PauseSummary


def pause_summary(
    results: Sequence[EngineResult], fabric: Fabric, model: Model
) -> PauseSummary | None:
    """The record of the runs of a strategy; None without PFC."""
    runs = [result.pauses for result in results if result.pauses is not None]
    if not runs:
        return None
    first, locked = runs[0], [run.deadlock for run in runs if run.deadlock and not run.may_pass]
    roots = first.roots.reshape(-1, len(first.classes)).sum(1)
    causes = np.argsort(-roots, kind="stable")[: np.count_nonzero(roots)]
    ports = _ports(first, fabric)
    return PauseSummary(
        pauses=sum(int(run.pauses.sum()) for run in runs),
        paused_ns=sum(int(run.paused_ps.sum()) for run in runs) // PS,
        lost_without_headroom=sum(int(run.no_room.sum()) for run in runs),
        victim_flows=first.victim_flows,
        causes=[fabric.link_name(link) for link in causes.tolist()],
        ports=ports,
        priorities=[_priority(runs, number, name) for number, name in enumerate(first.classes)],
        storm_after_ns=first.storm_after_ps // PS,
        storms=sorted(
            (port for port in ports if port.storm_ns is not None),
            key=lambda port: port.storm_ns or 0,
        ),
        settings=_settings(first, model),
        deadlocked_runs=len(locked),
        deadlock=[fabric.link_name(link) for link in locked[0]] if locked else [],
    )


def _settings(outcome: PauseOutcome, model: Model) -> dict[str, str]:
    """The keys of `--lossless pfc` with the values in force, in bytes and nanoseconds."""
    pfc = model.pfc
    assert pfc is not None
    settings = {"buffer": _range(outcome.buffers)}
    if pfc.xoff_bytes is None:
        settings["alpha"] = f"{pfc.alpha:g}"
    else:
        settings["xoff"] = str(pfc.xoff_bytes)
    settings |= {"xon": str(outcome.xon_bytes), "headroom": _range(outcome.headroom)}
    settings["reaction"] = f"{pfc.reaction_ps / PS:g}ns"
    if pfc.quanta is not None:
        settings["quanta"] = str(pfc.quanta)
    settings["storm"] = f"{pfc.storm_ps / (1000 * PS):g}us"
    return settings


def _range(values: Ints) -> str:
    """`26000`, or `26000 to 104000`, of those that are not 0."""
    used = values[values > 0]
    if not len(used):
        return "0"
    least, most = int(used.min()), int(used.max())
    return str(least) if least == most else f"{least} to {most}"


def _priority(runs: Sequence[PauseOutcome], number: int, name: str) -> PausedPriority:
    def total(column: str) -> int:
        return sum(int(getattr(run, column)[number :: len(run.classes)].sum()) for run in runs)

    return PausedPriority(
        priority=name,
        pauses=total("pauses"),
        paused_ns=total("paused_ps") // PS,
        frames=total("frames"),
        lost_without_headroom=total("no_room"),
    )


def _ports(outcome: PauseOutcome, fabric: Fabric) -> list[PausedPort]:
    classes = len(outcome.classes)
    order = np.argsort(-outcome.paused_ps, kind="stable")
    return [
        PausedPort(
            port=fabric.link_name(row // classes),
            layer=fabric.layers[int(fabric.links.layer[row // classes])],
            priority=outcome.classes[row % classes],
            frames=int(outcome.frames[row]),
            storm_ns=int(outcome.storm_ps[row]) // PS if outcome.storm_ps[row] >= 0 else None,
            pauses=int(outcome.pauses[row]),
            paused_ns=int(outcome.paused_ps[row]) // PS,
            longest_ns=int(outcome.longest_ps[row]) // PS,
            endless=bool(outcome.endless[row]),
            victims=None if outcome.victims is None else int(outcome.victims[row]),
        )
        for row in order.tolist()
        if outcome.pauses[row]
    ]


def pause_notes(result: EngineResult, fabric: Fabric) -> list[str]:
    """A headroom that is too small for its cable, in words."""
    pauses = result.pauses
    if pauses is None or not (pauses.headroom < pauses.needed).any():
        return []
    short = np.flatnonzero(pauses.headroom < pauses.needed)
    worst = int(short[np.argmax((pauses.needed - pauses.headroom)[short])])
    classes = len(pauses.classes)
    ports = len(np.unique(short // classes))
    return [
        f"headroom={int(pauses.headroom[worst]):,} B is too small for "
        f"{fabric.link_name(worst // classes)}, which needs {int(pauses.needed[worst]):,} B: "
        f"packets can be lost; {ports:,} ports are short"
    ]


def circle_text(ports: Sequence[str]) -> str:
    """`a>b waits for b>c waits for a>b`."""
    return " waits for ".join([*ports, *ports[:1]])
