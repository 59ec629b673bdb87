"""Builds the libraries of rooms: compiles the recorded calls of kernels with numba and links them.

    python -m rocescope.kernels.build ROOM... [--to FOLDER --level x86-64-v2]

Only this module and `jit` depend on numba, and only they run in a checkout or when a wheel is made.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

from . import LibraryError, calls
from .cache import module_digest
from .libraries import (
    BUILT,
    ROOMS,
    Declared,
    Library,
    digest_of,
    identity,
    level,
    shape_of,
    text_of,
    writeable,
)

OBJECTS = os.environ.get("ROCESCOPE_KERNEL_OBJECTS") or os.path.join(BUILT, "objects")
"""The folder of object files, by a digest of all that they are made of."""


def levels() -> list[str]:
    """What a wheel is compiled for on this machine."""
    return ["x86-64-v2", "x86-64-v3"] if os.uname().machine == "x86_64" else [level()]


@cache
def linker() -> list[str] | None:
    """The command that links objects: the system's compiler, or that of the package ziglang."""
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") else None


# At run time, in a checkout.


def built(room: str, kernel: Declared) -> Library | None:
    """The library of a room, built when it is missing or the module of `kernel` changed.

    None if that is impossible, which is said once for each room: numba then compiles each kernel.
    """
    for attempt in range(2):
        # The system opens a library anew only by another path, even if the file is another one.
        path = os.path.join(BUILT, *["."] * attempt, f"{room}-{level()}.so")
        with contextlib.suppress(LibraryError):
            found = Library(path, room)
            if found.is_fresh(kernel) and found.is_of(calls.digest(room)):
                return found
        if attempt == 0 and not _try_to_build(room):
            break
    return None


@cache
def _try_to_build(room: str) -> bool:
    reason = None
    if find_spec("numba") is None:
        raise LibraryError("numba is missing, which compiles kernels: pip install -e '.[build]'")
    if linker() is None:
        reason = "there is no linker (gcc or the package ziglang)"
    elif not _writeable():
        reason = f"{BUILT} cannot be written"
    if reason is not None:
        print(f"rocescope: {reason}: numba compiles each kernel, slower", file=sys.stderr)
        return False
    print(f"rocescope: compiling the kernels of {room} (once)", file=sys.stderr, flush=True)
    try:
        run(room)
    except LibraryError as error:
        print(f"rocescope: {error}: numba compiles each kernel, slower", file=sys.stderr)
        return False
    return True


def _silent(done: int, of: int) -> None:
    """No progress."""


def run(*rooms: str, tell: Callable[[int, int], None] = _silent) -> None:
    """Build rooms, or all, in another process, which loads numba; tell: called with (done, of)."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
    command = [sys.executable, "-c", code, *rooms, "--count"]
    with (
        tempfile.TemporaryFile("w+") as errors,  # a pipe that nobody reads yet may fill up
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        for line in process.stdout or ():
            done, of = map(int, line.split())
            tell(done, of)
        process.wait()
        errors.seek(0)
        said = errors.read().strip()
    if process.returncode:
        _, _, reason = said.partition("LibraryError: ")
        raise LibraryError((reason or said[said.rfind("\n") + 1 :]).partition("\n")[0])


def _writeable() -> bool:
    with contextlib.suppress(OSError):
        os.makedirs(BUILT, exist_ok=True)
        return os.access(BUILT, os.W_OK)
    return False


# Building.


def main() -> None:
    """Build rooms; progress on standard error, or with --count as numbers on standard output."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rooms", nargs="*", default=list(ROOMS))
    parser.add_argument("--to", default=BUILT)
    parser.add_argument("--level", default=level())
    parser.add_argument("--count", action="store_true")
    asked = parser.parse_args()
    for room in asked.rooms:

        def tell(done: int, of: int, room: str = room) -> None:
            if asked.count:
                print(done, of, flush=True)
            elif done == of or sys.stderr.isatty():
                text = f"rocescope: compiled {done} of {of} kernels of {room}"
                end = "\n" if done == of else "\r"
                print(text, end=end, file=sys.stderr, flush=True)

        build(room, asked.to, asked.level, tell)


def build(
    room: str,
    folder: str,
    level: str,
    tell: Callable[[int, int], None] = _silent,
    strict: bool = False,
) -> str | None:
    """Build the library of a room, on all cores; its path. None for a room without kernels.

    Objects of kernels that did not change are taken from the last time. strict: a recorded call
    that is out of date is an error; else it is left out, and numba compiles it when it is called.
    """
    os.makedirs(OBJECTS, exist_ok=True)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(OBJECTS, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        from . import compile as compiler

        tasks, modules, stale = _tasks(room, level)
        if stale:
            reason = f"{calls.path_of(room)} is out of date for {', '.join(sorted(stale))}"
            if strict:
                raise LibraryError(f"{reason}: pytest --record-kernels")
            print(f"rocescope: {reason}", file=sys.stderr)
        if not tasks:
            return None
        missing = [task for task in tasks if not os.path.exists(task.path)]
        missing.sort(key=lambda task: -task.weight)
        cores = max(1, min(len(os.sched_getaffinity(0)), len(missing)))
        failed: list[str] = []
        with get_context("fork").Pool(cores) as pool:
            work = [(task, level) for task in missing]
            for done, wrong in enumerate(pool.imap_unordered(compiler.compile_task, work)):
                failed += [wrong] if wrong is not None else []
                tell(done + 1, len(missing))
        if failed:
            raise LibraryError("\n".join(sorted(failed)))
        about = {"rocescope_kernels": identity(room, level), "rocescope_calls": calls.digest(room)}
        about |= {f"module_{digest_of(m.encode())}": digest for m, digest in modules.items()}
        with tempfile.TemporaryDirectory(dir=folder) as work_folder:
            described = os.path.join(work_folder, "about.o")
            with open(described, "wb") as file:
                file.write(compiler.about_object(about, level))
            made = os.path.join(work_folder, "library.so")
            _link([described, *sorted(task.path for task in tasks)], made)
            path = os.path.join(folder, f"{room}-{level}.so")
            os.replace(made, path)
    return path


def _tasks(room: str, level: str) -> tuple[list[Any], dict[str, str], set[str]]:
    """What to compile, the digests of the modules of all kernels, and those with old calls."""
    from .compile import Task

    known = calls.read(room)
    tasks: list[Any] = []
    modules: dict[str, str] = {}
    stale: set[str] = set()
    versions = compiler_versions()
    for kind in ("calls", "addresses"):
        for name in known[kind]:
            try:
                kernel = calls.function(room, name)
            except (ImportError, AttributeError):
                stale.add(name)
                continue
            modules[kernel.__wrapped__.__module__] = kernel.digest
            for k, words in enumerate(known[kind][name]):
                shapes, signature = "", ""
                if kind == "addresses":
                    signature = words
                    shapes = words + module_digest(calls.found(words))
                else:
                    arguments = calls.samples(room, name)[k]
                    if arguments is None:
                        stale.add(name)
                        continue
                    shape = shape_of(arguments)
                    shapes = f"{text_of(shape)} {list(writeable(shape))}"
                key = f"{name} {shapes} {kernel.digest} {level} {versions}"
                path = os.path.join(OBJECTS, f"{digest_of(key.encode())}.o")
                number = -1 if signature else k
                task = Task(room, name, number, signature, path, _weight(kernel, set()))
                tasks.append(task)
    return tasks, modules, stale


def compiler_versions() -> str:
    """What the code of a kernel depends on besides its source."""
    import llvmlite
    import numba

    with open(os.path.join(os.path.dirname(__file__), "compile.py"), "rb") as file:
        return f"{numba.__version__} {llvmlite.__version__} {digest_of(file.read())}"


def _weight(kernel: Declared, seen: set[object]) -> int:
    """Bytes of its Python code and that of all kernels in it."""
    function = kernel.__wrapped__
    seen.add(kernel)
    total = len(function.__code__.co_code)
    for name in function.__code__.co_names:
        other = function.__globals__.get(name)
        if isinstance(other, type(kernel)) and other not in seen:
            total += _weight(other, seen)
    return total


def _link(objects: list[str], path: str) -> None:
    command = linker()
    if command is None:
        raise LibraryError("there is no linker")
    options = ["-shared", "-Wl,--gc-sections", "-Wl,-z,defs", "-Wl,--build-id=none", "-s"]
    done = subprocess.run(
        [*command, *options, "-o", path, *objects, "-lm"], capture_output=True, text=True
    )
    if done.returncode:
        raise LibraryError(f"{command[0]} failed: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
