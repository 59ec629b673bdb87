"""Packages of Python that only some commands need: a host of a fleet can do without them."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import UsageError

NEEDED_BY = {
    "dpkt": "the dissection of a packet needs",
    "networkx": "fabrics as GraphML need",
    "pyarrow": "exported packets, Parquet or Arrow files and s3:// need",
    "scapy": "mirror headers of generated captures need",
    "scipy": "the check of a fabric and the strategy assign need",
    "textual": "the terminal UI needs",
}
"""What does not work without a package, by its name."""


def require(package: str) -> None:
    """UsageError if a package of `NEEDED_BY` is missing, before work that would be in vain."""
    if find_spec(package) is None:
        raise UsageError(_missing(package))


def explained(error: ModuleNotFoundError) -> UsageError | None:
    """What the missing package is needed for; None for modules that no command may lack."""
    package = (error.name or "").partition(".")[0]
    return UsageError(_missing(package)) if package in NEEDED_BY else None


def _missing(package: str) -> str:
    return f"{NEEDED_BY[package]} {package}, which is not installed: pip install {package}"
