"""Machine code is kept where only its user can write, and under digests that miss nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

import pytest
from examples import first

from rocescope.kernels import cache as kernel_cache


def test_old_folders_of_others_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NUMBA_CACHE_DIR may be any folder: only our own part of it is cleaned."""
    theirs, ours = tmp_path / "project", tmp_path / "rocescope" / "0123"
    for folder in (theirs, ours):
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    base = kernel_cache.cache_base.__wrapped__()
    assert base == str(tmp_path / "rocescope")
    kernel_cache.remove_unused(base)
    assert theirs.exists() and not ours.exists()


def test_machine_code_is_never_taken_from_a_folder_others_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = kernel_cache.temporary_base()
    assert own is not None and os.stat(own).st_mode & 0o777 == 0o700
    assert kernel_cache.temporary_base() == own
    os.chmod(own, 0o777)
    other = kernel_cache.temporary_base()
    assert other is not None and other != own and os.stat(other).st_mode & 0o777 == 0o700


def base_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[str | None, str]:
    """The folder for machine code when `folder` is chosen, and what is said about it."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    return kernel_cache.cache_base.__wrapped__(), capsys.readouterr().err


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_cache_that_others_can_write_to_is_refused_in_one_line(
    tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "rocescope"
    assert base_in(tmp_path, monkeypatch, capsys) == (str(cache), "")
    cache.chmod(mode)
    base, said = base_in(tmp_path, monkeypatch, capsys)
    assert base == kernel_cache.temporary_base() and base != str(cache)
    assert said.count("\n") == 1 and f"others can write to {cache} (" in said


def test_every_folder_above_the_cache_counts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who can write to it can exchange what is below, but for sticky folders such as /tmp."""
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o1777)
    assert base_in(above / "home", monkeypatch, capsys)[0] == str(above / "home" / "rocescope")
    above.chmod(0o777)
    base, said = base_in(above / "home", monkeypatch, capsys)
    assert not str(base).startswith(str(above)) and f"others can write to {above} (" in said
    (tmp_path / "link").symlink_to(above)
    assert f"others can write to {above} (" in base_in(tmp_path / "link", monkeypatch, capsys)[1]
    assert base_in(above / "new", monkeypatch, capsys)[0] == base
    assert not (above / "new").exists()  # nothing is made where it would not be used


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("foreign", ["home", "home/rocescope"])
def test_root_uses_no_cache_of_another_user(
    tmp_path: Path,
    foreign: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "home" / "rocescope").mkdir(parents=True)
    os.chown(tmp_path / foreign, 1000, 1000)
    base, said = base_in(tmp_path / "home", monkeypatch, capsys)
    assert not str(base).startswith(str(tmp_path / "home"))
    assert f"{tmp_path / foreign} belongs to another user" in said and said.count("\n") == 1


@pytest.mark.usefixtures("root")
def test_no_temporary_folder_of_another_user_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TMPDIR may be a user's own folder, and it survives some ways to become root."""
    os.chown(tmp_path, 1000, 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert not str(kernel_cache.temporary_base()).startswith(str(tmp_path))


def function_of(path: Path, source: str) -> FunctionType:
    """The function `f` of a file."""
    path.write_text(source)
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(source, str(path), "exec"), names)
    function: FunctionType = names["f"]
    return function


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("import numpy as np\nTABLE = np.arange(3)", "import numpy as np\nTABLE = np.ones(3)"),
        ("PORTS = (1, 2)", "PORTS = (2, 1)"),
        (
            "from collections import namedtuple\nState = namedtuple('State', 'a b')",
            "from collections import namedtuple\nState = namedtuple('State', 'b a')",
        ),
        ("from enum import IntEnum\nO = IntEnum('O', 'A B')", "from enum import IntEnum\nO = 1"),
    ],
)
def test_what_another_file_defines_decides_about_the_key(
    tmp_path: Path, one: str, other: str
) -> None:
    """The file of the kernel is the same: it imports what differs."""
    keys = []
    for number, definition in enumerate((one, other, one)):
        names: dict[str, Any] = {}
        exec(definition, names)
        path = tmp_path / f"kernels{number}.py"
        function = function_of(path, "def f(): return 0\n")
        function.__globals__.update(names)
        keys.append(kernel_cache.module_digest(function))
    assert keys[0] == keys[2] != keys[1]


def test_constants_that_a_module_takes_from_another_decide_about_the_key(tmp_path: Path) -> None:
    """A kernel reads `state.LIMIT`, and state.py takes LIMIT from another file."""
    keys = []
    for number, limit in enumerate((3, 4, 3)):
        state = ModuleType("rocescope.state")
        state.__file__ = ""
        vars(state)["LIMIT"] = limit
        function = function_of(tmp_path / f"kernels{number}.py", "def f(): return 0\n")
        function.__globals__["state"] = state
        keys.append(kernel_cache.module_digest(function))
    assert keys[0] == keys[2] != keys[1]


class Attack:
    """A kernel in a cache that another user prepares; `run` is what a later process does."""

    SOURCE = """
        import sys, warnings
        sys.path.insert(0, {folder!r})
        warnings.simplefilter("error")
        import victim
        print(victim.answer(20))
    """

    def __init__(self, source: Path, cache: Path) -> None:
        self.cache, self._folder = cache, source

    def run(self, **variables: str) -> tuple[str, str]:
        """Standard output and the lines on standard error."""
        done = subprocess.run(
            [sys.executable, "-c", dedent(self.SOURCE.format(folder=str(self._folder)))],
            env=os.environ | {"NUMBA_CACHE_DIR": str(self.cache)} | variables,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr

    def files(self, kind: str) -> list[Path]:
        found = [path for path in self.cache.rglob(f"*{kind}") if path.is_file()]
        assert found, kind
        return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Attack:
    """A cache with one kernel."""
    folder = tmp_path_factory.mktemp("victim")
    (folder / "victim.py").write_text(
        "from rocescope.kernels.kernel import kernel\n"
        "@kernel\ndef answer(value):\n    return value + 1\n"
    )
    attack = Attack(folder, tmp_path_factory.mktemp("filled") / "cache")
    before = os.umask(0)  # everything in the cache belongs to its user alone all the same
    try:
        assert attack.run() == ("21", "")
    finally:
        os.umask(before)
    return attack


@pytest.fixture
def attack(filled: Attack, tmp_path: Path) -> Attack:
    """A copy of it."""
    shutil.copytree(filled.cache, tmp_path / "cache")
    return Attack(filled._folder, tmp_path / "cache")


def give_away(path: Path) -> None:
    os.chown(path, 1000, 1000)


def let_group_write(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("spoil", [give_away, let_group_write])
def test_what_another_user_could_have_written_is_compiled_again(
    attack: Attack, spoil: Callable[[Path], None]
) -> None:
    """The folder of a kernel, also where the cache itself is safe; others reach nothing in it."""
    folder = attack.files(".nbi")[0].parent.parent
    spoil(folder)
    answer, said = attack.run()
    assert answer == "21"
    assert f"rocescope: {folder} is not used: another user can write to it" in said
    assert said.count("\n") == 1
    assert attack.run() == ("21", "")  # replaced by a safe one


def test_the_cache_belongs_to_its_user_alone_whatever_the_umask(filled: Attack) -> None:
    folders = list((filled.cache / "rocescope").iterdir())
    assert folders and [folder for folder in folders if folder.stat().st_mode & 0o077] == []


@pytest.mark.thorough
@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("variable", first(1, ["HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"]))
def test_root_with_the_environment_of_a_user(attack: Attack, tmp_path: Path, variable: str) -> None:
    """sudo may keep these variables; nothing is written to the folder of the user."""
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 1000, 1000)
    clear = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path)}
    answer, said = attack.run(**clear | {variable: str(home)})
    assert answer == "21" and said.count("\n") == 1
    assert f"{home} belongs to another user" in said
    assert list(home.iterdir()) == []


@pytest.mark.usefixtures("root")
def test_a_user_without_a_home_has_a_temporary_cache() -> None:
    """A container may run as any number: without an entry in /etc/passwd and without HOME."""
    code = """
import os, platformdirs.unix, pwd, tempfile
from rocescope.kernels import cache
from rocescope.tui import settings
os.environ.clear()
os.setresgid(71234, 71234, 71234); os.setresuid(71234, 71234, 71234)
base = cache.cache_base()
print(base)
assert settings.load() == settings.Settings()
os.rmdir(base)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rocescope-" in done.stdout
