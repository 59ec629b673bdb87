"""Kernels of several threads each get the cache folder of their own."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core import codegen as numba_codegen

from rocescope.kernels.kernel import Int, kernel, subkernel
from rocescope.kernels.numba_side import compiled_for, compiler_lock, dispatcher

config: Any = numba.config
codegen: Any = numba_codegen


def same(value: int) -> int:
    return value


@subkernel
def halved(value: Int) -> Int:
    print("halved", value)
    return value // 2


def quartered(value: Int) -> Int:
    return halved(halved(value))


def test_a_helper_becomes_machine_code_within_its_kernel_alone(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    finish = codegen.JITCodeLibrary._finalize_specific

    def noted(library: Any) -> None:
        made.append(library.name)
        finish(library)

    monkeypatch.setattr(codegen.JITCodeLibrary, "_finalize_specific", noted)
    compiled_for(dispatcher(quartered, {}, None), (13,), None)(13)
    assert "quartered" in made and not {"halved", "helper"} & set(made)
    # What numba prints goes through the environment of the helper.
    assert capfd.readouterr().out.split() == ["halved", "13", "halved", "6"]


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
