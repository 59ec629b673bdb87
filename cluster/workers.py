"""Where tasks run: processes of this machine, or the workers of a Dask scheduler."""

from __future__ import annotations

import logging
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from ..analyzer.errors import RocescopeError, UsageError

MakeExecutor = Callable[[], Executor]
_CONNECT_S = 30


@dataclass(frozen=True, slots=True)
class Workers:
    """Where tasks run."""

    processes: int
    executor: MakeExecutor
    here: bool = True
    """Whether they are on this machine."""
    close: Callable[[], None] = lambda: None
    """Ends a connection, not the workers at its other end."""
    errors: Callable[[], AbstractContextManager[None]] = nullcontext
    """Makes a RocescopeError of what the executor raises when its workers are lost."""


def workers_of(text: str) -> Workers:
    """`local:N`, or the address of a Dask scheduler. UsageError for another text.

    RocescopeError if the scheduler does not answer or has no worker.
    """
    kind, _, rest = text.partition(":")
    if kind == "local":
        return _local(text, rest)
    if kind in ("tls", "tcp"):
        return _dask(text)
    raise UsageError(
        f"--cluster {text}: give local:N, N processes of this machine, or tls://HOST:PORT, a"
        " scheduler of Dask"
    )


def _local(text: str, count: str) -> Workers:
    if not count.isdecimal() or not 1 <= int(count) <= 1024:
        raise UsageError(f"--cluster {text}: give local:N, N processes of this machine")
    # A forked process would have the locks, not the threads, of this one.
    context = multiprocessing.get_context("spawn")
    return Workers(
        int(count),
        lambda: ProcessPoolExecutor(int(count), mp_context=context, initializer=_ignore_interrupts),
    )


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal; the one that waits for the tasks ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _dask(address: str) -> Workers:
    """The workers of a scheduler. It takes pickled code from everybody who reaches it, so beyond
    this machine it must ask for certificates, which the configuration of Dask names."""
    host = _host_of(address)
    if address.startswith("tcp:") and not _is_loopback(host):
        raise UsageError(
            f"--cluster {address}: every host that reaches tcp:// can run code on the workers: "
            "give tls://"
        )
    if find_spec("distributed") is None:
        raise UsageError(
            f"--cluster {address} needs distributed, which is not installed:"
            " pip install 'rocescope[cluster]'"
        )
    distributed: Any = import_module("distributed")
    # It prints a traceback when it loses the scheduler.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    encrypted = address.startswith("tls:")
    try:
        client = distributed.Client(
            address,
            security=distributed.Security(require_encryption=encrypted),
            timeout=_CONNECT_S,
            set_as_default=False,
        )
    except _NO_ANSWER as error:
        raise _no_answer(address, error) from None
    try:
        threads = client.nthreads().values()
        if not threads:
            raise RocescopeError(f"--cluster {address} has no worker: start dask worker")
        if max(threads) > 1:
            raise UsageError(  # a task changes the working folder of its process
                f"--cluster {address}: a worker runs several tasks in one process: start them with"
                " dask worker --nworkers N --nthreads 1"
            )
    except BaseException as error:
        client.close()
        if isinstance(error, _NO_ANSWER):
            raise _no_answer(address, error) from None
        raise
    return Workers(
        len(threads),
        # Pure tasks with equal arguments would be one, and a failed one keeps its error.
        lambda: client.get_executor(pure=False),
        False,
        client.close,
        lambda: _errors_of(address, distributed),
    )


_NO_ANSWER = (OSError, RuntimeError, TypeError, ValueError)


def _no_answer(address: str, error: Exception) -> RocescopeError:
    why = (str(error).splitlines() or [type(error).__name__])[0]
    return RocescopeError(f"--cluster {address}: {why}")


@contextmanager
def _errors_of(address: str, distributed: Any) -> Iterator[None]:
    """Dask runs the task of a worker that died on others, and gives up after some of them. It
    cancels all tasks when the scheduler is lost, and takes no more."""
    try:
        yield
    except distributed.KilledWorker:
        raise RocescopeError(
            f"--cluster {address}: several workers died in the same task: they may lack memory; "
            "more partitions need less memory each; the same command resumes the analysis"
        ) from None
    except (
        CancelledError,
        distributed.client.ClosedClientError,
        distributed.comm.CommClosedError,
    ):
        raise RocescopeError(
            f"--cluster {address}: the connection to the scheduler is lost: start the scheduler "
            "and its workers again; the same command resumes the analysis"
        ) from None


def _host_of(address: str) -> str:
    with suppress(ValueError):
        parts = urlsplit(address)
        if parts.hostname and parts.port and not parts.path:
            return parts.hostname
    raise UsageError(f"--cluster {address} is not an address such as tls://scheduler:8786")


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
