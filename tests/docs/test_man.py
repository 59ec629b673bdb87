"""The man page says what the help says."""

from __future__ import annotations

import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path

from rocescope.commands.table import COMMANDS


def test_the_man_page_is_up_to_date(checkout: Path) -> None:
    page = runpy.run_path(str(checkout / "docs" / "man.py"))["page"]()
    assert (checkout / "docs" / "rocescope.1").read_text() == page, "run `make docs`"
    assert "Parameters" not in page, (
        "the options of a docstring stand among the words of the command"
    )
    for name, command in COMMANDS.items():
        heading = f".SS {name} ".replace("-", "\\-")
        assert heading in page
        assert command.examples.splitlines()[1].strip().replace("-", "\\-") in page


def test_man_has_nothing_to_say_against_it(checkout: Path, need_tool: Callable[[str], str]) -> None:
    command = [need_tool("groff"), "-man", "-Tutf8", "-ww", checkout / "docs" / "rocescope.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not done.stderr
    assert "Examples:" in done.stdout
