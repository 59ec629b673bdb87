"""Kernels of several threads each get the cache folder of their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba

from rocescope.analyzer.compiling import dispatcher


def same(value: int) -> int:
    return value


def test_threads_do_not_mix_up_their_cache_folders(tmp_path: Path) -> None:
    before = numba.config.CACHE_DIR

    def made(number: int) -> Any:
        return dispatcher(same, {"cache": True}, str(tmp_path / str(number)))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(made, range(400)))
    folders = [Path(compiled.stats.cache_path).parent.name for compiled in found]
    assert folders == [str(number) for number in range(400)]
    assert before == numba.config.CACHE_DIR
