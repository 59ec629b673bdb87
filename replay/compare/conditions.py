"""Conditions of a packet replay: how hosts send, failures, convergence of routing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ...analyzer.errors import UsageError
from ..fabrics.fabric import Fabric
from ..packets.failures import DOWN, Failures, rho_max
from ..packets.hosts.transport import Transport
from ..packets.model.model import Workload
from .request import NEVER
from .specs import RHO_MAX, parse_failures, parse_transport


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
