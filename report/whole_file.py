"""Results that appear complete or not at all: one file, or a folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..analyzer.errors import RocescopeError
from ..analyzer.results.analysis import Analysis
from ..analyzer.results.flow import Flow
from ..analyzer.results.hops import Hop
from ..probes.replacement import Replacement
from .files import encode, encode_json, versions

if TYPE_CHECKING:
    from ..probes.file_maker import FileMaker, MadeReplacement
    from .files.tables import ParquetRecords


_MAKERS: list[FileMaker] = []
"""Processes that make the files in their folders; this process may not."""


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that gets its name only when all data is on disk.

    A device or pipe is written directly. RocescopeError when it cannot be written.
    """
    try:
        if path.is_dir():
            raise RocescopeError(f"cannot write {path}: it is a folder, give a file name")
        maker = next((maker for maker in _MAKERS if maker.covers(path)), None)
        if maker is not None:
            with _kept(maker.replacement(path)) as file:
                yield file
        elif path.exists() and not path.is_file():
            with path.open("wb") as device:
                yield device
        else:
            path = target(path)
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
            with _kept(Replacement(path.name, folder)) as file:
                yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if isinstance(error, PermissionError) and _MAKERS:
            reason += f"; root's rights are kept only to write in {_MAKERS[0].folder}"
        if isinstance(error, FileExistsError) and _MAKERS:
            reason += "; root's rights are kept only to make new files: choose another name"
        raise RocescopeError(f"cannot write {path}: {reason}") from None


@contextmanager
def made_by(maker: FileMaker | None) -> Iterator[None]:
    """Within it, `whole_file` leaves the files in the folder of this maker to it."""
    makers = [maker] if maker is not None else []
    _MAKERS.extend(makers)
    try:
        yield
    finally:
        for known in makers:
            _MAKERS.remove(known)


@contextmanager
def _kept(new: Replacement | MadeReplacement) -> Iterator[BinaryIO]:
    try:
        with os.fdopen(new.descriptor, "wb", closefd=False) as file:
            yield file
        new.keep()
    finally:
        new.close()


def target(path: Path) -> Path:
    """The file behind a link, which keeps pointing to it.

    The kernel follows the link. In a folder like /tmp links of others are refused, as most kernels
    do (fs.protected_symlinks).
    """
    if not path.is_symlink():
        return path
    link, folder = path.lstat(), path.parent.stat()
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if shared and link.st_uid not in (os.geteuid(), folder.st_uid):
        raise PermissionError(errno.EACCES, "a link of another user in a world-writable folder")
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        return Path(os.readlink(f"/proc/self/fd/{handle}"))
    finally:
        os.close(handle)


# The results of an analysis as a folder, for what does not fit into one file.

SUMMARY, LISTED, ENDED, HOPS = (
    "summary.json",
    "flows/0.parquet",
    "flows/ended.parquet",
    "hops.parquet",
)


class OutFolder:
    """Collects the results of one analysis."""

    def __init__(self, folder: Path, spill: ExitStack) -> None:
        self._folder, self._spill = folder, spill
        self._rows: ParquetRecords | None = None

    def ended(self, flows: Iterable[Flow]) -> None:
        """Write the rows of flows that leave memory."""
        from .files.tables import ParquetRecords, flow_columns

        if self._rows is None:
            file = self._spill.enter_context(whole_file(self._folder / ENDED))
            self._rows = rows = ParquetRecords(file, flow_columns(), versions())
            self._spill.push(lambda *_: _give_up(rows))
        self._rows.write(flows)

    def write(self, analysis: Analysis, top: int = 20, sort: bool = False) -> None:
        """Write the result. top, sort: of the tables of the report."""
        from .files.tables import encode_records, record_columns
        from .html.documents import analysis_html

        with ExitStack() as files:  # they get their names in reverse order
            files.enter_context(whole_file(self._folder / SUMMARY)).write(encode_json(analysis))
            contents = {
                LISTED: encode(analysis, "parquet"),
                HOPS: encode_records(record_columns(Hop), analysis.hops, "parquet"),
                "findings.json": encode_json(analysis.diagnosis),
                "report.html": analysis_html(analysis, top, sort),
            }
            for name, data in contents.items():
                files.enter_context(whole_file(self._folder / name)).write(data)
            if self._rows is None:
                (self._folder / ENDED).unlink(missing_ok=True)
            else:
                self._rows.close()
            self._spill.close()


def _give_up(rows: ParquetRecords) -> None:
    with suppress(OSError):
        rows.close()


@contextmanager
def out_folder(folder: Path) -> Iterator[OutFolder]:
    """A folder of results: `summary.json` (all that `--format json` has), `findings.json`,
    `flows/0.parquet`, `hops.parquet` and `report.html`; with flows removed from
    memory, their rows as `flows/ended.parquet`.

    The files get their names when all are written, `summary.json` last. RocescopeError if they
    cannot be written.
    """
    try:
        (folder / "flows").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RocescopeError(f"cannot write {folder}: {reason}") from None
    with ExitStack() as spill:
        yield OutFolder(folder, spill)
