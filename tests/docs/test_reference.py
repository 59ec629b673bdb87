"""The reference pages name every option and every filter field."""

from __future__ import annotations

import re
from pathlib import Path
from types import FunctionType

import pytest

from rocescope.analyzer.filtering.compiler import Filter
from rocescope.analyzer.filtering.fields import FIELDS
from rocescope.commands.analyze import analyze
from rocescope.commands.capture import capture
from rocescope.commands.check import check
from rocescope.commands.export import export
from rocescope.commands.fabric import fabric
from rocescope.commands.generate import generate
from rocescope.commands.plain_words import options_of
from rocescope.commands.tui import live, tui


@pytest.mark.parametrize("command", [analyze, capture, check, tui, live, export, fabric, generate])
def test_every_option_is_in_the_reference(checkout: Path, command: FunctionType) -> None:
    page = (checkout / "docs" / "cli.md").read_text()
    section = page.partition(f"## {command.__name__}\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`--([a-z0-9-]+)`", section))
    options = {name for name, _ in options_of(command) if name.startswith("--")}
    assert named == {name.removeprefix("--") for name in options}


def test_every_field_is_in_the_reference(checkout: Path) -> None:
    page = (checkout / "docs" / "filter.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(field.name, field.meaning) for field in FIELDS.values()]


def test_examples_compile(checkout: Path) -> None:
    page = (checkout / "docs" / "filter.md").read_text()
    examples = re.findall(r"```\n(.+?)```", page, re.DOTALL)[0].splitlines()
    assert len(examples) == 3
    for example in examples:
        Filter(example)
