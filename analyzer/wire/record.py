"""Types for the records of structured arrays in kernels: fields by name."""

from __future__ import annotations

from typing import Any, TypeAlias


class Record:
    """One element of a structured array inside a kernel; one subclass per dtype.

    It has no instances: it lets mypy distinguish the records of different arrays.
    """

    def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None: ...


Records: TypeAlias = Any
"""A structured array with elements as records in kernels; numpy's types treat them as arrays."""
