"""The completion scripts in the shells themselves."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rocescope.commands.app import app
from rocescope.commands.table import COMMANDS

IN_BASH = """
source "$1"; shift
complete -p rocescope | grep -q -- '-F _rocescope' || exit 1
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_rocescope
printf '%s\\n' "${COMPREPLY[@]}"
"""
LINES = [
    ("rocescope rec", {"recover-seed"}),
    ("rocescope analyze --form", {"--format"}),
    ("rocescope analyze -f p", {"parquet"}),
    ("rocescope check --color ", {"auto", "always", "never"}),
    ("rocescope capture eth0 --rotate", {"--rotate-size", "--rotate-every"}),
    ("rocescope generate mrc --fail", {"--fail-plane"}),
    ("rocescope completion z", {"zsh"}),
]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def make(shell: str) -> Path:
        path = tmp_path_factory.mktemp("completion") / f"rocescope.{shell}"
        path.write_text(app.generate_completion(shell=shell))  # type: ignore[arg-type]
        return path

    return make


def output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


@pytest.mark.thorough
@pytest.mark.parametrize(("line", "found"), LINES)
def test_bash(need_tool, script, line: str, found: set[str]) -> None:
    shell = need_tool("bash")
    words = output(shell, "-c", IN_BASH, "bash", script("bash"), *line.split(" "))
    assert set(words.split()) == found


@pytest.mark.thorough
@pytest.mark.parametrize(("line", "found"), LINES)
def test_fish(need_tool, script, tmp_path: Path, line: str, found: set[str]) -> None:
    shell = need_tool("fish")
    inside = f"cd {tmp_path}; source {script('fish')}; complete -C '{line}'"
    lines = output(shell, "--no-config", "-c", inside).splitlines()
    assert found <= {offered.split("\t")[0] for offered in lines}


@pytest.mark.thorough
def test_zsh_can_read_it(need_tool, script) -> None:
    path = script("zsh")
    assert path.read_text().startswith("#compdef rocescope")
    output(need_tool("zsh"), "-n", path)


def test_all_commands_are_offered(need_tool, script) -> None:
    words = output(need_tool("bash"), "-c", IN_BASH, "bash", script("bash"), "rocescope", "")
    assert set(words.split()) >= {*COMMANDS, "generate"}
