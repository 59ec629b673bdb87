"""Types of the records of structured arrays, as kernels see them: fields by name."""

from __future__ import annotations

from typing import Any, TypeAlias


class Record:
    """One element of a structured array inside a kernel; one subclass per dtype.

    No object of it exists: it keeps mypy from taking the record of one array for that of another.
    """

    def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None: ...


Records: TypeAlias = Any
"""A structured array, of which kernels take elements as records: numpy's types take them for
arrays."""
