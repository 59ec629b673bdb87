"""Questions to routers: commands, network namespaces, `ip route get`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from ..analyzer.words import printable

# The type of a way to run commands on devices: many devices at once, standard input, limits.


class Request(NamedTuple):
    """A command for one device. Commands are constants; what packets or switches name is checked
    before it becomes part of `stdin`."""

    device: str
    command: str
    stdin: bytes = b""
    most_bytes: int = 16 << 20
    """Of its answer; more is a problem. A lab of namespaces has no such limit."""


class Said(NamedTuple):
    """What a device said."""

    output: bytes
    """Also of a command that failed after a part of its output."""
    problem: str
    """Why it is missing or incomplete; empty: complete."""


Run: TypeAlias = Callable[[Sequence[Request]], list[Said]]
"""Runs all requests at once; one `Said` per request, and no exception for a device that fails."""


class Line(Protocol):
    """A way to run commands that also listens to one that does not end."""

    def __call__(self, requests: Sequence[Request]) -> list[Said]:
        """As `Run`."""

    def listen(self, device: str, command: str, heard: Callable[[], object]) -> str:
        """Run a command until it ends: the reason. Calls `heard` when it begins, and whenever it
        prints.

        The next command to this device begins with a new connection.
        """

    def close(self) -> None:
        """End all commands and connections."""


# Devices that are network namespaces of this machine, as labs make them.

SECONDS = 30.0
_AT_ONCE = 8
_PIECE_BYTES = 1 << 16


class Namespaces:
    """Runs commands with `ip netns exec` in the namespaces PREFIX + device."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._listening: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        self._lock = threading.Lock()
        """No command begins to listen beside `close`, which would not know it."""

    def __call__(self, requests: Sequence[Request]) -> list[Said]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._ask, requests))

    def listen(self, device: str, command: str, heard: Callable[[], object]) -> str:
        """As `Line.listen`."""
        with self._lock:
            if self._closed:
                return "closed"
            try:
                process = subprocess.Popen(
                    self.command(device, command),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                )
            except OSError as error:
                return (error.strerror or str(error)).lower()
            self._listening.add(process)
        heard()
        last = b""
        with process:
            assert process.stdout is not None
            while piece := os.read(process.stdout.fileno(), _PIECE_BYTES):
                last = piece
                heard()
        with self._lock:
            self._listening.discard(process)
        lines = last.decode("utf-8", "replace").strip().splitlines()
        reason = f": {printable(lines[-1][:200])}" if lines else ""
        return f"exit status {process.returncode}{reason}"

    def close(self) -> None:
        """End the commands that listen."""
        with self._lock:
            self._closed = True
            for process in self._listening:
                process.kill()

    def _ask(self, request: Request) -> Said:
        command = self.command(request.device, request.command)
        try:
            done = subprocess.run(
                command, input=request.stdin, capture_output=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return Said(b"", f"not finished within {SECONDS:g} s")
        except OSError as error:
            return Said(b"", (error.strerror or str(error)).lower())
        if done.returncode == 0:
            return Said(done.stdout, "")
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = f": {printable(lines[-1][:200])}" if lines else ""
        return Said(done.stdout, f"exit status {done.returncode}{reason}")

    def command(self, device: str, command: str) -> list[str]:
        """The arguments of a command in the namespace of a device."""
        return ["ip", "netns", "exec", self._prefix + device, *shlex.split(command)]


# Which next hop a Linux router takes for a flow, by `ip route get`: one batch per device.
#
# Measured against the wire on Linux 6.18: right for IPv4 with every hash policy if the ingress port
# and both UDP ports are given. For IPv6 right with policy 1; with policies 0 and 2 only for flow
# label 0, which iproute2 cannot set; wrong with policy 3. On a device whose hardware forwards it
# shows the choice of the CPU: such answers have a flag and are not used.

COMMAND = "ip -j -force -batch -"
_PORT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,47}")
_Way: TypeAlias = tuple[IPv4Address | IPv6Address, IPv4Address | IPv6Address, str]
_OFFLOADED = {"offload", "rt_offload"}


class Query(NamedTuple):
    """A UDP flow to destination port `dport` that comes in by a port."""

    src: IPv4Address | IPv6Address
    dst: IPv4Address | IPv6Address
    sport: int
    dport: int
    port: str


def plain(query: Query) -> Query:
    """The query with the bits of its addresses only: a zone may be any text."""
    src, dst = ip_address(query.src.packed), ip_address(query.dst.packed)
    return query._replace(src=src, dst=dst)


class _Route(msgspec.Struct):
    dst: str = ""
    from_: str = msgspec.field(default="", name="from")
    iif: str = ""
    dev: str = ""
    type: str = ""
    flags: list[str] = []


_DECODER = msgspec.json.Decoder(list[_Route])


def is_port(name: str) -> bool:
    """Whether a name may be part of a command: no option, no comment, no second word."""
    return _PORT.fullmatch(name) is not None


def batch(queries: Sequence[Query]) -> bytes:
    """The standard input of COMMAND."""
    return "".join(
        f"route get {q.dst} from {q.src} iif {q.port} ipproto udp sport {q.sport} dport {q.dport}\n"
        for q in queries
    ).encode()


def ports_of(queries: Sequence[Query], output: bytes) -> list[str | None]:
    """The port that each query leaves by; None without an answer, or for one of no use.

    A failed query prints nothing. Failures depend on addresses and ingress port alone, so the
    answers of these belong to their queries in order; another number of answers is no answer.
    """
    answers: dict[_Way, list[str | None]] = {}
    for line in output.splitlines():
        answer = _answer(line)
        if answer is not None:
            answers.setdefault(answer[0], []).append(answer[1])
    rows: dict[_Way, list[int]] = {}
    for row, query in enumerate(queries):
        rows.setdefault((query.src, query.dst, query.port), []).append(row)
    ports: list[str | None] = [None] * len(queries)
    for way, query_rows in rows.items():
        answered = answers.get(way, [])
        if len(answered) == len(query_rows):
            for row, port in zip(query_rows, answered, strict=True):
                ports[row] = port
    return ports


def _answer(line: bytes) -> tuple[_Way, str | None] | None:
    """((source, destination, ingress port), port) of a line; None for anything else."""
    try:
        (route,) = _DECODER.decode(line)
        src, dst = ip_address(route.from_), ip_address(route.dst.partition("/")[0])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    useful = route.dev and not route.type and not _OFFLOADED & set(route.flags)
    return (src, dst, route.iif), route.dev if useful else None
