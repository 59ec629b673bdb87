"""What the process that makes files refuses: its requests may come from an attacker."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from processes import status_of_threads
from waiting import until

from rocescope.probes import replacement
from rocescope.probes.file_maker_process import Making, Use

from .rights.conftest import CSV

pytestmark = pytest.mark.usefixtures("root")


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


def test_a_maker_of_exports_knows_no_files_of_a_series(named, later, tmp_path):
    for maker in (named, later):
        with pytest.raises(OSError):
            maker.create(tmp_path / "a.csv")
    assert os.listdir(tmp_path) == []


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


def test_unfinished_files_are_few(named, tmp_path):
    maker = named
    files = [maker.replacement(tmp_path / f"{i}.csv") for i in range(64)]
    with pytest.raises(OSError):
        maker.replacement(tmp_path / "more.csv")
    for file in files:
        file.close()
    maker.replacement(tmp_path / "more.csv").close()
    assert os.listdir(tmp_path) == []


def test_it_may_only_write(maker):
    for status in status_of_threads(maker._process.pid):
        assert status.kept == {"CAP_DAC_OVERRIDE"} and status.no_new_privileges


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
