"""The completion scripts in the shells themselves."""

from __future__ import annotations

import ast
import inspect
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.commands import plain_words, table
from rocescope.commands.app import app, run_words
from rocescope.commands.plain_words import QUICK, NotPlain, arguments_of, plain_call
from rocescope.commands.table import COMMANDS, changed

# The completion scripts in the shells themselves.

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


# What is understood without cyclopts means what cyclopts makes of it; all else is left to it.

WORDS = [
    *("a.pcap", "b", "/dev/stdin", "-", "--", "", "table", "json", "JSON", "xml", "7", "-7", "007"),
    *(
        "--format",
        "--format=json",
        "--format=",
        "-f",
        "-fjson",
        "-f=csv",
        "--output",
        "-o",
        "out.csv",
    ),
    *("--top", "--top=5", "--top=x", "5", "1_0", "0x10", "--concat", "--concat=yes", "--no-concat"),
    *(
        "--filter",
        "cnp and qp == 1",
        "--window",
        "1ms",
        "--path-by",
        "--path_by",
        "tap",
        "--udp-port",
    ),
    *("--fabric", "--strategy", "--strategy=ecmp", "-s", "-s=ofan", "reps:evs=64", "--fail=1%"),
    *("--live", "--count", "-c", "--color", "always", "--help", "--version", "--unknown", "-x"),
]


def by_cyclopts(words: list[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    return bound.args, bound.kwargs


@examples(300)
@given(st.sampled_from(QUICK), st.lists(st.sampled_from(WORDS), max_size=5))
def test_plain_words_mean_what_cyclopts_says(command: str, words: list[str]) -> None:
    function = COMMANDS[command].load()
    try:
        positional, options = arguments_of(function, words)
    except NotPlain:
        return
    assert by_cyclopts([command, *words]) == (tuple(positional), options)


@pytest.mark.parametrize(
    "line",
    [
        "analyze a.pcap",
        "analyze a.pcap b.pcap --format json -o out.json --path-by tap --concat --top=5",
        "analyze --live eth0 -c 10",
        "export a.pcap -o a.parquet",
        "replay --pattern random:qps=4 --fabric fat-tree:k=8",
        "tui a.pcap",
    ],
)
def test_everyday_lines_are_plain(line: str) -> None:
    assert plain_call(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "schema",
        "plain_words",
        "live",
        "analyze --help",
        "analyze a.pcap --format xml",
        "analyze a.pcap --format json --format csv",
        "analyze a.pcap --top",
        "analyze a.pcap --output -o",
        "analyze -- a.pcap",
        "export a.pcap",
    ],
)
def test_the_rest_is_for_cyclopts(line: str) -> None:
    assert plain_call(line.split()) is None


def test_mistakes_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="xml"):
        run_words(["analyze", "a.pcap", "--format", "xml"])


def test_arguments_in_front_of_the_files_are_for_cyclopts() -> None:
    def command(pattern: str, *files: str) -> None: ...

    with pytest.raises(NotPlain):
        plain_words.arguments_of(command, ["a"])


# Annotations without cyclopts, and options that were given.

# Annotations without cyclopts, and options that were given.


@dataclass
class Group:
    udp_port: list[int] | None = None
    filter: str | None = None
    concat: bool = False


def test_names_as_they_are_typed():
    assert changed(Group(), Group()) == []
    assert changed(Group([4792], None, True), Group()) == ["--udp-port", "--concat"]


def test_cyclopts_is_not_loaded_for_an_annotation():
    code = """
import sys
from rocescope.commands.table import Parameter
assert vars(Parameter(name="*", alias="-o")) == {"name": "*", "alias": "-o"}
assert "cyclopts" not in sys.modules
import cyclopts
assert isinstance(Parameter(name="*"), cyclopts.Parameter)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# The table of commands.

GROUPS = {"cluster", "generate"}
"""Commands with subcommands, which app.py adds."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says(name):
    command = COMMANDS[name]
    module, _, function = command.place.partition(":")
    assert function == name.replace("-", "_")
    assert command.load() is getattr(import_module(module), function)
    assert inspect.getdoc(command.load()).endswith(".") or "Parameters" in command.load().__doc__


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_of_their_command(name):
    examples = COMMANDS[name].examples
    assert max(map(len, examples.splitlines())) <= 80
    lines = examples.replace("\\\n", " ").splitlines()
    assert lines[0] == "Examples:"
    own = 0
    for line in lines[1:]:
        words = shlex.split(
            line.partition("|")[0] if "rocescope" in line.partition("|")[0] else line
        )
        if "rocescope" in words:
            word = words[words.index("rocescope") + 1]
            assert word in COMMANDS.keys() | GROUPS
            own += word == name
    assert own


def test_the_table_imports_no_command():
    tree = ast.parse(Path(table.__file__).read_text())
    imported = {
        node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.level
    }
    assert imported == set()
