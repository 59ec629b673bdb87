"""A file has no name until it is complete, whatever becomes of its process."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from rocescope.probes import replacement
from rocescope.probes.replacement import Replacement

WRITES_AND_IS_KILLED = """
import os, signal, sys
from rocescope.probes.replacement import Replacement
new = Replacement("out", os.open(sys.argv[1], os.O_PATH | os.O_DIRECTORY))
os.write(new.descriptor, b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def begun(folder, name="out"):
    return Replacement(name, os.open(folder, os.O_PATH | os.O_DIRECTORY))


@pytest.fixture(params=["nameless", "hidden name"])
def file_system(request, monkeypatch):
    """One with nameless files, and one without, such as NFS."""
    if request.param == "hidden name":
        opened = os.open

        def without(path, flags, *rest, **more):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "")
            return opened(path, flags, *rest, **more)

        monkeypatch.setattr(replacement.os, "open", without)


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize("old", [None, b"old"])
def test_it_is_there_whole_or_not_at_all(tmp_path, old):
    path = tmp_path / "out"
    if old is not None:
        path.write_bytes(old)
    new = begun(tmp_path)
    os.write(new.descriptor, b"new")
    assert (path.read_bytes() if path.exists() else None) == old
    new.keep()
    new.close()
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["out"]


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize("old", [None, b"old"])
def test_a_new_file_replaces_no_older_one(tmp_path, old):
    path = tmp_path / "out"
    if old is not None:
        path.write_bytes(old)
    new = begun(tmp_path)
    os.write(new.descriptor, b"new")
    if old is None:
        new.keep(new=True)
    else:
        with pytest.raises(FileExistsError):
            new.keep(new=True)
    new.close()
    assert path.read_bytes() == (old or b"new") and os.listdir(tmp_path) == ["out"]


@pytest.mark.usefixtures("file_system")
def test_what_is_not_kept_leaves_nothing(tmp_path):
    new = begun(tmp_path)
    os.write(new.descriptor, b"half")
    new.close()
    assert os.listdir(tmp_path) == []


def test_a_killed_process_leaves_nothing(tmp_path):
    code = [sys.executable, "-c", WRITES_AND_IS_KILLED, str(tmp_path)]
    assert subprocess.run(code).returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_mask_or_the_older_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        for _ in range(2):
            new = begun(tmp_path)
            new.keep()
            new.close()
            assert (tmp_path / "out").stat().st_mode & 0o777 == 0o666 & ~mask
        (tmp_path / "out").chmod(0o604)
        new = begun(tmp_path)
        new.keep()
        new.close()
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o604


def test_no_descriptor_stays_open(tmp_path):
    before = os.listdir("/proc/self/fd")
    begun(tmp_path).close()
    with pytest.raises(NotADirectoryError):
        (tmp_path / "file").touch()
        Replacement("out", os.open(tmp_path / "file", os.O_PATH))
    assert len(os.listdir("/proc/self/fd")) == len(before)
