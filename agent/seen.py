"""Where the agent sees packets, and where it is blind and says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .adapters import Adapter
from .results import Blind

NOT_ATTACHED, ADAPTER, GONE = "not_attached", "adapter_bypass", "interface_gone"
UNKNOWN = "adapter_unknown"
_SENTENCES = {
    NOT_ATTACHED: "no probes are attached",
    ADAPTER: "the RDMA adapter moves RoCE past the kernel, where probes do not see it",
    UNKNOWN: (
        "no RoCE packet was seen, and whether an RDMA adapter moves RoCE past the kernel is"
        " unknown: adapters are not looked up in other network namespaces"
    ),
    GONE: "the interface has disappeared or lost its probes; restart the agent",
}


@dataclass(slots=True)
class Bypass:
    """Whether adapters move packets of an interface past the probes, by growth between looks."""

    found: bool = False
    _counted: int = 0
    _moved: dict[str, int] = field(default_factory=dict)

    def look(self, counted: int, moved: Mapping[str, int]) -> None:
        """Compare what has grown since the last look.

        counted: RoCE packets that probes have counted. moved: packets of each adapter other than
        Soft-RoCE by its own counters, in the directions of the probes. An adapter that copies RoCE
        to the kernel shows as many as it moves.
        """
        grown = sum(
            max(0, n - self._moved[name]) for name, n in moved.items() if name in self._moved
        )
        seen = counted - self._counted
        if grown or seen:
            self.found = 2 * seen < grown
        self._counted, self._moved = counted, dict(moved)


def blind_because(
    attached: bool, gone: bool, adapters: Sequence[Adapter] | None, counted: int, bypassed: bool
) -> str | None:
    """Why the packets of an interface are not seen; None: they are.

    adapters: of the interface; None: unknown. counted: RoCE packets that probes have counted.
    bypassed: `Bypass.found`.
    """
    if not attached:
        return NOT_ATTACHED
    if gone:
        return GONE
    if adapters is None:
        return None if counted else UNKNOWN
    hardware = any(not adapter.is_software for adapter in adapters)
    return ADAPTER if hardware and (bypassed or not counted) else None


def blind(interface: str, reason: str) -> Blind:
    """The record of an interface whose packets are not seen."""
    return Blind(interface=interface, reason=reason, sentence=_SENTENCES[reason])


def placed(text: str, namespace: str | None) -> tuple[str, str | None]:
    """Name and network namespace of an interface as the user gave it."""
    where, _, name = text.rpartition(":")
    return name, where or namespace
