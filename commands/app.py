"""The command line in cyclopts; a command is loaded when it runs. And its completion in shells."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter
from cyclopts.help import DefaultFormatter, HelpPanel
from rich.console import Console, ConsoleOptions
from rich.text import Text

from ..analyzer.errors import UsageError
from ..version import VERSION
from .table import COMMANDS
from .table import Parameter as CompletionParameter

EPILOGUE = """\
Start with: rocescope analyze capture.pcap

Results go to standard output, messages and progress to standard error.
Exit codes: 0 done, 1 failed, 2 usage, 3 no permission to capture,
4 unreadable or damaged input, 130 interrupted, 143 ended by SIGTERM.
--traceback, with any command, shows the origin of an internal error.
"""


class Flowing(DefaultFormatter):
    """Help whose paragraphs fill the width: line breaks of docstrings are spaces."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print a panel of the help."""
        for entry in panel.entries:
            text = getattr(entry.description, "primary_renderable", None)
            if isinstance(text, Text):
                text.plain = " ".join(text.plain.split())
        super().__call__(console, options, panel)


app = App(
    name="rocescope",
    help="Show what every queue pair of a RoCEv2 capture did: paths, reordering, loss, congestion.",
    help_epilogue=EPILOGUE,
    help_format="plaintext",
    help_formatter=Flowing(),
    version=VERSION,
    version_flags=("--version", "-V"),
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(negative=""),
    result_action="return_value",
)
app["--help"].group = app["--version"].group = "Options"
for _name, _command in COMMANDS.items():
    app.command(
        _command.place,
        name=_name,
        help=f"{_command.help}\n\n{_command.note}".strip(),
        help_epilogue=_command.examples,
    )
app.command(
    "rocescope.commands.generate:application",
    name="generate",
    help="Generate RoCEv2 traffic of a pattern, of training jobs, or MRC traffic, as a pcap.",
)
app.command(
    "rocescope.commands.cluster:application",
    name="cluster",
    help="Run the tasks of an analysis on many machines.",
)


def run_words(words: list[str]) -> object:
    """Run a command line; returns the result of its command. UsageError for mistakes in it."""
    from ..report.terminal.page import console_for

    app.console = console_for(sys.stdout, "auto")
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        return app(words)
    except MissingArgumentError as error:
        raise UsageError(_missing(error)) from None
    except CycloptsError as error:
        raise UsageError(str(error)) from None


def _missing(error: MissingArgumentError) -> str:
    """Name the missing argument or value; an example that has it, or the page that explains it."""
    command = " ".join(error.command_chain or ())
    if error.keyword or error.argument is None:
        return f"{command}: {error.keyword} has no value; see rocescope {command} --help"
    name, names = error.argument.name, error.argument.names
    called = app
    for word in error.command_chain or ():
        called = called[word]
    for line in str(called.help_epilogue or "").splitlines():
        example = line.strip(" \\")
        shown = not name.startswith("-") or any(f" {flag} " in example for flag in names)
        if shown and "rocescope" in example:
            return f"{command} needs {name}, for example: {example}"
    return f"{command} needs {name}; see rocescope {command} --help"


# `rocescope completion`: shell completion of commands, options and their values.


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], CompletionParameter(name="SHELL")], /
) -> None:
    """Print the completion script of a shell.

    Parameters
    ----------
    shell
        The shell that reads the script.
    """

    sys.stdout.write(app.generate_completion(shell=shell))
