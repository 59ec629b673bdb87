"""Run functions in another network namespace without moving the process there."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from ...analyzer.errors import CaptureError
from ..rights.dropping import ENTERING, ENTERING_PROCESS

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_NAMED = "/run/netns"


def namespace_path(name: str) -> str:
    """The file of a namespace given by name (`ip netns`), path, or "pid:N"."""
    if name.startswith("pid:"):
        return f"/proc/{name[4:]}/ns/net"
    return name if "/" in name else f"{_NAMED}/{name}"


def privileges_to_enter(name: str | None) -> tuple[str, ...]:
    """Capabilities that `in_namespace` needs."""
    if name is None:
        return ()
    folder = os.path.realpath(os.path.dirname(namespace_path(name)))
    return ENTERING + (ENTERING_PROCESS if folder.startswith("/proc/") else ())


def in_namespace(name: str | None, work: Callable[[], T]) -> T:
    """The result of `work`, run by a thread inside the namespace; None: the current one.

    The thread ends after the work, so no namespace has to be restored. CaptureError
    if the namespace does not exist or may not be entered.
    """
    if name is None:
        return work()
    results: list[T] = []
    errors: list[BaseException] = []

    def enter_and_work() -> None:
        try:
            _enter(name)
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=enter_and_work, name=f"netns {name}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _enter(name: str) -> None:
    """Move this thread into the namespace."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe is not waited for
        handle = os.open(namespace_path(name), flags)
    except OSError as error:
        raise CaptureError(
            f"cannot open network namespace {name}: {(error.strerror or '').lower()}"
            " (`ip netns` lists names; pid:N is the namespace of a process)"
        ) from None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(handle, _CLONE_NEWNET) != 0:
            what = os.strerror(ctypes.get_errno()).lower()
            raise CaptureError(
                f"cannot enter network namespace {name}: {what};"
                " this needs CAP_SYS_ADMIN: run with sudo"
            )
    finally:
        os.close(handle)
