"""The command line: finds the command, runs it, and turns every outcome into an exit code.

No heavy import here: the module of a command is loaded when the command runs.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from .analyzer.errors import RocescopeError
from .kernels import LibraryError

_OUTPUTS = ("-o", "--output", "-w", "--write")
_ENDLESS_NUMBER = re.compile(r"\d{1000}")
"""Python refuses to read numbers of more than 4,300 digits; no option takes 1,000."""
_TOO_LONG = "Exceeds the limit ("
"""Begin of Python's message about such a number."""
INTERRUPTED = 130
TERMINATED = 143
BROKEN_PIPE = 141
_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EAGAIN)
"""Errors of writing standard output; any other error has another cause."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    # Loading the libraries makes hundreds of thousands of objects, hardly any of them garbage.
    gc.set_threshold(100_000, 20, 20)
    # Keeps numpy's linear algebra, which is not used, from starting a thread for every core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.pop("NUMBA_DISABLE_JIT", None)  # kernels exist only as machine code
    terminated = _end_as_interrupted()
    code = run(list(sys.argv[1:] if arguments is None else arguments))
    _leave(TERMINATED if code == INTERRUPTED and terminated() else code)


def _end_as_interrupted() -> Callable[[], bool]:
    """From now on SIGTERM does what Ctrl-C does at that time; returns whether one has come.

    A SIGTERM that is ignored or handled from the start stays so.
    """
    came = threading.Event()

    def end(_number: int, frame: FrameType | None) -> None:
        came.set()
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # a shell starts background jobs with SIGINT ignored
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, end)
    return came.is_set


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; every error becomes one line."""
    _open_closed_streams()
    traceback = "--traceback" in arguments
    if _ENDLESS_NUMBER.search(" ".join(arguments)):
        return _complain("a number on the command line has too many digits", 2)
    arguments = _standard_streams([word for word in arguments if word != "--traceback"])
    try:
        code = _run_command(arguments)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        _abandon_output()  # the reader (`| head`) has gone
        return BROKEN_PIPE
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # while help was printed
            return BROKEN_PIPE
        raise
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except (RocescopeError, LibraryError) as error:
        return _complain(_one_line(error), error.exit_code)
    except OSError as error:
        if traceback:
            raise
        _abandon_output()
        reason = (error.strerror or _one_line(error)).lower()
        if error.filename:
            return _complain(f"{error.filename}: {reason}", 1)
        if error.errno in _WRITING:
            return _complain(f"cannot write standard output: {reason}", 1)
        return _complain(f"{reason}; run with --traceback to see where", 1)
    except Exception as error:
        if traceback:
            raise
        if isinstance(error, ValueError) and str(error).startswith(_TOO_LONG):
            return _complain("a number in the input has too many digits", 4)
        if isinstance(error, RecursionError):
            return _complain("the input is nested too deeply", 4)
        if isinstance(error, ModuleNotFoundError):
            from .analyzer.errors import explained

            missing = explained(error)
            if missing is not None:
                return _complain(str(missing), missing.exit_code)
        what = f"internal error: {type(error).__name__}: {_one_line(error)}"
        return _complain(f"{what}; run with --traceback to see where", 1)


def _leave(code: int) -> NoReturn:
    """End the process without freeing its objects one by one.

    That would take a quarter of the time of a small analysis.
    """
    observed = sys.getprofile() or sys.gettrace()
    others = set(threading.enumerate()) - {threading.main_thread()}
    if observed or any(not thread.daemon for thread in others):
        sys.exit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _run_command(words: list[str]) -> object:
    from .commands.plain_words import plain_call

    call = plain_call(words)
    if call is not None:
        return call()
    from .commands.app import run_words

    return run_words(words)


def _open_closed_streams() -> None:
    """Streams for those that the caller has closed (`>&-`): writing standard output fails, as
    nobody would get the results; messages go nowhere."""
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")


def _abandon_output() -> None:
    """Redirect standard output, so that Python's flush at exit does not fail again."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _standard_streams(arguments: list[str]) -> list[str]:
    """`-` as the path of standard input or output; the parser would read it as an option."""
    before = ["", *arguments]
    return [
        word if word != "-" else "/dev/stdout" if previous in _OUTPUTS else "/dev/stdin"
        for previous, word in zip(before, arguments, strict=False)
    ]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _complain(message: str, code: int) -> int:
    from .analyzer.words import printable

    print(f"rocescope: {printable(message)}", file=sys.stderr)
    return code
