"""How commands annotate their arguments, without loading cyclopts for it."""

from __future__ import annotations

import sys
from dataclasses import fields
from types import SimpleNamespace
from typing import Any


def Parameter(**options: Any) -> Any:
    """A `cyclopts.Parameter` where cyclopts reads the annotation; else its bare options.

    Annotations are strings until somebody evaluates them.
    """
    if "cyclopts" not in sys.modules:
        return SimpleNamespace(**options)
    from cyclopts import Parameter as Real

    return Real(**options)


def changed(group: Any, usual: Any) -> list[str]:
    """The options that differ between two instances of a group, as they are typed."""
    return [
        "--" + field.name.replace("_", "-")
        for field in fields(group)
        if getattr(group, field.name) != getattr(usual, field.name)
    ]
