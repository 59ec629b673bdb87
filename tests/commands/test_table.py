"""Annotations without cyclopts, and options that were given."""

from __future__ import annotations

import ast
import inspect
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from rocescope.commands import table
from rocescope.commands.table import COMMANDS, changed

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
    assert imported == {"kernels.records"}
