"""A process that may no longer make files has another one make them, in one folder."""

import json
import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rocescope.analyzer.errors import RocescopeError
from rocescope.probes import file_maker
from rocescope.probes.file_maker import FileMaker, maker_for
from rocescope.probes.file_maker_process import Use
from rocescope.report.whole_file import made_by, whole_file

from .rights.conftest import CSV

pytestmark = pytest.mark.usefixtures("root")

NOBODY = 65534


def test_files_of_a_series(maker, tmp_path):
    path = tmp_path / "a.csv"
    descriptor = maker.create(path)
    os.write(descriptor, b"new")
    os.close(descriptor)
    assert path.read_bytes() == b"new"
    maker.remove(path)
    assert not path.exists()


def test_the_end_of_a_service_is_left_to_the_asking_side(maker, tmp_path):
    """systemd sends SIGTERM to every process; the files of the end are still to be made."""
    os.kill(maker._process.pid, signal.SIGTERM)
    os.close(maker.create(tmp_path / "a.csv"))
    assert maker._process.poll() is None


def test_what_is_named_later_replaces_only_what_was_made_here(later, tmp_path):
    """A file that was changed since counts as another one."""
    mine, path = tmp_path / "mine.csv", tmp_path / "a.csv"
    mine.write_bytes(b"mine")
    with made_by(later):
        with pytest.raises(RocescopeError, match="file exists; .*choose another name"):
            with whole_file(mine):
                pytest.fail("it is refused before anything is written")
        for data in (b"first", b"second"):
            with whole_file(path) as file:
                file.write(data)
            assert path.read_bytes() == data
        path.write_bytes(b"mine")
        with pytest.raises(RocescopeError, match="file exists"), whole_file(path) as file:
            file.write(b"third")
    assert (mine.read_bytes(), path.read_bytes()) == (b"mine", b"mine")
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "mine.csv"]


def test_a_file_that_came_meanwhile_is_not_replaced(later, tmp_path):
    path = tmp_path / "a.csv"
    with made_by(later), pytest.raises(RocescopeError, match="file exists"):
        with whole_file(path) as file:
            file.write(b"new")
            path.write_bytes(b"mine")
    assert path.read_bytes() == b"mine" and os.listdir(tmp_path) == ["a.csv"]


def test_a_folder_below_is_not_its_own(named, tmp_path):
    assert named.covers(tmp_path / "a.csv") and not named.covers(tmp_path / "sub" / "a.csv")


def test_whole_files(named, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    with made_by(named):
        with pytest.raises(ValueError), whole_file(path) as file:
            file.write(b"half")
            raise ValueError
        assert path.read_bytes() == b"old"
        with whole_file(path) as file:
            file.write(b"new" * 100_000)
            file.flush()
            assert path.read_bytes() == b"old"
        assert path.read_bytes() == b"new" * 100_000
    assert os.listdir(tmp_path) == ["a.csv"]


def test_a_device_is_written_directly():
    with FileMaker(Path("/dev"), "full|null", Use.NAMED) as maker, made_by(maker):
        with whole_file(Path("/dev/null")) as file:
            file.write(b"x")
        with (
            pytest.raises(RocescopeError, match="no space left"),
            whole_file(Path("/dev/full")) as f,
        ):
            f.write(b"x")


def test_its_end_is_said(maker, tmp_path):
    maker._process.kill()
    maker._process.wait()
    with pytest.raises(RocescopeError, match="has ended"):
        maker.create(tmp_path / "b.csv")


def test_a_folder_that_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(RocescopeError, match="cannot write to .*no such file"):
        FileMaker(tmp_path / "missing", CSV, Use.NAMED)


def test_it_is_started_only_where_the_user_cannot_write(monkeypatch):
    monkeypatch.setattr(file_maker, "FileMaker", lambda *_: "started")
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        assert maker_for(Path(folder), CSV, Use.NAMED) is None
        os.chmod(folder, 0o755)
        assert maker_for(Path(folder), CSV, Use.NAMED) == "started"


def test_what_it_is_told_is_plain_json(maker, tmp_path):
    """A file name that is not UTF-8 comes through."""
    path = tmp_path / os.fsdecode(b"\xff.csv")
    os.close(maker.create(path))
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff.csv"]
    assert json.dumps(path.name).isascii()
