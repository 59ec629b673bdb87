"""How commands annotate their arguments, without loading cyclopts for it."""

from __future__ import annotations

import sys
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
