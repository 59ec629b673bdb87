"""One device over SSH: its address, its connection, its answers.

Addresses, users, keys, known hosts and jump hosts come from the user's ssh_config. Only keys
authenticate. No option turns the check of host keys off: asyncssh does not know
StrictHostKeyChecking, and `UserKnownHostsFile none`, which would turn it off there, means that no
key is known.
"""

from __future__ import annotations

import asyncio
import getpass
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..analyzer.errors import RocescopeError, require
from ..analyzer.saved_file import MAX_BYTES, in_binary

if TYPE_CHECKING:
    import asyncssh


# Host and port of an SSH server, as people write them.


def host_and_port(place: str) -> tuple[str, int | None]:
    """`host`, `host:port` or `[address]:port`; a plain IPv6 address has no port.

    ValueError for a port that does not exist.
    """
    host, colon, port = place.rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.startswith("[")):
        if len(port) > 5 or not 1 <= int(port) <= 65535:
            raise ValueError(f"the port {port[:9]} is not 1 to 65535")
        return host.strip("[]"), int(port)
    return place.strip("[]"), None


AT_ONCE = 64
"""Devices asked at once. Each takes a file descriptor, and one per answer that is written, about
ten; a process may have 1024."""
CHANNELS = 4
"""Commands at once on a connection: sshd counts a closed session until it has reaped it, so that
eight busy channels exceed its default MaxSessions of 10."""
CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 10.0
"""After three of these without an answer a connection is lost: a switch without power says nothing.
ServerAliveInterval of ssh_config goes first."""
COMMAND_SECONDS = 30.0
OUTPUT_BYTES = MAX_BYTES
"""Of a command; written as it comes, so that no answer needs memory."""
TOO_MUCH = "of output"
"""Ends the problem of an answer of more bytes than its limit."""
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
    """More output than its limit; the text says which."""


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
                problem = f"not finished within {seconds:g} s"
            except Exception as error:  # whatever one device causes, the others are asked
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
                stderr = tasks.create_task(_first_bytes(process.stderr))
                tasks.create_task(_write(process.stdin, stdin))
                await self._read(process.stdout)
            await process.wait_closed()
            self.status = process.exit_status
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            process.channel.abort()  # also ends what still sends
        return "" if self.status == 0 else _refusal(self.status, stderr.result())

    async def _read(self, stdout: Any) -> None:
        while piece := await stdout.read(_PIECE_BYTES):
            self.output_bytes += len(piece)
            if self._most_bytes is not None and self.output_bytes > self._most_bytes:
                raise _TooMuch(f"more than {in_binary(self._most_bytes)} {TOO_MUCH}")
            self._sink(piece)


async def _write(stdin: Any, data: bytes) -> None:
    with suppress(OSError):  # the command ended without reading
        if data:
            stdin.write(data)
            await stdin.drain()
        stdin.write_eof()


async def _first_bytes(stream: Any) -> bytes:
    """The start of a stream, which is read to its end."""
    kept, seen = b"", 0
    while piece := await stream.read(_PIECE_BYTES):
        seen += len(piece)
        if seen > _MOST_ERROR_BYTES:
            raise _TooMuch(f"more than {_MOST_ERROR_BYTES >> 20} MiB of error messages")
        kept = (kept + piece)[:_ERROR_BYTES]
    return kept


def _refusal(status: int | None, stderr: bytes) -> str:
    if status is None:
        ended = "no exit status"
    else:
        ended = "ended by a signal" if status < 0 else f"exit status {status}"
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return f"{ended}: {lines[-1].strip()[:200]}" if lines else ended


class Client:
    """Connects to hosts of ssh_config, in one event loop.

    All hosts behind a jump host share one connection to it: of many logins at once, sshd refuses
    some at random (MaxStartups).
    """

    def __init__(self) -> None:
        self._jumps: dict[tuple[str, ...], asyncio.Task[asyncssh.SSHClientConnection]] = {}

    @asynccontextmanager
    async def connected(self, target: str) -> AsyncIterator[Connection]:
        """A connection to a host of ssh_config. Raises NotReached with the reason."""
        try:
            through = await self._through(await _jumps_before(target, ()))
            connection = await _connect(target, through)
        except TimeoutError:
            raise NotReached("the connection timed out") from None
        except Exception as error:  # also what a hostile server makes asyncssh raise
            raise NotReached(reason_of(error)) from None
        try:
            yield Connection(connection)
        finally:
            connection.abort()

    def close(self) -> None:
        """Close the connections to jump hosts."""
        for task in self._jumps.values():
            if not task.done():
                task.cancel()
            elif not task.cancelled() and task.exception() is None:
                task.result().abort()

    def forget_failures(self) -> None:
        """Try jump hosts again that could not be reached."""
        for jumps, task in list(self._jumps.items()):
            if task.done() and (task.cancelled() or task.exception() is not None):
                del self._jumps[jumps]

    async def _through(self, jumps: tuple[str, ...]) -> asyncssh.SSHClientConnection | None:
        """The connection to the last of these jump hosts over the others; None without any."""
        if not jumps:
            return None
        if jumps not in self._jumps or _gone(self._jumps[jumps]):
            self._jumps[jumps] = asyncio.create_task(self._jump(jumps))
        return await self._jumps[jumps]

    async def _jump(self, jumps: tuple[str, ...]) -> asyncssh.SSHClientConnection:
        return await _connect(jumps[-1], await self._through(jumps[:-1]))


def _gone(task: asyncio.Task[asyncssh.SSHClientConnection]) -> bool:
    """Whether a connection to a jump host existed and was lost."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return False
    return task.result().is_closed()


async def _jumps_before(target: str, after: tuple[str, ...]) -> tuple[str, ...]:
    """The jump hosts of a target in their order; `after`: those that lead on to it."""
    options, *_ = await _options(target)
    tunnel = options.tunnel if isinstance(options.tunnel, str) else "none"
    names = [name.strip() for name in tunnel.split(",")] if tunnel.lower() != "none" else []
    for name in names:
        if name in after:
            raise NotReached(f"the jump host {name} leads to itself")
    if not names:
        return ()
    return (*await _jumps_before(names[0], (*after, names[0])), *names)


async def _options(target: str) -> tuple[Any, str, dict[str, Any]]:
    """What ssh_config says of a target, its host, and the user and port that it names itself."""
    import asyncssh

    user, _, place = target.rpartition("@")
    host, port = host_and_port(place)
    named: dict[str, Any] = {"username": user} if user else {}
    if port is not None:
        named["port"] = port
    options = await asyncssh.SSHClientConnectionOptions.construct(
        host=host, config=(), tunnel=(), **named
    )
    return options, host, named


async def _connect(
    target: str, through: asyncssh.SSHClientConnection | None
) -> asyncssh.SSHClientConnection:
    """Connect to a target. Jump hosts, too, have their own settings and host key check."""
    import asyncssh

    options, host, named = await _options(target)
    return await asyncssh.connect(
        host,
        tunnel=through,
        known_hosts=_known_hosts(options, host),
        password=None,
        preferred_auth=("publickey",),
        agent_forwarding=False,
        send_env=None,
        connect_timeout=options.connect_timeout or CONNECT_SECONDS,
        keepalive_interval=options.keepalive_interval or KEEPALIVE_SECONDS,
        **named,
    )


def _known_hosts(options: Any, host: str) -> list[str] | bytes:
    """The files of known hosts that exist; without any a text that names no host."""
    user = options.config.get("UserKnownHostsFile", ("~/.ssh/known_hosts", "~/.ssh/known_hosts2"))
    system = options.config.get("GlobalKnownHostsFile", _SYSTEM_KNOWN_HOSTS)
    tokens = {
        "%": "%",
        "d": str(Path.home()),
        "h": options.host,
        "n": host,
        "p": str(options.port),
        "r": options.username,
        "u": getpass.getuser(),
    }
    names = [*(_expanded(name, tokens) for name in user), *system]
    files = [Path(name).expanduser() for name in names]
    return [str(file) for file in files if file.is_file()] or _NOBODY


def _expanded(name: str, tokens: dict[str, str]) -> str:
    """A name of UserKnownHostsFile with the tokens of ssh_config(5); asyncssh leaves them there."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in tokens:
            raise NotReached(f"UserKnownHostsFile {name}: %{match[1]} is not known here")
        return tokens[match[1]]

    return re.sub("%(.?)", value, name)


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
    if isinstance(error, (RocescopeError, ValueError, asyncssh.Error)):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}"


def require_asyncssh() -> None:
    """UsageError that says how to install asyncssh if it is missing."""
    require("asyncssh")
    import asyncssh

    asyncssh.set_log_level("CRITICAL")  # problems are part of the report
