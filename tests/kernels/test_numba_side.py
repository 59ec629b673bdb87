"""Kernels of several threads each get the cache folder of their own."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba

from rocescope.kernels.kernel import kernel
from rocescope.kernels.numba_side import compiler_lock, dispatcher

config: Any = numba.config


def same(value: int) -> int:
    return value


def test_threads_do_not_mix_up_their_cache_folders(tmp_path: Path) -> None:
    before = config.CACHE_DIR

    def made(number: int) -> Any:
        return dispatcher(same, {"cache": True}, str(tmp_path / str(number)))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(made, range(400)))
    folders = [Path(compiled.stats.cache_path).parent.name for compiled in found]
    assert folders == [str(number) for number in range(400)]
    assert before == config.CACHE_DIR


def test_who_compiles_does_not_wait_for_who_waits_for_the_compiler() -> None:
    """A kernel that is being compiled asks for those it calls, whatever other threads do."""
    waiting: Any = kernel(same)
    asked: Any = kernel(same)

    def compiles() -> None:
        with compiler_lock:
            other = threading.Thread(target=lambda: waiting.compiled, daemon=True)
            other.start()
            time.sleep(0.2)  # until it waits for the lock
            assert asked.compiled

    thread = threading.Thread(target=compiles, daemon=True)
    thread.start()
    thread.join(300)
    assert not thread.is_alive()
