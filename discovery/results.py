"""What a discovery found: devices, links, answers and findings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ..analyzer.results.base import Record, about
from ..analyzer.saved_file import decoded
from ..replay.results import SCHEMA_VERSION

# What was asked of devices, when, and with what outcome: `asked.json` in a folder of answers.

ASKED = "asked.json"
_UnixTime = Annotated[int, Meta(ge=0, le=(1 << 63) - 1, description="Unix time")]


class AskedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command."""

    suffix: Annotated[str, about("the answer is in the file NAME.SUFFIX")]
    command: str
    began_ns: _UnixTime
    ended_ns: _UnixTime
    output_bytes: Annotated[int, Meta(ge=0)]
    problem: Annotated[str, about("why there is no complete answer; empty: there is")]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One device."""

    dialect: str
    kind: Literal["switch", "host"]
    ssh: Annotated[str, about("host in ssh_config")]
    answers: list[AskedCommand] = []
    problem: Annotated[str, about("why it was not asked; empty: it was")] = ""

    def problem_of(self, suffix: str) -> str:
        """Why a question has no complete answer; empty if it has one or was not asked."""
        return next((said.problem for said in self.answers if said.suffix == suffix), self.problem)

    def time_ns(self, suffix: str) -> int | None:
        """The Unix time at which a command ended."""
        return next((said.ended_ns for said in self.answers if said.suffix == suffix), None)


def write_asked(folder: Path, asked: Mapping[str, Asked]) -> None:
    """Write `asked.json`; the old one stays until the new one is complete."""
    new = folder / f"{ASKED}.new"
    new.write_bytes(msgspec.json.format(msgspec.json.encode(asked)) + b"\n")
    new.replace(folder / ASKED)


def read_asked(folder: Path) -> dict[str, Asked]:
    """The devices of `asked.json` by name; none without the file. UsageError names the file."""
    return decoded(folder / ASKED, dict[str, Asked], "a list of asked devices", b"") or {}


class Command(Record, frozen=True, kw_only=True):
    """One command on a device, the evidence of what is known of it."""

    command: str
    file: Annotated[str, about("with the answer, in the folder of --raw")]
    time: Annotated[str, about("when it ended, ISO 8601, by the clock of this computer")]
    output_bytes: int
    problem: Annotated[str | None, about("null: the answer is complete")]


class AskedDevice(Record, frozen=True, kw_only=True):
    """One device whose answers were read."""

    name: str
    kind: Annotated[str, about("switch or host")]
    dialect: str
    hash: Annotated[str | None, about("hash policy and seed; null: a host")]
    not_read: Annotated[list[str], about("what is unknown: no answer in the folder")]
    commands: Annotated[list[Command], about("empty: the folder does not state it")] = []


class DiscoveredLink(Record, frozen=True, kw_only=True):
    """A two-way link."""

    name: str
    ports: Annotated[list[str], about("of both ends; empty for an unknown port")]
    evidence: Annotated[str, about("sources that show the link, strongest first")]


class HostQueuePair(Record, frozen=True, kw_only=True):
    """A queue pair of a host."""

    host: str
    device: Annotated[str, about("RDMA device, such as mlx5_0")]
    local_qp: int
    remote_qp: Annotated[int | None, about("null: not connected")]
    type: str
    state: str
    pid: Annotated[int | None, about("null: of the kernel, or hidden")]
    command: str | None
    inferred_peer: Annotated[
        str | None, about("host of the remote queue pair, by its number alone; null: unknown")
    ]
    inferred_udp_source_port: Annotated[
        int | None, about("Linux's formula; the application may have set another")
    ]


class Remark(Record, frozen=True, kw_only=True):
    """A finding, a contradiction, or something that the fabric does not represent."""

    kind: str
    device: Annotated[str, about("empty: several devices")]
    text: str


class Discovery(Record, frozen=True, kw_only=True):
    """A fabric that was read from its devices."""

    version: str
    source: str
    hosts: int
    switches: int
    devices: list[AskedDevice]
    switches_without_tables: Annotated[list[str], about("shortest paths are assumed there")]
    links: list[DiscoveredLink]
    remarks: list[Remark]
    queue_pairs: Annotated[list[HostQueuePair], about("of asked hosts")] = []
    schema_version: str = SCHEMA_VERSION
