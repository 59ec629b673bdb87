"""Context managers that release everything when their opening fails."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import ExitStack
from typing import Self


class Opened:
    """A context manager; `_open` puts what must be released on `_stack`."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    @abstractmethod
    def _open(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
