"""Progress in steps."""

from __future__ import annotations

import json

from rocescope.commands.options.progress import steps_shown


def test_lines_of_json(capsys):
    with steps_shown("json") as tell:
        tell("seeds", 3, 10)
        tell("seeds", 10, 10)
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert told == [{"step": "seeds", "done": done, "total": 10} for done in (3, 10)]


def test_without_a_terminal_only_compiling_is_told_once(capsys):
    with steps_shown("auto") as tell:
        for what in ("seeds", "compiling kernels", "compiling kernels", "seeds"):
            tell(what, 1, 2)
    assert capsys.readouterr().err.count("compiling kernels") == 1


def test_none(capsys):
    with steps_shown("none") as tell:
        assert tell is None
    assert capsys.readouterr().err == ""
