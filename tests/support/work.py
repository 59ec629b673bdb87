"""How much work kernels do, counted where no clock is needed: lines of their plain Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from rocescope.kernels.kernel import Kernel


def lines_run(function: Callable[[], object]) -> int:
    """Lines of rocescope that `function` runs, with all kernels as plain Python.

    The same in every run and on every machine, some hundred times slower than compiled.
    """
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        ours = frame.f_globals.get("__name__", "").startswith("rocescope.")
        return count if ours else None

    compiled, before = Kernel.__call__, sys.gettrace()
    Kernel.__call__ = lambda self, *a: self.__wrapped__(*map(_plain, a))  # type: ignore[method-assign]
    sys.settrace(enter)
    try:
        with np.errstate(over="ignore"):  # as machine code, which wraps around
            function()
    finally:
        sys.settrace(before)
        Kernel.__call__ = compiled  # type: ignore[method-assign]
    return lines


def _plain(value: Any) -> Any:
    """Records give their fields as attributes in kernels; plain numpy wants a recarray for that."""
    if isinstance(value, np.ndarray) and value.dtype.names:
        return value.view(np.recarray)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_plain, value))
    return value
