"""Stand-ins for the kernel headers that bcc includes into every program.

The probes do not use them. With these stand-ins bcc compiles on machines with and
without kernel headers. They belong to the package: no other user can write to them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HEADERS = Path(__file__).with_name("headers")
"""Their folder."""
_VARIABLE = "BCC_KERNEL_SOURCE"


@contextmanager
def stub_headers() -> Iterator[None]:
    """Context manager in which bcc compiles against the stand-ins."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = str(HEADERS)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
