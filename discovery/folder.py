"""A folder with the raw answers of devices: `NAME.route.json`, `NAME.lldp.json` and so on.

`asked.json`, which a collection writes, shows the dialect of each device and what became of each
command; answers of devices that it does not name are older, and left out. In a folder that people
made, files show the dialect: a device with `NAME.frr-route.json` speaks frr.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..analyzer.capture.rings import natural
from ..analyzer.errors import RocescopeError, UsageError
from ..analyzer.saved_file import MAX_BYTES
from ..analyzer.words import printable
from ..replay.fabrics.devices import Device
from ..replay.fabrics.fabric import Address, Network, parse_address
from .dialects.dialect import Dialect, Question
from .dialects.linux import SUFFIX, installed_of
from .dialects.registry import DIALECTS
from .results import ASKED, Asked, read_asked
from .ssh import TOO_MUCH

NO_ANSWER = "no answer"
UNREADABLE = "unreadable"
NOT_ASKED = "not asked"
"""Kinds of devices without a place in the fabric."""
_NAMED = 5
"""Devices named in an error."""
UNEXPECTED = "unexpected answer"
"""Kind of a remark on one answer; the rest of the device is read."""


class Answers(NamedTuple):
    """The answers of one device."""

    device: Device
    dialect: Dialect
    missing: tuple[Question, ...]
    """Questions without an answer in the folder."""
    installed: dict[Network, frozenset[str]]
    """Of frr: the ports of next hops that FRR calls installed."""
    asked: Asked | None = None
    """When and how it was asked; None: the folder does not tell."""


class Unread(NamedTuple):
    """A device whose answers are not read."""

    name: str
    kind: str
    """NO_ANSWER, UNREADABLE or NOT_ASKED."""
    reason: str


def read_folder(folder: Path, most_bytes: int = MAX_BYTES) -> tuple[list[Answers], list[Unread]]:
    """The answers of all devices of a folder, by name, and the devices that are not read.

    most_bytes: of an answer; one of more is not read. RocescopeError if no device answered,
    UsageError if no answer can be read.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder with answers of devices")
    asked = read_asked(folder)
    answers: list[Answers] = []
    unread: list[Unread] = []
    marks = {dialect.mark for dialect in DIALECTS.values()}
    names = {f.name.removesuffix(f".{m}") for m in marks for f in folder.glob(f"*.{m}")}
    for name in sorted({*asked, *names}, key=natural):
        entry = asked.get(name)
        if asked and entry is None:
            unread.append(Unread(name, NOT_ASKED, f"{ASKED} does not name it: left out"))
            continue
        if entry is not None and entry.problem:
            unread.append(Unread(name, NO_ANSWER, entry.problem))
            continue
        try:
            answers.append(_answers(folder, name, entry, most_bytes))
        except UsageError as error:
            unread.append(Unread(name, UNREADABLE, str(error)))
    if not answers and unread and all(entry.kind == NO_ANSWER for entry in unread):
        said = "; ".join(f"{entry.name}: {entry.reason}" for entry in unread[:_NAMED])
        more = f"; and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
        raise RocescopeError(f"no device answered: {said}{more}")
    if not answers:
        reasons = "".join(f"; {entry.name}: {entry.reason}" for entry in unread[:1])
        raise UsageError(
            f"{folder} has no readable NAME.route.json{reasons}; rocescope discover "
            "--commands linux lists what to save there"
        )
    return answers, unread


def _answered(file: Path) -> bool:
    """Whether a question was answered; `lldpctl` that fails leaves an empty file."""
    return file.exists() and not (file.name.endswith(".lldp.json") and file.stat().st_size == 0)


def _answers(folder: Path, name: str, asked: Asked | None, most_bytes: int) -> Answers:
    dialect = _dialect(folder, name, asked)
    questions = dialect.questions_for(asked.kind if asked is not None else "switch")
    instead = {q.instead_of: q for q in questions}
    facts = [q for q in questions if not q.counts and not q.instead_of]
    missing = tuple(
        q
        for q in facts
        if not any(
            _answered(folder / f"{name}.{use.suffix}") for use in (q, instead.get(q.suffix, q))
        )
    )
    for question in missing:
        if question.suffix == dialect.needed:
            reason = asked.problem_of(question.suffix) if asked is not None else ""
            raise UsageError(f"`{question.command}`: {reason or 'no answer'}")
    device = dialect.read(folder, name, most_bytes)
    if asked is not None:
        cut = [a for a in asked.answers if a.problem.endswith(TOO_MUCH)]
        texts = (printable(f"`{a.command}`: {a.problem} (--max-answer): not used") for a in cut)
        device = replace(device, unexpected=(*device.unexpected, *texts))
    of_frr = any(q.suffix == SUFFIX for q in questions)
    installed: dict[Network, frozenset[str]] = {}
    try:
        installed = installed_of(folder / f"{name}.{SUFFIX}") if of_frr else {}
    except UsageError as error:
        text = printable(str(error).removeprefix(f"{folder}/"))
        device = replace(device, unexpected=(*device.unexpected, text))
    if asked is not None:
        device = replace(device, kind=asked.kind, asked_at=_address(asked.ssh))
    elif not dialect.of_hosts:
        device = replace(device, kind="switch")
    return Answers(device, dialect, missing, installed, asked)


def _address(ssh: str) -> Address | None:
    """The address that the inventory has in place of a host of ssh_config."""
    try:
        return parse_address(ssh.rpartition("@")[2])
    except ValueError:
        return None


def _dialect(folder: Path, name: str, asked: Asked | None) -> Dialect:
    if asked is not None:
        if asked.dialect not in DIALECTS:
            raise UsageError(f"unknown dialect {asked.dialect!r}")
        return DIALECTS[asked.dialect]
    marked = [d for d in DIALECTS.values() if (folder / f"{name}.{d.mark}").exists()]
    return marked[-1]
