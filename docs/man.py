"""`make docs`: write the man page rocescope.1 from the help of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

from cyclopts import App

from rocescope.commands.app import EPILOGUE, app

PAGE = Path(__file__).parent / "rocescope.1"


def escaped(text: str) -> str:
    """Text for roff: a line that begins with a dot would be a request."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace("\n.", "\n\\&.")


def option_lines(argument: Any) -> Iterator[str]:
    """A `.TP` paragraph per option or file."""
    names = ", ".join(rf"\fB{escaped(name)}\fR" for name in argument.names)
    choices = " | ".join(argument.get_choices() or ())
    value = "" if argument.hint is bool else rf" \fI{escaped(choices or 'VALUE')}\fR"
    yield ".TP"
    yield names + (value if argument.names[0].startswith("-") else "")
    default = argument.field_info.default
    usual = (
        "" if default in (None, False) or not isinstance(default, str | int | float) else default
    )
    told = " ".join((argument.parameter.help or "").split())
    yield escaped(told + (f" Default: {usual}." if usual != "" else ""))


def command_lines(name: str, command: App) -> Iterator[str]:
    """The section of a command."""
    arguments: Any = []
    if command.default_command is not None:
        with app.app_stack(name.split()):
            arguments = command.assemble_argument_collection(parse_docstring=True)
    shown = [one for one in arguments if "*" not in one.names]  # a group of options has that name
    files = " ".join(one.names[0] for one in shown if not one.names[0].startswith("-"))
    yield f".SS {escaped(name)} [OPTIONS] {files}".rstrip()
    told = cleandoc(command.help).partition("\nParameters\n")[0]  # options follow, with their names
    yield escaped(" ".join(told.split()))
    for one in shown:
        yield from option_lines(one)
    yield from examples(command)


def examples(command: App) -> Iterator[str]:
    yield ".PP"
    yield ".nf"
    yield escaped(str(command.help_epilogue or "").rstrip())
    yield ".fi"


def page() -> str:
    """The man page as it should be."""
    lines = [
        '.TH ROCESCOPE 1 "" "rocescope" "User Commands"',
        ".SH NAME",
        r"rocescope \- what every queue pair of RoCEv2 traffic did, from packets",
        ".SH SYNOPSIS",
        r"\fBrocescope\fR \fICOMMAND\fR [\fIOPTIONS\fR] ...",
        ".SH DESCRIPTION",
        escaped(app.help),
        ".SH COMMANDS",
    ]
    for name in sorted(n for n in app if not n.startswith("-")):
        command = app[name]
        lines += command_lines(name, command)
        for inner in (n for n in command if not n.startswith("-")):
            lines += command_lines(f"{name} {inner}", command[inner])
    lines += [".SH EXIT STATUS AND STREAMS", ".nf", escaped(EPILOGUE.rstrip()), ".fi"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
