"""Errors of an analysis, one class per exit code, and packages that may be missing."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path


class RocescopeError(Exception):
    """An error with a one-line text that a user can act on."""

    exit_code = 1


class UsageError(RocescopeError):
    """An invalid option or filter."""

    exit_code = 2


class CaptureError(RocescopeError):
    """Live capture is impossible: a privilege, a kernel feature or an interface is missing."""

    exit_code = 3


class UnreadableInput(RocescopeError):
    """A capture that is missing, empty, of the wrong type or unreadable from its start."""

    exit_code = 4


class NotACapture(UnreadableInput):
    """A file of another kind, for example text."""


class StoreError(RocescopeError):
    """An object store that refuses or does not answer: it shows nothing about the captures."""

    exit_code = 4


def too_many_flows(most: int, packets: int) -> str:
    """What to do about more flows than the memory for each allows."""
    return (
        f"more than {most} flows after {packets} packets: analyse a part of them, for example with"
        " --filter 'ip.addr == 10.0.0.0/28'"
    )


# Packages of Python that only some commands need: a host of a fleet can do without them.

NEEDED_BY = {
    "dpkt": "the dissection of a packet needs",
    "networkx": "fabrics as GraphML need",
    "pyarrow": "exported packets, Parquet or Arrow files and s3:// need",
    "pyshark": "the fields of a dissected packet need",
    "scapy": "mirror headers of generated captures need",
    "scipy": "the check of a fabric and the strategy assign need",
    "textual": "the terminal UI needs",
}
"""What does not work without a package, by its name."""

EXTRAS = {
    "asyncssh": "SSH needs",
    "distributed": "--cluster tcp:// and tls:// need",
    "prometheus_client": "the agent needs",
}
"""The same of packages that only an extra installs."""


def require(package: str) -> None:
    """UsageError if a package of `NEEDED_BY` or `EXTRAS` is missing, before work that would be in
    vain."""
    if find_spec(package) is None:
        raise UsageError(_missing(package))


def explained(error: ModuleNotFoundError) -> UsageError | None:
    """What the missing package is needed for; None for modules that no command may lack."""
    package = (error.name or "").partition(".")[0]
    return UsageError(_missing(package)) if package in NEEDED_BY | EXTRAS else None


def _missing(package: str) -> str:
    needed_by = (NEEDED_BY | EXTRAS)[package]
    distribution = package.replace("_", "-")
    return f"{needed_by} {distribution}, which is not installed: {_installer()} {distribution}"


def _installer() -> str:
    """The command that installs packages beside this one."""
    if "pipx" in Path(sys.prefix).parts:
        return "pipx inject rocescope"
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == Path(sys.executable).parent:
        return "pip install"
    return f"{sys.executable} -m pip install"
