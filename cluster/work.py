"""The folder of an analysis in tasks: its plan, and files that appear complete or not at all.

Kernels trust the indices in the state they work on, so only this user and root may be able to write
to the folder; its records and its state carry digests, its rows the checksums of Parquet.
"""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, ip_address
from typing import Any, BinaryIO, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import asdict, replace

from ..analyzer.capture.stored import StoredObject, is_stored
from ..analyzer.decode.mrc import FlowLabelOf
from ..analyzer.diagnosis.finding import counted
from ..analyzer.errors import RocescopeError, UnreadableInput, UsageError
from ..analyzer.pipeline.captures import group_files, open_sources
from ..analyzer.pipeline.options import AnalyzeOptions
from ..analyzer.summary.names import PathBy, PlaneBy
from ..analyzer.wire.packets import I64, U32
from ..analyzer.wire.registry import Registry, UsidFormat
from ..analyzer.wire.taps import Tap
from ..version import VERSION

# Files that a task has open at once, against the limit of a process.

_OTHERS = 100
"""Files that a process has open besides: libraries, captures, pipes to other processes."""


def allow_open_files(partitions: int, captures: int) -> None:
    """Raise the limit of this process as far as a plan needs; UsageError if that is too far.

    Stage map writes all partitions of a capture. Stage merge reads all partitions of all captures,
    with the verdicts of each partition.
    """
    needed = partitions * (captures + 1) + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise UsageError(
            f"{partitions} partitions of {counted(captures, 'capture')} need {needed} open"
            f" files, the limit here is {hard} (ulimit -Hn): plan fewer partitions"
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


T = TypeVar("T")

FORMAT = 5
"""Of the files; another one is refused."""
_MAGIC = b"rocescope work\n"
_DIGEST_BYTES = 32
_LONGEST_LINE = 200
_RECORDS = {"map": "capture", "reduce": "outline"}
"""The file of each stage's results that names their plan."""


class Work:
    """The folder `--work DIR` of one analysis."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)

    def path(self, *names: str) -> str:
        """A path inside."""
        return os.path.join(self.folder, *names)

    def make(self) -> None:
        """Make the folder; UsageError if others can write to it."""
        with _told(self.folder):
            before = os.umask(0o077)  # also for the folders above, of which `check` asks the same
            try:
                os.makedirs(self.folder, exist_ok=True)
            finally:
                os.umask(before)
        self.check()

    def check(self) -> None:
        """UsageError if the folder is missing, or if another user can write to it or replace it."""
        real_path = os.path.realpath(self.folder)
        if not os.path.isdir(real_path):
            raise UsageError(
                f"there is no folder {self.folder}: rocescope cluster plan --work makes it"
            )
        reason = _why_unsafe(real_path)
        if reason is not None:
            raise UsageError(f"--work {self.folder}: {reason}: state is read from files there")

    def done(self, plan: str, stage: str, number: int) -> bool:
        """Whether a task has left its result; errors as `opened`."""
        if not os.path.exists(self.path(stage, str(number))):
            return False
        with opened(self.path(stage, str(number), _RECORDS[stage]), plan):
            return True

    @contextmanager
    def task(self, *names: str) -> Iterator[str]:
        """A folder to fill; it takes this name at the end, if no other process was faster.

        What a killed process left behind is removed first. RocescopeError if it cannot be written.
        """
        final = self.path(*names)
        parent, name = os.path.split(final)
        # Two processes with the same task never share a folder.
        prefix = f".{name}.{os.uname().nodename}."
        temporary = os.path.join(parent, f"{prefix}{os.getpid()}")
        try:
            with _told(final):
                os.makedirs(parent, mode=0o700, exist_ok=True)
                for entry in os.listdir(parent):
                    process = entry.removeprefix(prefix)
                    if process == entry or not process.isdecimal():
                        continue  # of another task, or of a machine whose name begins as this one's
                    if not _lives(int(process)):
                        shutil.rmtree(os.path.join(parent, entry), ignore_errors=True)
                os.mkdir(temporary, 0o700)
                yield temporary
                try:
                    os.rename(temporary, final)
                except OSError as error:
                    if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                        raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def write_record(path: str, record: msgspec.Struct, plan: str = "") -> bool:
    """Write a record with its digest; the file takes its name at the end, if there is none yet.

    plan: digest of the plan that the record is of. False: there is such a file, and it stays.
    """
    body = msgspec.msgpack.encode(record)
    temporary = f"{path}.{os.uname().nodename}.{os.getpid()}"
    try:
        with _told(path):
            with open(temporary, "wb") as file:
                file.write(record_head(plan) + _digest(body) + body)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            return True
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def read_record(path: str, kind: type[T], plan: str = "") -> T:
    """Read a record; errors as `opened`."""
    with opened(path, plan) as file:
        digest, body = file.read(_DIGEST_BYTES), file.read()
    try:
        if _digest(body) == digest:
            return msgspec.msgpack.decode(body, type=kind)
    except msgspec.DecodeError:
        pass
    raise damaged(path)


def record_head(plan: str) -> bytes:
    """The first lines of every file that tasks exchange; plan: digest of the plan it is of."""
    return _MAGIC + f"{_head()}\nplan {plan}\n".encode()


@contextmanager
def opened(path: str, plan: str) -> Iterator[BinaryIO]:
    """A file that tasks exchange, after its first lines; plan: digest of the plan it must be of.

    UsageError if it is of another version or plan, UnreadableInput if it is missing or damaged.
    """
    try:
        file = open(path, "rb")
    except OSError as error:
        raise damaged(path, (error.strerror or str(error)).lower()) from None
    with file:
        if file.readline(_LONGEST_LINE) != _MAGIC:
            raise damaged(path)
        head = file.readline(_LONGEST_LINE).decode("ascii", "replace").strip()
        if head != _head():
            raise UsageError(
                f"{path} was written by {head!r}, this is {_head()!r}:"
                " use one version for all tasks, or plan again in another folder"
            )
        if file.readline(_LONGEST_LINE) != f"plan {plan}\n".encode():
            raise UsageError(
                f"{path} is of another plan: plan in another folder, or remove the folders of the"
                " tasks (map, reduce)"
            )
        yield file


def damaged(path: str, why: str = "") -> UnreadableInput:
    """The error of a file of a task."""
    reason = f" ({why})" if why else ""
    return UnreadableInput(f"{path} is damaged{reason}: remove its folder, and run its task again")


def _head() -> str:
    return f"rocescope {VERSION}, format {FORMAT}"


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def _lives(process: int) -> bool:
    """Whether another process of this machine lives that may still use its folder."""
    return process != os.getpid() and os.path.exists(f"/proc/{process}")


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Pyarrow's text says more, and the number.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise RocescopeError(f"cannot write {path}: {reason.lower()}") from None


def _why_unsafe(folder: str) -> str | None:
    """Why another user could put files into a folder without links in its path; None if not."""
    path = folder
    while True:
        status = os.lstat(path)
        if status.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user"
        sticky = status.st_mode & stat.S_ISVTX and path != folder
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
            return f"others can write to {path} (chmod go-w)"
        if path == os.path.dirname(path):
            return None
        path = os.path.dirname(path)


# Rows of packet tables in Parquet files, with checksums.

_BUFFERED_ROWS = 1 << 17


class _Writer(pq.ParquetWriter):  # type: ignore[misc]
    def __del__(self) -> None:
        """Nothing: a file that is not complete is of no use, and may fail again on a full disk."""


class ColumnWriter:
    """Writes columns of numpy arrays in pieces; dtypes: of each column."""

    def __init__(self, path: str, dtypes: dict[str, np.dtype[Any]]) -> None:
        schema = pa.schema([(name, pa.from_numpy_dtype(d)) for name, d in dtypes.items()])
        self._schema = schema
        self._file = pa.OSFile(os.fsencode(path), "wb")  # of a text it would take only UTF-8
        self._writer = _Writer(
            self._file,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        )
        self._pending: list[dict[str, Any]] = []
        self._rows = 0

    def write(self, columns: dict[str, Any]) -> None:
        """Add rows; the arrays are kept until they are written."""
        self._pending.append(columns)
        self._rows += len(next(iter(columns.values())))
        if self._rows >= _BUFFERED_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is pending."""
        if self._rows:
            names = self._schema.names
            joined = [np.concatenate([p[name] for p in self._pending]) for name in names]
            table = pa.table([pa.array(column) for column in joined], schema=self._schema)
            self._writer.write_table(table)
        self._pending, self._rows = [], 0

    def close(self) -> None:
        """Complete the file."""
        self.flush()
        self._writer.close()
        self._file.close()

    @property
    def pending_rows(self) -> int:
        """Rows in memory."""
        return self._rows


def read_columns(path: str, batch_rows: int = _BUFFERED_ROWS) -> Iterator[dict[str, Any]]:
    """The columns of a file in pieces; UnreadableInput if it is damaged."""
    try:
        file = pq.ParquetFile(pa.OSFile(os.fsencode(path)), page_checksum_verification=True)
        for batch in file.iter_batches(batch_size=batch_rows):
            yield {
                name: column.to_numpy(zero_copy_only=True)
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
    except (pa.ArrowException, OSError) as error:
        missing = isinstance(error, FileNotFoundError)
        why = "no such file" if missing else str(error).splitlines()[0][:200]
        raise damaged(path, why) from None


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
    ethers: Mapping[int, str]
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
        "--flight-recorder": options.flight_recorder is not None,
        "--nccl-inspector": options.nccl_inspector is not None,
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
