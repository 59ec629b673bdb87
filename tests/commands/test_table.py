"""The table of commands."""

from __future__ import annotations

import ast
import inspect
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from rocescope.commands import table
from rocescope.commands.table import COMMANDS

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
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"__future__", "collections.abc", "importlib", "typing", "kernels.named"}
