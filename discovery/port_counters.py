"""Byte counters of ports: `ip -j -s link` of a device, and their growth between two readings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from ..analyzer.errors import UsageError
from ..analyzer.saved_file import read_saved

SUFFIX = "link.json"
COMMAND = "ip -j -s link"
MOST_BYTES = 1 << 26
"""Most bytes of an answer."""


class Port(NamedTuple):
    """A port of a device."""

    device: str
    name: str


class Bytes(NamedTuple):
    """Bytes of a port, Ethernet headers included."""

    sent: int
    received: int


Reading = Mapping[Port, Bytes]
"""The counters of all ports at one time."""


class _Count(msgspec.Struct):
    bytes: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class _Stats(msgspec.Struct):
    rx: _Count
    tx: _Count


class _Link(msgspec.Struct):
    ifname: str = ""
    stats64: _Stats | None = None


def parse_counters(device: str, answer: bytes, where: str) -> dict[Port, Bytes]:
    """The counters of one device. UsageError for anything but the output of COMMAND."""
    try:
        links = msgspec.json.decode(answer, type=list[_Link])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: not the output of {COMMAND}: {error}") from None
    return {
        Port(device, link.ifname): Bytes(link.stats64.tx.bytes, link.stats64.rx.bytes)
        for link in links
        if link.ifname and link.stats64 is not None
    }


def read_counters(folder: Path) -> dict[Port, Bytes]:
    """The counters in `NAME.link.json` files of a folder. UsageError without such a file."""
    files = sorted(folder.glob(f"*.{SUFFIX}")) if folder.is_dir() else []
    if not files:
        raise UsageError(f"{folder} has no NAME.{SUFFIX}: save `{COMMAND}` of every switch there")
    counters: dict[Port, Bytes] = {}
    for file in files:
        answer = read_saved(file, MOST_BYTES)
        counters |= parse_counters(file.name.removesuffix(f".{SUFFIX}"), answer, str(file))
    return counters


def growth(before: Reading, after: Reading) -> dict[Port, Bytes]:
    """The bytes between two readings, of ports in both; without ports whose counters shrank."""
    grown = {
        port: Bytes(after[port].sent - old.sent, after[port].received - old.received)
        for port, old in before.items()
        if port in after
    }
    return {port: new for port, new in grown.items() if min(new) >= 0}
