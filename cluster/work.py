"""The folder of an analysis in tasks: its files appear complete or not at all.

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..analyzer.diagnosis.words import counted
from ..analyzer.errors import RocescopeError, UnreadableInput, UsageError
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

FORMAT = 4
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
