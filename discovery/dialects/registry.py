"""All dialects by name; in a folder without `asked.json` the last whose mark is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..port_counters import SUFFIX, Bytes, Port, read_counters
from .dialect import Dialect
from .eos import EOS
from .junos import JUNOS
from .linux import CUMULUS, FRR, LINUX
from .nxos import NXOS
from .sonic import SONIC
from .vrp import VRP

DIALECTS: Mapping[str, Dialect] = {
    d.name: d for d in (LINUX, FRR, SONIC, CUMULUS, EOS, NXOS, JUNOS, VRP)
}


def read_all_counters(folder: Path) -> dict[Port, Bytes]:
    """The byte counters of ports in the answers of a folder, of all dialects that have them.

    UsageError without such an answer, and for one that is not as documented.
    """
    counters: dict[Port, Bytes] = {}
    for dialect in DIALECTS.values():
        if dialect.counters is not None:
            suffix, read = dialect.counters
            for file in sorted(folder.glob(f"*.{suffix}")) if folder.is_dir() else ():
                counters |= read(folder, file.name.removesuffix(f".{suffix}"), suffix)
    if counters and not any(folder.glob(f"*.{SUFFIX}")):
        return counters
    return counters | read_counters(folder)
