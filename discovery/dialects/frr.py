"""FRR on Linux: the kernel's tables, and what FRR believes about them.

FRR's routing table is no substitute for the kernel's: FRR 8.4.4 shows next hops as installed that
the kernel's group has lost.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...analyzer.errors import UsageError
from ...analyzer.saved_file import decoded
from ...replay.fabrics.addressing import Network, parse_network
from .dialect import Question
from .linux import LINUX

SUFFIX = "frr-route.json"
FRR = LINUX._replace(
    name="frr",
    questions=(
        *LINUX.questions,
        Question(SUFFIX, "vtysh -c 'show ip route json'", "FRR's view of the routes", root=True),
    ),
    mark=SUFFIX,
    met="FRR 8.4.4",
)


class _Hop(msgspec.Struct):
    interfaceName: str = ""  # noqa: N815 - FRR's name
    fib: bool = False


class _Entry(msgspec.Struct):
    selected: bool = False
    nexthops: list[_Hop] = []


def installed_of(file: Path) -> dict[Network, frozenset[str]]:
    """The ports of the next hops that FRR calls installed, by network; UsageError names the file.

    A missing or empty file has no routes.
    """
    what = "the output of show ip route json"
    routes = decoded(file, dict[str, list[_Entry]], what) or {}
    try:
        return {
            parse_network(network): frozenset(
                hop.interfaceName
                for entry in entries
                if entry.selected
                for hop in entry.nexthops
                if hop.fib and hop.interfaceName
            )
            for network, entries in routes.items()
        }
    except ValueError as error:
        raise UsageError(f"{file}: not {what}: {error}") from None
