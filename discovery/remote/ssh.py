"""Commands over SSH, with checked host keys and limits on time and output.

Addresses, users, keys, known hosts and jump hosts come from the user's ssh_config. Only keys
authenticate. No option turns the check of host keys off: asyncssh does not know
StrictHostKeyChecking, and `UserKnownHostsFile none`, which would turn it off there, means that no
key is known.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...analyzer.errors import RocescopeError, UsageError

if TYPE_CHECKING:
    import asyncssh

CHANNELS = 4
"""Commands at once on a connection: sshd counts a closed session until it has reaped it, so that
eight busy channels exceed its default MaxSessions of 10."""
CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 30.0
OUTPUT_BYTES = 16 << 20
_ERROR_BYTES = 2000
_MOST_ERROR_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16
_WINDOW_BYTES = 1 << 20
"""What a device may send before it is read."""
_NOBODY = b"# no host\n"
"""asyncssh takes an empty text for its default."""
_SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


class NotReached(RocescopeError):
    """A device to which no connection exists; the text is the reason."""


class _TooMuch(ValueError):
    """More output than its limit; the text tells which."""


class Answer(NamedTuple):
    """The end of a command."""

    status: int | None
    """Exit status; None: it did not end by itself."""
    began_ns: int
    """Unix time."""
    ended_ns: int
    output_bytes: int
    problem: str
    """Why the output is missing or incomplete, in one line; empty: complete."""


class Connection:
    """A connection to one device."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self._connection = connection
        self._free = asyncio.Semaphore(CHANNELS)

    async def ask(
        self,
        command: str,
        sink: Callable[[bytes], object],
        *,
        stdin: bytes = b"",
        seconds: float | None = COMMAND_SECONDS,
        most_bytes: int | None = OUTPUT_BYTES,
    ) -> Answer:
        """Run a command without a terminal and give its output to `sink`, piece by piece.

        seconds and most_bytes: limits; None for a command that runs until it is cancelled.
        """
        async with self._free:
            began = time.time_ns()
            run = _Run(self._connection, command, sink, most_bytes)
            try:
                async with asyncio.timeout(seconds):
                    problem = await run.run(stdin)
            except TimeoutError:
                problem = f"no end within {seconds:g} s"
            except _failures() as error:
                problem = reason_of(error)
            return Answer(run.status, began, time.time_ns(), run.output_bytes, problem)


class _Run:
    """One command on a channel."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        command: str,
        sink: Callable[[bytes], object],
        most_bytes: int | None,
    ) -> None:
        self._connection, self._command = connection, command
        self._sink, self._most_bytes = sink, most_bytes
        self.status: int | None = None
        self.output_bytes = 0

    async def run(self, stdin: bytes) -> str:
        """The problem, empty for none."""
        process = await self._connection.create_process(
            self._command, encoding=None, request_pty=False, window=_WINDOW_BYTES
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                told = tasks.create_task(_first_bytes(process.stderr))
                tasks.create_task(_write(process.stdin, stdin))
                await self._read(process.stdout)
            await process.wait_closed()
            self.status = process.exit_status
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            process.channel.abort()  # also ends what still sends
        return "" if self.status == 0 else _refusal(self.status, told.result())

    async def _read(self, stdout: Any) -> None:
        while piece := await stdout.read(_PIECE_BYTES):
            self.output_bytes += len(piece)
            if self._most_bytes is not None and self.output_bytes > self._most_bytes:
                raise _TooMuch(f"more than {self._most_bytes >> 20} MiB of output")
            self._sink(piece)


async def _write(stdin: Any, data: bytes) -> None:
    with suppress(OSError):  # the command ended without reading
        if data:
            stdin.write(data)
            await stdin.drain()
        stdin.write_eof()


async def _first_bytes(stream: Any) -> bytes:
    """The begin of a stream, which is read to its end."""
    kept, seen = b"", 0
    while piece := await stream.read(_PIECE_BYTES):
        seen += len(piece)
        if seen > _MOST_ERROR_BYTES:
            raise _TooMuch(f"more than {_MOST_ERROR_BYTES >> 20} MiB of error messages")
        kept = (kept + piece)[:_ERROR_BYTES]
    return kept


def _refusal(status: int | None, told: bytes) -> str:
    ended = "ended by a signal" if status is None or status < 0 else f"exit status {status}"
    lines = told.decode("utf-8", "replace").strip().splitlines()
    return f"{ended}: {lines[-1].strip()[:200]}" if lines else ended


@asynccontextmanager
async def connected(target: str) -> AsyncIterator[Connection]:
    """A connection to a host of ssh_config. Raises NotReached with the reason."""
    async with AsyncExitStack() as stack:
        try:
            connection = await _connect(target, stack, jumped=())
        except TimeoutError:
            raise NotReached("no answer to the connection in time") from None
        except _failures() as error:
            raise NotReached(reason_of(error)) from None
        yield Connection(connection)


async def _connect(
    target: str, stack: AsyncExitStack, jumped: Sequence[str], through: Any = None
) -> asyncssh.SSHClientConnection:
    """Connect to a target over its jump hosts. Each has its own settings and host key check."""
    import asyncssh

    user, _, place = target.rpartition("@")
    host, port = _host_and_port(place)
    named: dict[str, Any] = {"username": user} if user else {}
    if port is not None:
        named["port"] = port
    options = await asyncssh.SSHClientConnectionOptions.construct(
        host=host, config=(), tunnel=(), **named
    )
    if through is None and isinstance(options.tunnel, str):
        for hop in options.tunnel.split(",") if options.tunnel.lower() != "none" else ():
            if hop in jumped:
                raise NotReached(f"the jump host {hop} leads to itself")
            through = await _connect(hop.strip(), stack, (*jumped, hop), through)
    connection = await asyncssh.connect(
        host,
        tunnel=through,
        known_hosts=_known_hosts(options),
        password=None,
        preferred_auth=("publickey",),
        agent_forwarding=False,
        send_env=None,
        connect_timeout=options.connect_timeout or CONNECT_SECONDS,
        **named,
    )
    stack.callback(connection.abort)
    return connection


def _host_and_port(place: str) -> tuple[str, int | None]:
    """`host`, `host:port` or `[address]:port`; a plain IPv6 address has no port."""
    host, colon, port = place.rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.startswith("[")):
        return host.strip("[]"), int(port)
    return place.strip("[]"), None


def _known_hosts(options: Any) -> list[str] | bytes:
    """The files of known hosts that exist; without any a text that names no host."""
    user = options.config.get("UserKnownHostsFile", ("~/.ssh/known_hosts", "~/.ssh/known_hosts2"))
    system = options.config.get("GlobalKnownHostsFile", _SYSTEM_KNOWN_HOSTS)
    files = [Path(name).expanduser() for name in (*user, *system)]
    return [str(file) for file in files if file.is_file()] or _NOBODY


def _failures() -> tuple[type[Exception], ...]:
    import asyncssh

    return (OSError, ValueError, asyncssh.Error, asyncssh.ConfigParseError, asyncssh.KeyImportError)


def reason_of(error: Exception) -> str:
    """What went wrong, in one line."""
    import asyncssh

    text = " ".join(str(error).split())[:300]
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return f"the host key is not in known_hosts, or differs from it ({text}): not connected"
    if isinstance(error, asyncssh.PermissionDenied):
        return f"no key was accepted ({text})"
    if isinstance(error, asyncssh.ChannelOpenError):
        return f"no channel: {text}"
    if isinstance(error, OSError):
        return (error.strerror or text or type(error).__name__).lower()
    return text or type(error).__name__


def require_asyncssh() -> None:
    """UsageError that names the extra if asyncssh is missing."""
    try:
        import asyncssh
    except ImportError:
        raise UsageError("SSH needs asyncssh: pip install 'rocescope[ssh]'") from None
    asyncssh.set_log_level("CRITICAL")  # problems are part of the report
