"""Annotations of command arguments, without loading cyclopts."""

from __future__ import annotations

import sys
from dataclasses import fields
from types import SimpleNamespace
from typing import Any


def Parameter(**options: Any) -> Any:
    """A `cyclopts.Parameter` if cyclopts is loaded, otherwise only its options.

    Annotations stay strings until they are evaluated.
    """
    if "cyclopts" not in sys.modules:
        return SimpleNamespace(**options)
    from cyclopts import Parameter as Real

    return Real(**options)


def changed(group: Any, usual: Any) -> list[str]:
    """The options that differ between two instances of a group, as typed on the command line."""
    return [
        "--" + field.name.replace("_", "-")
        for field in fields(group)
        if getattr(group, field.name) != getattr(usual, field.name)
    ]
