"""A file that takes its name when it is complete.

Until then it has no name (O_TMPFILE, open(2)), so that nothing stays of a killed process. File
systems without nameless files, such as NFS, give it a hidden name, which a kill leaves behind.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

_NO_NAMELESS_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
_DESCRIPTORS = "/proc/self/fd"


class Replacement:
    """A new file in a folder, to be written through `descriptor`.

    folder: a descriptor, which `close` closes. OSError if the file cannot be made.
    """

    def __init__(self, name: str, folder: int) -> None:
        self._name, self._folder = name, folder
        self._hidden: str | None = None
        """Its name until it is complete, if it has one."""
        try:
            self.descriptor = self._nameless()
            if self.descriptor < 0:
                self._hidden = _hidden_name()
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                self.descriptor = os.open(self._hidden, flags, 0o600, dir_fd=folder)
        except BaseException:
            os.close(folder)
            raise

    def _nameless(self) -> int:
        """A descriptor; -1 if the file system has no nameless files."""
        if not os.path.isdir(_DESCRIPTORS):
            return -1
        try:
            return os.open(".", os.O_WRONLY | os.O_TMPFILE, 0o600, dir_fd=self._folder)
        except OSError as error:
            if error.errno not in _NO_NAMELESS_FILES:
                raise
            return -1

    def keep(self, *, new: bool = False) -> None:
        """Write everything to the disk and take the name, in place of an older file.

        new: FileExistsError if there is an older file.
        """
        os.fchmod(self.descriptor, self._mode())
        os.fsync(self.descriptor)
        if self._hidden is None:
            try:
                self._link(self._name)
                return
            except FileExistsError:  # only a rename replaces a file
                if new:
                    raise
                hidden = _hidden_name()
                self._link(hidden)
                self._hidden = hidden
        elif new:  # not every file system has links: an empty file claims the name
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            os.close(os.open(self._name, flags, 0o600, dir_fd=self._folder))
        os.replace(self._hidden, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._hidden = None

    def close(self) -> None:
        """Close the file, and remove it if it was not kept."""
        if self._hidden is not None:
            with suppress(OSError):
                os.unlink(self._hidden, dir_fd=self._folder)
            self._hidden = None
        os.close(self.descriptor)
        os.close(self._folder)

    def _link(self, name: str) -> None:
        # A folder's descriptor makes Python call linkat(2), which follows the link in /proc.
        source, folder = f"{_DESCRIPTORS}/{self.descriptor}", self._folder
        os.link(source, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True)

    def _mode(self) -> int:
        """The permissions of the file to replace, or those of a new file."""
        with suppress(OSError):
            return os.stat(self._name, dir_fd=self._folder).st_mode & 0o777
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _hidden_name() -> str:
    return f".rocescope-{os.urandom(8).hex()}"
