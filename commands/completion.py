"""`rocescope completion`: shell completion of commands, options and their values."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from .options.parameter import Parameter


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(name="SHELL")], /
) -> None:
    """Print the completion script of a shell.

    Parameters
    ----------
    shell
        The shell that reads the script.
    """
    from .app import app

    sys.stdout.write(app.generate_completion(shell=shell))
