"""Keys of hash tables that nobody can guess: no capture can fill one place of a table."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray


def salt(words: int) -> NDArray[np.uint64]:
    """uint64[words] of the system's randomness; the module `secrets` takes longer to load."""
    return np.frombuffer(os.urandom(8 * words), np.uint64).copy()
