"""The plan of an analysis in tasks: captures, options and the partition of every packet."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, ip_address

import msgspec
import numpy as np
from msgspec.structs import asdict, replace

from ..analyzer.capture.stored import StoredObject, is_stored
from ..analyzer.decode.mrc import FlowLabelOf
from ..analyzer.errors import UnreadableInput, UsageError
from ..analyzer.pipeline.captures import group_files, open_sources
from ..analyzer.pipeline.options import AnalyzeOptions
from ..analyzer.summary.names import PathBy, PlaneBy
from ..analyzer.wire.packets import I64, U32
from ..analyzer.wire.registry import Registry, UsidFormat
from ..analyzer.wire.taps import Tap
from .work import Work, allow_open_files, read_record, write_record

# The partition of every packet: a hash of its unordered pair of hosts.


class Partitions:
    """Partitions by host pair; the same for every capture that numbers its addresses."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._hashes = np.zeros(0, np.uint64)

    def see(self, addresses: Sequence[str]) -> None:
        """Learn the addresses that were added."""
        new = [_hash_of(address) for address in addresses[len(self._hashes) :]]
        self._hashes = np.concatenate([self._hashes, np.array(new, np.uint64)])

    def of(self, src: U32, dst: U32) -> I64:
        """int64[rows]: the partition of pairs of address numbers."""
        mixed = self._hashes[src] + self._hashes[dst]  # modulo 2^64, the same in both directions
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        partitions: I64 = (mixed % np.uint64(self.count)).astype(np.int64)
        return partitions


def _hash_of(address: str) -> int:
    """64 bits of a digest; an IPv4 address and its RoCE GID are one endpoint."""
    parsed = ip_address(address)
    value = int(parsed) | (0xFFFF << 32 if isinstance(parsed, IPv4Address) else 0)
    digest = hashlib.blake2b(value.to_bytes(16, "big"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


MOST_PARTITIONS = 4096


class PlannedFile(msgspec.Struct, frozen=True):
    """One file and what it was when the plan was made."""

    name: bytes
    """Its path, which may be any bytes, or the address of an object."""
    size_bytes: int
    changed_ns: int
    """Of a file; 0 of an object in a store."""
    tag: str = ""
    """Of an object, see `StoredObject`."""

    @property
    def path(self) -> str:
        """As it is opened."""
        return os.fsdecode(self.name)


class PlannedSource(msgspec.Struct, frozen=True):
    """One task of stage map: a capture, or the files of a rotated series."""

    files: list[PlannedFile]
    taps_before: int
    """Taps of the captures before it that are known when all are opened."""

    @property
    def bytes(self) -> int:
        """Bytes of its files."""
        return sum(file.size_bytes for file in self.files)


class PlannedOptions(msgspec.Struct, frozen=True):
    """Options of the analysis that tasks need, see `AnalyzeOptions`."""

    path_by: PathBy
    window_ns: int
    filter: str | None
    concat: bool
    tap_names: Mapping[bytes, str]
    rings: str | None
    udp_ports: tuple[int, ...]
    icrc: bool
    link_rate_bits_per_second: int | None
    max_flows: int
    flow_label: FlowLabelOf
    usid: tuple[int, int]


class Plan(msgspec.Struct, frozen=True):
    """All that the tasks agree on."""

    begun_in: bytes
    """Paths of files are relative to this folder."""
    sources: list[PlannedSource]
    partitions: int
    taps: list[Tap]
    """Taps that are known when all captures are opened, without their frames."""
    many_taps: bool
    options: PlannedOptions

    @property
    def folder(self) -> str:
        """The folder to which paths are relative."""
        return os.fsdecode(self.begun_in)

    def place(self, file: PlannedFile) -> str:
        """Its path or address in any working folder."""
        return file.path if is_stored(file.path) else os.path.join(self.folder, file.path)

    @property
    def digest(self) -> str:
        """Tells the results of its tasks from those of another plan."""
        return hashlib.blake2b(msgspec.msgpack.encode(self), digest_size=16).hexdigest()


def analyze_options(plan: Plan) -> AnalyzeOptions:
    """The options as the analysis takes them."""
    known = asdict(plan.options)
    names = {os.fsdecode(path): name for path, name in plan.options.tap_names.items()}
    return AnalyzeOptions(**known | {"usid": UsidFormat(*plan.options.usid), "tap_names": names})


def make_plan(paths: Sequence[str], options: AnalyzeOptions, partitions: int) -> Plan:
    """Look at the captures. UnreadableInput as `analyze`, UsageError for what tasks cannot do."""
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise UsageError(f"{partitions} partitions: give 1 to {MOST_PARTITIONS}")
    _check(paths, options)
    registry = Registry()
    planned: list[PlannedSource] = []
    formats: set[str] = set()
    for group in group_files(paths, options):
        before = len(registry.taps)
        with open_sources(group, options, registry) as sources:
            formats |= {source.capture.format for source in sources}
        planned.append(PlannedSource([_file(path) for path in group], before))
    allow_open_files(partitions, len(planned))
    taps = list(registry.taps.items)
    known = {name: getattr(options, name) for name in PlannedOptions.__struct_fields__}
    tap_names = {os.fsencode(path): name for path, name in options.tap_names.items()}
    return Plan(
        begun_in=os.getcwdb(),
        sources=planned,
        partitions=partitions,
        taps=taps,
        many_taps=len(taps) > 1 or formats != {"pcap"},
        options=PlannedOptions(**known | {"tap_names": tap_names}),
    )


def _check(paths: Sequence[str], options: AnalyzeOptions) -> None:
    """UsageError for what no task computes: states of it cross host pairs."""
    if not paths:
        raise UsageError("no capture is given: name one or more files")
    for path in paths:
        if path == "-" or (os.path.exists(path) and not os.path.isfile(path)):
            raise UsageError(f"{path} is not a file: tasks read files, and may read them again")
    refused = {
        "--follow": options.follow,
        "--conformance": options.conformance is not None,
        "--nccl-log": bool(options.job_logs),
        "--clock hardware, --mirror-format and --drop-duplicates": options.mirror is not None,
        "--plane-by": options.plane_by != PlaneBy(),
        "--trimmed-dscp": bool(options.trimmed_dscps),
        "--idle-after": options.idle_ns is not None,
        "the ranks of a job": options.ranks is not None,
    }
    for name, given in refused.items():
        if given:
            raise UsageError(f"{name} cannot be combined with tasks: use analyze without --cluster")
    if options.filter is not None:
        from ..analyzer.filtering.compiler import Filter

        field = Filter(options.filter).of_job
        if field is not None:
            raise UsageError(
                f"filter: {field} needs the ranks of a job: use analyze without --cluster"
            )


def _file(path: str) -> PlannedFile:
    if is_stored(path):
        with StoredObject(path) as stored:
            return PlannedFile(os.fsencode(path), stored.size, 0, stored.tag)
    status = os.stat(path)
    return PlannedFile(os.fsencode(path), status.st_size, status.st_mtime_ns)


def check_unchanged(plan: Plan, source: PlannedSource) -> None:
    """UsageError if a file is not what it was for the plan, UnreadableInput if it is gone."""
    for file in source.files:
        try:
            current = _file(plan.place(file))
        except OSError as error:
            raise UnreadableInput(f"{file.path}: {(error.strerror or '').lower()}") from None
        if replace(current, name=file.name) != file:
            raise UsageError(f"{file.path} changed after the plan was made: plan again")


def write_plan(work: Work, plan: Plan) -> None:
    """Store the plan of a folder. UsageError if it holds another one."""
    work.make()
    path = work.path("plan")
    if not write_record(path, plan) and read_record(path, Plan) != plan:
        raise UsageError(
            f"--work {work.folder} holds another analysis (other captures, options or"
            " partitions): give another folder, or remove it"
        )


def read_plan(work: Work) -> Plan:
    """The plan of a folder, whose files this process may then open; UsageError without one."""
    work.check()
    if not os.path.exists(work.path("plan")):
        raise UsageError(f"--work {work.folder} has no plan: rocescope cluster plan makes it")
    plan = read_record(work.path("plan"), Plan)
    allow_open_files(plan.partitions, len(plan.sources))
    return plan
