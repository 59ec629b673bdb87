"""The traffic of a fabric: captures and how their addresses map to hosts, or a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..table import Parameter
from .taps import Naming, check_uncombined

if TYPE_CHECKING:
    from ...replay.compare.request import ReplayRequest


@dataclass(frozen=True)
class Mapped:
    """How captures are read and mapped to hosts.

    Parameters
    ----------
    map
        How addresses of the capture map to hosts: exact, order, subnets, or a YAML file.
    filter
        Only packets that pass this filter, in Wireshark syntax, see docs/filter.md.
    concat
        The files are parts of one rotated capture; without this option each file is a vantage point
        (tap).
    """

    map: str = "exact"
    filter: str | None = None
    concat: Annotated[bool, Parameter(show_default=False)] = False


@dataclass(frozen=True)
class Offered(Naming, Mapped):
    """Captured or generated traffic.

    Parameters
    ----------
    pattern
        Generated traffic in place of captures: permutation:qps=4,message-size=1MiB,acks=no.
    """

    pattern: str | None = None

    def request(self, fabric: str, files: Sequence[Path], **options: Any) -> ReplayRequest:
        """The request of a replay with this traffic. UsageError as `Naming.captures`."""
        from ...replay.compare.request import ReplayRequest

        captures, tap_names = self.captures(files, none_needed=True)
        check_uncombined(tap_names, self.concat)
        return ReplayRequest(
            fabric,
            captures=tuple(captures),
            pattern=self.pattern or "",
            tap_names=tap_names,
            ethers=self.addresses(),
            map=self.map,
            filter=self.filter,
            concat=self.concat,
            **options,
        )


@dataclass(frozen=True)
class Captured(Naming, Mapped):
    """Captured traffic on the hosts of a fabric."""


MAPPED, OFFERED, CAPTURED = Mapped(), Offered(), Captured()
