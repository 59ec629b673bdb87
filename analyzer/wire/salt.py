"""Random keys of hash tables: no capture can force collisions."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray


def salt(words: int) -> NDArray[np.uint64]:
    """uint64[words] of system randomness; the module `secrets` loads more slowly."""
    return np.frombuffer(os.urandom(8 * words), np.uint64).copy()
