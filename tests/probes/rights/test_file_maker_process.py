"""What the process that makes files refuses: its requests may come from an attacker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import status_of_threads
from waiting import until

from rocescope.probes.rights.file_maker import FileMaker

pytestmark = pytest.mark.usefixtures("root")

CSV = r".+\.csv"


@pytest.fixture
def maker(tmp_path):
    with FileMaker(tmp_path, CSV) as maker:
        yield maker


@pytest.mark.parametrize(
    "name",
    [
        "a.txt",
        "../a.csv",
        "/etc/a.csv",
        "sub/../a.csv",
        "link/a.csv",
        "link.csv",
        "",
        "a.csv\0",
        ".",
    ],
)
def test_what_is_not_allowed_is_not_made(maker, tmp_path, name):
    """The asking process reads packets: it may be in the hands of an attacker."""
    outside = tmp_path.parent / "outside"
    outside.mkdir(exist_ok=True)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "link.csv").symlink_to(outside / "target.csv")
    for what in ("create", "begin", "remove"):
        with pytest.raises(OSError):
            maker._ask(what, name)
    assert os.listdir(outside) == [] and not (tmp_path.parent / "a.csv").exists()
    os.close(maker.create(tmp_path / "b.csv"))  # it answers on


@pytest.mark.parametrize("message", [b"", b"x", b"[]", b'["keep", 7]', b'["begin", {}]', b"1"])
def test_what_makes_no_sense_is_refused(maker, tmp_path, message):
    if message:
        maker._channel.send(message)
        with pytest.raises(OSError):
            maker._answer()
    os.close(maker.create(tmp_path / "b.csv"))


def test_only_files_that_it_made_are_removed(maker, tmp_path):
    mine = tmp_path / "mine.csv"
    mine.touch()
    with pytest.raises(PermissionError):
        maker.remove(mine)
    assert mine.exists()


def test_unfinished_files_are_few(maker, tmp_path):
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
        "from rocescope.probes.rights.file_maker import FileMaker\n"
        "maker = FileMaker(Path(sys.argv[1]), '.+')\n"
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
