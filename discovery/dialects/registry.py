"""All dialects by name, and the byte counters of ports: in the answers of a folder, or asked now.

In a folder without `asked.json` the last dialect whose mark is there counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ...analyzer.errors import UsageError
from ...analyzer.words import printable
from ..asking import Request, Run
from ..port_counters import COMMAND, SUFFIX, Bytes, Port, parse_counters, read_counters
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


def read_counters_now(
    run: Run, dialects: Mapping[str, Dialect], devices: Sequence[str]
) -> tuple[dict[Port, Bytes], list[str]]:
    """The counters of all ports, and a line for each device that told none."""
    asked = [(name, *question) for name in devices if (question := _question(dialects.get(name)))]
    silent = [
        f"port counters: {name}: not a device whose counters are read"
        for name in devices
        if name not in {entry[0] for entry in asked}
    ]
    said = run([Request(name, command) for name, command, _ in asked])
    counters: dict[Port, Bytes] = {}
    for (name, command, parse), entry in zip(asked, said, strict=True):
        try:
            if entry.problem:
                raise UsageError(f"`{command}`: {entry.problem}")
            counters |= parse(name, entry.output)
        except UsageError as error:
            silent.append(printable(f"port counters: {name}: {error}"))
    return counters, silent


_Parse = Callable[[str, bytes], dict[Port, Bytes]]


def _question(dialect: Dialect | None) -> tuple[str, _Parse] | None:
    """The command for the counters of a device, and what reads its answer."""
    if dialect is None:
        return None
    for question in dialect.questions:
        if question.counts:
            return question.command, _counters
        if dialect.counters is not None and question.suffix == dialect.counters[0]:
            return question.command, _from_file(*dialect.counters)
    return None


def _counters(name: str, answer: bytes) -> dict[Port, Bytes]:
    return parse_counters(name, answer, f"`{COMMAND}`")


def _from_file(suffix: str, read: Callable[[Path, str, str], dict[Port, Bytes]]) -> _Parse:
    def parse(name: str, answer: bytes) -> dict[Port, Bytes]:
        with TemporaryDirectory(prefix="rocescope-") as temporary:
            (Path(temporary) / f"{name}.{suffix}").write_bytes(answer)
            return read(Path(temporary), name, suffix)

    return parse
