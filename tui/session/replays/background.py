"""One piece of work at a time in its own thread, whose view may be read at any time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from ....analyzer.errors import RocescopeError
from ....probes.rights.priority import lower_own

STOPPING = "stopping"


class Shown(Protocol):
    """A frozen dataclass: progress and results of the work."""

    @property
    def running(self) -> str:
        """The step in progress; empty if there is none."""


View = TypeVar("View", bound=Shown)


class Background(Generic[View]):
    """Work whose progress, results and errors are in `view`."""

    def __init__(self, name: str, view: View) -> None:
        """name: of the thread."""
        self.view = view
        self._name = name
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock = threading.RLock()

    @property
    def running(self) -> bool:
        """Whether the work is going on."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self, wait: bool = True) -> None:
        """Ask the work to stop; it does so after the step that cannot be left."""
        self._stopping.set()
        if self.running and self.view.running:
            self._tell(running=STOPPING)
        if wait:
            self.wait()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _start(self, work: Callable[[], None]) -> None:
        """Run `work`; an exception becomes the error of the view."""

        def go() -> None:
            lower_own()
            try:
                work()
            except (RocescopeError, OSError, ValueError, MemoryError) as error:
                self._tell(error=" ".join(str(error).split()))
            except Exception as error:  # a traceback would overwrite the screen
                self._tell(error=f"{type(error).__name__}: {' '.join(str(error).split())}")
            finally:
                self._tell(running="", done=0.0)

        self._thread = threading.Thread(target=go, name=self._name, daemon=True)
        self._thread.start()

    def _tell(self, **changes: Any) -> None:
        with self._lock:
            self.view = replace(self.view, **changes)  # type: ignore[type-var]

    def _tell_read(self, done: int, total: int | None) -> None:
        """Progress of reading captures."""
        self._tell(done=done / total if total else 0.0)
