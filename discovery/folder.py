"""A folder with the raw answers of devices: `NAME.route.json`, `NAME.lldp.json` and so on.

A device with `NAME.frr-route.json` speaks the dialect frr, any other linux.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..analyzer.errors import UsageError
from ..replay.fabrics.addressing import Network
from ..replay.fabrics.devices.device import Device
from ..replay.fabrics.files.linux_tables import read_device
from .dialects.dialect import Dialect, Question
from .dialects.frr import FRR, SUFFIX, installed_of
from .dialects.linux import LINUX

_NEEDED = "route.json"


class Answers(NamedTuple):
    """The answers of one device."""

    device: Device
    dialect: Dialect
    missing: tuple[Question, ...]
    """Questions without an answer in the folder."""
    installed: dict[Network, frozenset[str]]
    """Of frr: the ports of next hops that FRR calls installed."""


class Unreadable(NamedTuple):
    """A device whose answers cannot be read."""

    name: str
    reason: str


def read_folder(folder: Path) -> tuple[list[Answers], list[Unreadable]]:
    """The answers of all devices of a folder, by name, and the devices that could not be read.

    UsageError if no device can be read.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder with the answers of devices")
    found: list[Answers] = []
    unreadable: list[Unreadable] = []
    for file in sorted(folder.glob(f"*.{_NEEDED}")):
        name = file.name.removesuffix(f".{_NEEDED}")
        try:
            found.append(_answers(folder, name))
        except UsageError as error:
            unreadable.append(Unreadable(name, str(error)))
    if not found:
        reasons = "".join(f"; {one.reason}" for one in unreadable[:1])
        raise UsageError(
            f"{folder} has no readable NAME.{_NEEDED}{reasons}; rocescope discover "
            "--commands linux lists what to save there"
        )
    return found, unreadable


def _answered(file: Path) -> bool:
    """Whether a question was answered; `lldpctl` that fails leaves an empty file."""
    return file.exists() and not (file.name.endswith(".lldp.json") and file.stat().st_size == 0)


def _answers(folder: Path, name: str) -> Answers:
    dialect = FRR if (folder / f"{name}.{SUFFIX}").exists() else LINUX
    missing = tuple(q for q in dialect.questions if not _answered(folder / f"{name}.{q.suffix}"))
    return Answers(
        read_device(folder, name), dialect, missing, installed_of(folder / f"{name}.{SUFFIX}")
    )
