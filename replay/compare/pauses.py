"""The conditions of a packet-level run, and its pauses of PFC as results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Ints
from ..fabrics.fabric import Fabric
from ..packets.failures import DOWN, Failures, rho_max
from ..packets.hosts.transport import Transport
from ..packets.model.model import PS, EngineResult, Model, Workload
from ..packets.model.queueing import PauseOutcome
from ..results import PausedPort, PausedPriority, PauseSummary
from .request import NEVER
from .specs import RHO_MAX, parse_failures, parse_transport

# Conditions of a packet replay: how hosts send, failures, convergence of routing.


@dataclass(frozen=True)
class Conditions:
    """The same for all strategies; random failures are drawn again in every run."""

    transport: Transport = field(default_factory=Transport)
    at_rho_max: bool = False
    """Hosts send at the rate that the fabric can carry after all failures."""
    failures: Callable[[int], Failures] | None = None
    """The failures in the run of this seed."""
    told: tuple[str, ...] = ()
    """The failures in words, for the report."""

    def of_run(
        self, workload: Workload, fabric: Fabric, seed: int
    ) -> tuple[Transport, Failures | None]:
        """The conditions of the run with this seed."""
        failures = None if self.failures is None else self.failures(seed)
        if not self.at_rho_max:
            return self.transport, failures
        events = failures.events if failures is not None else ()
        after = fabric.down([event.link for event in events if event.what == DOWN])
        share = rho_max(after, workload.src, workload.dst)
        return replace(self.transport, rate_share=max(0.01, share)), failures

    def described(self) -> dict[str, str]:
        """All conditions that were set, as option values, and always the recovery."""
        told = self.transport.described()
        if self.at_rho_max:
            told["rate"] = RHO_MAX
        if self.told:
            told["fail"] = " ".join(self.told)
        if self.failures is not None:
            g = self.failures(0).convergence_ps
            told["converge"] = NEVER if g is None else f"{g / 1e6:g}us" if g else "0"
        return told


def parse_conditions(
    transport: str, fail: Sequence[str], converge: str, fabric: Fabric
) -> Conditions:
    """The conditions of all runs, from the three options. UsageError names the option."""
    # Failures lose packets: without recovery no run would complete.
    sending = parse_transport(transport or ("recovery=ideal" if fail else ""))
    if not fail:
        if converge != NEVER:
            raise UsageError("--converge needs --fail")
        return Conditions(sending, f"rate={RHO_MAX}" in transport)

    def failures(seed: int) -> Failures:
        return parse_failures(fail, converge, fabric, seed)

    failures(0)  # report mistakes before captures are read
    return Conditions(sending, f"rate={RHO_MAX}" in transport, failures, tuple(fail))


def pause_summary(
    results: Sequence[EngineResult], fabric: Fabric, model: Model
) -> PauseSummary | None:
    """The record of the runs of a strategy; None without PFC."""
    runs = [result.pauses for result in results if result.pauses is not None]
    if not runs:
        return None
    first, locked = runs[0], [one.deadlock for one in runs if one.deadlock and not one.may_pass]
    roots = first.roots.reshape(-1, len(first.classes)).sum(1)
    causes = np.argsort(-roots, kind="stable")[: np.count_nonzero(roots)]
    ports = _ports(first, fabric)
    return PauseSummary(
        pauses=sum(int(one.pauses.sum()) for one in runs),
        paused_ns=sum(int(one.paused_ps.sum()) for one in runs) // PS,
        lost_without_headroom=sum(int(one.no_room.sum()) for one in runs),
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


def _settings(one: PauseOutcome, model: Model) -> dict[str, str]:
    """The keys of `--lossless pfc` with the values in force, in bytes and nanoseconds."""
    pfc = model.pfc
    assert pfc is not None
    told = {"buffer": _range(one.buffers)}
    if pfc.xoff_bytes is None:
        told["alpha"] = f"{pfc.alpha:g}"
    else:
        told["xoff"] = str(pfc.xoff_bytes)
    told |= {"xon": str(one.xon_bytes), "headroom": _range(one.headroom)}
    told["reaction"] = f"{pfc.reaction_ps / PS:g}ns"
    if pfc.quanta is not None:
        told["quanta"] = str(pfc.quanta)
    told["storm"] = f"{pfc.storm_ps / (1000 * PS):g}us"
    return told


def _range(values: Ints) -> str:
    """`26000`, or `26000 to 104000`, of those that are not 0."""
    used = values[values > 0]
    if not len(used):
        return "0"
    least, most = int(used.min()), int(used.max())
    return str(least) if least == most else f"{least} to {most}"


def _priority(runs: Sequence[PauseOutcome], number: int, name: str) -> PausedPriority:
    def total(column: str) -> int:
        return sum(int(getattr(one, column)[number :: len(one.classes)].sum()) for one in runs)

    return PausedPriority(
        priority=name,
        pauses=total("pauses"),
        paused_ns=total("paused_ps") // PS,
        frames=total("frames"),
        lost_without_headroom=total("no_room"),
    )


def _ports(one: PauseOutcome, fabric: Fabric) -> list[PausedPort]:
    classes = len(one.classes)
    order = np.argsort(-one.paused_ps, kind="stable")
    return [
        PausedPort(
            port=fabric.link_name(row // classes),
            layer=fabric.layers[int(fabric.links.layer[row // classes])],
            priority=one.classes[row % classes],
            frames=int(one.frames[row]),
            storm_ns=int(one.storm_ps[row]) // PS if one.storm_ps[row] >= 0 else None,
            pauses=int(one.pauses[row]),
            paused_ns=int(one.paused_ps[row]) // PS,
            longest_ns=int(one.longest_ps[row]) // PS,
            endless=bool(one.endless[row]),
            victims=None if one.victims is None else int(one.victims[row]),
        )
        for row in order.tolist()
        if one.pauses[row]
    ]


def pause_notes(result: EngineResult, fabric: Fabric) -> list[str]:
    """A headroom that is too small for its cable, in words."""
    one = result.pauses
    if one is None or not (one.headroom < one.needed).any():
        return []
    short = np.flatnonzero(one.headroom < one.needed)
    worst = int(short[np.argmax((one.needed - one.headroom)[short])])
    classes = len(one.classes)
    ports = len(np.unique(short // classes))
    return [
        f"headroom={int(one.headroom[worst]):,} B is too small for "
        f"{fabric.link_name(worst // classes)}, which needs {int(one.needed[worst]):,} B: "
        f"packets can be lost; {ports:,} ports are short"
    ]


def circle_text(ports: Sequence[str]) -> str:
    """`a>b waits for b>c waits for a>b`."""
    return " waits for ".join([*ports, *ports[:1]])
