"""A process that may no longer make files has another one make them, in one folder."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from processes import status_of_threads
from waiting import until

from rocescope.analyzer.errors import RocescopeError
from rocescope.probes import file_maker, replacement
from rocescope.probes.file_maker import FileMaker, maker_for
from rocescope.probes.file_maker_process import Making, Use
from rocescope.report.whole_file import made_by, whole_file

from .conftest import CSV

# A process that may no longer make files has another one make them, in one folder.

NOBODY = 65534


@pytest.mark.usefixtures("root")
def test_files_of_a_series(maker, tmp_path):
    path = tmp_path / "a.csv"
    descriptor = maker.create(path)
    os.write(descriptor, b"new")
    os.close(descriptor)
    assert path.read_bytes() == b"new"
    maker.remove(path)
    assert not path.exists()


@pytest.mark.usefixtures("root")
def test_the_end_of_a_service_is_left_to_the_asking_side(maker, tmp_path):
    """systemd sends SIGTERM to every process; the files of the end are still to be made."""
    os.kill(maker._process.pid, signal.SIGTERM)
    os.close(maker.create(tmp_path / "a.csv"))
    assert maker._process.poll() is None


@pytest.mark.usefixtures("root")
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


@pytest.mark.usefixtures("root")
def test_a_file_that_came_meanwhile_is_not_replaced(later, tmp_path):
    path = tmp_path / "a.csv"
    with made_by(later), pytest.raises(RocescopeError, match="file exists"):
        with whole_file(path) as file:
            file.write(b"new")
            path.write_bytes(b"mine")
    assert path.read_bytes() == b"mine" and os.listdir(tmp_path) == ["a.csv"]


@pytest.mark.usefixtures("root")
def test_a_folder_below_is_not_its_own(named, tmp_path):
    assert named.covers(tmp_path / "a.csv") and not named.covers(tmp_path / "sub" / "a.csv")


@pytest.mark.usefixtures("root")
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


@pytest.mark.usefixtures("root")
def test_a_device_is_written_directly():
    with FileMaker(Path("/dev"), "full|null", Use.NAMED) as maker, made_by(maker):
        with whole_file(Path("/dev/null")) as file:
            file.write(b"x")
        with (
            pytest.raises(RocescopeError, match="no space left"),
            whole_file(Path("/dev/full")) as f,
        ):
            f.write(b"x")


@pytest.mark.usefixtures("root")
def test_its_end_is_said(maker, tmp_path):
    maker._process.kill()
    maker._process.wait()
    with pytest.raises(RocescopeError, match="has ended"):
        maker.create(tmp_path / "b.csv")


@pytest.mark.usefixtures("root")
def test_a_folder_that_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(RocescopeError, match="cannot write to .*no such file"):
        FileMaker(tmp_path / "missing", CSV, Use.NAMED)


@pytest.mark.usefixtures("root")
def test_it_is_started_only_where_the_user_cannot_write(monkeypatch):
    monkeypatch.setattr(file_maker, "FileMaker", lambda *_: "started")
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        assert maker_for(Path(folder), CSV, Use.NAMED) is None
        os.chmod(folder, 0o755)
        assert maker_for(Path(folder), CSV, Use.NAMED) == "started"


@pytest.mark.usefixtures("root")
def test_what_it_is_told_is_plain_json(maker, tmp_path):
    """A file name that is not UTF-8 comes through."""
    path = tmp_path / os.fsdecode(b"\xff.csv")
    os.close(maker.create(path))
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff.csv"]
    assert json.dumps(path.name).isascii()


# What the process that makes files refuses: its requests may come from an attacker.


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        "a.txt",
        "../a.csv",
        "/etc/a.csv",
        "sub/../a.csv",
        "sub/a.csv",
        "link/a.csv",
        "link.csv",
        "",
        "a.csv\0",
        ".",
    ],
)
def test_what_is_not_allowed_is_not_made(maker, named, later, tmp_path, name):
    """The asking process reads packets: it may be in the hands of an attacker."""
    outside = tmp_path.parent / "outside"
    outside.mkdir(exist_ok=True)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "link.csv").symlink_to(outside / "target.csv")
    for asked in (maker, named, later):
        for what in ("create", "remove") if asked is maker else ("begin",):
            if asked is named and name == "link.csv":
                continue  # it is replaced, not followed
            with pytest.raises(OSError):
                asked._ask(what, name)
    assert (
        os.listdir(outside) == os.listdir(tmp_path / "sub") == []
        and not (tmp_path.parent / "a.csv").exists()
    )
    os.close(maker.create(tmp_path / "b.csv"))  # it answers on


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"x",
        b"[]",
        b'["keep", 7]',
        b'["create", {}]',
        b"1",
        pytest.param(b"[" * 30_000, id="nested"),
    ],
)
def test_what_makes_no_sense_is_refused(maker, tmp_path, message):
    if message:
        maker._channel.send(message)
        with pytest.raises(OSError):
            maker._answer()
    os.close(maker.create(tmp_path / "b.csv"))


@pytest.mark.usefixtures("root")
def test_only_files_that_it_made_are_removed(maker, tmp_path):
    mine = tmp_path / "mine.csv"
    mine.write_bytes(b"mine")
    with pytest.raises(PermissionError):
        maker.remove(mine)
    with pytest.raises(FileExistsError):
        maker.create(mine)
    with pytest.raises(PermissionError):  # it did not become one of its files
        maker.remove(mine)
    assert mine.read_bytes() == b"mine"


@pytest.mark.usefixtures("root")
def test_a_maker_of_exports_knows_no_files_of_a_series(named, later, tmp_path):
    for maker in (named, later):
        with pytest.raises(OSError):
            maker.create(tmp_path / "a.csv")
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("root")
def test_hidden_names_go_when_an_answer_reaches_nobody(tmp_path, monkeypatch):
    """A file system without nameless files, and a process that ends while it waits for one."""
    monkeypatch.setattr(replacement.Replacement, "_nameless", lambda _: -1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    ours.send(b'["begin", "a.csv"]')
    ours.shutdown(socket.SHUT_RD)
    with ours, theirs, pytest.raises(BrokenPipeError):
        Making(folder, CSV, Use.NEW).serve(theirs)
    os.close(folder)
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("root")
def test_unfinished_files_are_few(named, tmp_path):
    maker = named
    files = [maker.replacement(tmp_path / f"{i}.csv") for i in range(64)]
    with pytest.raises(OSError):
        maker.replacement(tmp_path / "more.csv")
    for file in files:
        file.close()
    maker.replacement(tmp_path / "more.csv").close()
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("root")
def test_it_may_only_write(maker):
    for status in status_of_threads(maker._process.pid):
        assert status.kept == {"CAP_DAC_OVERRIDE"} and status.no_new_privileges


@pytest.mark.usefixtures("root")
def test_it_ends_with_the_process_that_asks_and_leaves_nothing(tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from rocescope.probes.file_maker import FileMaker\n"
        "from rocescope.probes.file_maker_process import Use\n"
        "maker = FileMaker(Path(sys.argv[1]), '.+', Use.NEW)\n"
        "new = maker.replacement(Path(sys.argv[1], 'x'))\n"
        "print(maker._process.pid, flush=True); input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate()
    until(lambda: not Path(f"/proc/{pid}/exe").exists())
    assert os.listdir(tmp_path) == []
