"""Options for capturing on interfaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from ...analyzer.errors import UsageError
from ...analyzer.units import parse_duration, parse_size
from .parameter import Parameter
from .reading import Selection

if TYPE_CHECKING:
    from ...probes.live import LiveOptions

IDLE_AFTER = "60s"
"""Default of --idle-after."""
Hook: TypeAlias = Literal["tc", "xdp", "xdp-generic", "clsact"]


@dataclass(frozen=True)
class Capturing:
    """How probes capture.

    Parameters
    ----------
    netns
        Network namespace of the interfaces: a name of `ip netns`, a path, or pid:N.
    hook
        tc sees both directions; xdp sees only received packets, at the highest rates.
    snaplen
        Bytes kept of each frame; encapsulated frames keep 256.
    ring
        Size of the buffer between kernel and program for each CPU, for example 64MiB. Default: 64
        MiB for all CPUs together; 16 MiB each for more than four, at most 512 MiB together.
    """

    netns: str | None = None
    hook: Hook = "tc"
    snaplen: Annotated[int, Parameter(alias="-s")] = 96
    ring: str | None = None

    def options(self, selection: Selection, sample: int = 1) -> LiveOptions:
        """These options with a selection; sample: one packet in N of each flow."""
        from ...probes.live import LiveOptions

        return LiveOptions(
            hook=self.hook,
            namespace=self.netns,
            snap_bytes=self.snaplen,
            ring_bytes=parse_size(self.ring, "--ring") if self.ring else None,
            udp_ports=selection.udp_ports,
            sample=sample,
            filter=selection.filter,
        )


@dataclass(frozen=True)
class Until:
    """When a capture ends.

    Parameters
    ----------
    duration
        End after this time, for example 10s.
    count
        End after this many packets.
    """

    duration: str | None = None
    count: Annotated[int | None, Parameter(alias="-c")] = None

    @property
    def seconds(self) -> float | None:
        """The duration. UsageError also for a count below 1."""
        if self.count is not None and self.count < 1:
            raise UsageError("--count must be 1 or more")
        return parse_duration(self.duration, "--duration") / 1e9 if self.duration else None


CAPTURING, UNTIL = Capturing(), Until()
