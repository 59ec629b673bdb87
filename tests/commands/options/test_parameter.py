"""Annotations without cyclopts, and options that were given."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from rocescope.commands.options.parameter import changed


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
from rocescope.commands.options.parameter import Parameter
assert vars(Parameter(name="*", alias="-o")) == {"name": "*", "alias": "-o"}
assert "cyclopts" not in sys.modules
import cyclopts
assert isinstance(Parameter(name="*"), cyclopts.Parameter)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
