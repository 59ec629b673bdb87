"""Results of `discover`. Field names are the names of the JSON output."""

from __future__ import annotations

from typing import Annotated

from ..analyzer.results.base import Record, about
from ..replay.results.base import SCHEMA_VERSION


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
