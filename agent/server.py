"""A small HTTP server for a few readers: bounded connections, bounded time, nothing to write."""
# prometheus_client 0.26 has no bounds, and one silent TLS connection blocks all its other readers.

from __future__ import annotations

import errno
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ..analyzer.errors import RocescopeError, UsageError

_CONNECTIONS = 16
_SECONDS = 15.0
"""A connection may last so long, however slowly it sends or reads."""
_POLL_S = 0.2
_MOST_BODY = 1 << 16
"""Of a request that is refused, in bytes."""
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """A GET request."""

    path: str
    query: dict[str, str]
    accept: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets."""

    body: bytes
    content_type: str = _TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, and who may read."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    """Readers need a certificate of this authority."""
    without_tls: bool = False
    """Also on addresses that other hosts reach."""

    def check(self) -> None:
        """UsageError for combinations that make no sense, or that show traffic to everybody."""
        if (self.certificate is None) != (self.key is None):
            raise UsageError("--tls-certificate and --tls-key must be given together")
        if self.client_ca is not None and self.certificate is None:
            raise UsageError("--client-ca needs --tls-certificate and --tls-key")
        if self.certificate is None and not self.without_tls and not is_loopback(self.host):
            raise UsageError(
                f"{self.host} is reachable from other hosts: give --tls-certificate and "
                "--tls-key, or --without-tls"
            )

    @property
    def url(self) -> str:
        """The address of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:9791`, `[::1]:9791` or `:9791` for all addresses; UsageError."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--listen {text}: give ADDRESS:PORT, such as 127.0.0.1:9791")
    host = {"": "::", "localhost": "127.0.0.1"}.get(host, host)
    try:
        return str(ip_address(host)), int(port)
    except ValueError:
        raise UsageError(
            f"--listen {text}: {host} is not an address, such as 127.0.0.1 or [::1]"
        ) from None


def is_loopback(host: str) -> bool:
    """Whether only this host reaches an address."""
    return ip_address(host).is_loopback


class Server:
    """Answers GET requests in threads. It listens from the start; threads start with `start`.

    RocescopeError if the port is in use or a certificate cannot be read. Give up privileges
    between both: threads keep those that they start with.
    """

    def __init__(self, listening: Listening) -> None:
        listening.check()
        self._listening = listening
        tls = _tls(listening)
        self._http = _bound(listening, tls)
        self.port: int = self._http.server_address[1]
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address, with the port in use."""
        listening = self._listening
        return Listening(listening.host, self.port, listening.certificate, listening.key).url

    def start(self, answer: Callable[[Request], Answer]) -> None:
        """Answer requests from now on."""
        self._http.answer = answer
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(_POLL_S,), name="rocescope-http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Take no more requests, and end the open connections."""
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
            self._thread = None
        self._http.server_close()
        self._http.end_connections()


def _tls(listening: Listening) -> ssl.SSLContext | None:
    if listening.certificate is None or listening.key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    path = listening.certificate
    try:
        # An encrypted key would ask for its password on the terminal.
        context.load_cert_chain(path, listening.key, password=lambda: b"")
        if listening.client_ca is not None:
            path = listening.client_ca
            context.load_verify_locations(path)
            context.verify_mode = ssl.CERT_REQUIRED
    except ssl.SSLError as error:
        what = (error.reason or "no certificate").replace("_", " ").lower()
        raise RocescopeError(f"{path}: no usable certificate or key: {what}") from None
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise RocescopeError(f"{path} or its key: {what}") from None
    return context


def _bound(listening: Listening, tls: ssl.SSLContext | None) -> _Http:
    where = f"{listening.host} port {listening.port}"
    try:
        return _Http(listening.host, listening.port, tls)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise RocescopeError(f"{where} is in use: give another --listen") from None
        if error.errno == errno.EACCES:
            raise RocescopeError(f"{where}: no permission to listen there") from None
        raise RocescopeError(f"{where}: {(error.strerror or str(error)).lower()}") from None


@dataclass(slots=True, eq=False)
class _Connection:
    request: socket.socket
    began: float
    answering: bool = False
    """Its request is complete, and its answer is not ready: nobody waits for the reader."""

    def end(self) -> None:
        """What waits for the reader fails, and the thread ends."""
        with suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)


class _Http(HTTPServer):
    request_queue_size = 64

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        if isinstance(ip_address(host), IPv6Address):
            self.address_family = socket.AF_INET6
        self.answer: Callable[[Request], Answer] = lambda _: Answer(b"")
        self._tls = tls
        self._lock = threading.Lock()
        self._open: dict[object, _Connection] = {}
        """By the address of the reader; the oldest comes first."""
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Without a name lookup, which may hang."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Connections that have just ended do not keep the port from the next agent.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "rocescope", self.server_address[1]

    def process_request(self, request: Any, client_address: object) -> None:
        """In a thread. If there are too many, the oldest that waits for its reader makes room."""
        with self._lock:
            if len(self._open) >= _CONNECTIONS:
                waiting = [key for key, one in self._open.items() if not one.answering]
                if not waiting:
                    self.shutdown_request(request)
                    return
                self._open.pop(waiting[0]).end()
            connection = _Connection(request, time.monotonic())
            self._open[client_address] = connection
        serve = threading.Thread(
            target=self._serve,
            args=(connection, client_address),
            name="rocescope-get",
            daemon=True,
        )
        try:
            serve.start()
        except RuntimeError:  # no more threads: the server continues
            self._forget(connection, client_address)
            self.shutdown_request(request)

    def _serve(self, connection: _Connection, client_address: object) -> None:
        request = connection.request
        try:
            request.settimeout(_SECONDS)
            # OSError, ssl.SSLError: the reader has gone or speaks something else.
            with suppress(OSError, ValueError):
                if self._tls is None:
                    self.finish_request(request, client_address)
                else:
                    with self._tls.wrap_socket(request.dup(), server_side=True) as wrapped:
                        self.finish_request(wrapped, client_address)
        finally:
            self._forget(connection, client_address)
            self.shutdown_request(request)

    def _forget(self, connection: _Connection, client_address: object) -> None:
        """One that made room may have left its place to another from the same address."""
        with self._lock:
            if self._open.get(client_address) is connection:
                del self._open[client_address]

    def answer_to(self, request: Request, client_address: object) -> Answer:
        """The answer; meanwhile the connection cannot make room for others."""
        connection = self._open.get(client_address)
        if connection is None:
            return self.answer(request)
        connection.answering = True
        try:
            return self.answer(request)
        finally:
            connection.answering = False

    def service_actions(self) -> None:
        """End connections that last too long."""
        now = time.monotonic()
        with self._lock:
            for connection in self._open.values():
                if now - connection.began > _SECONDS:
                    connection.end()

    def end_connections(self) -> None:
        """End all connections; their threads end with them."""
        with self._lock:
            for connection in self._open.values():
                connection.end()

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that has gone is no event."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    server_version, sys_version = "rocescope", ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer one request."""
        self._send(self._answer())

    def do_HEAD(self) -> None:
        """The same without the body."""
        self._send(self._answer(), body=False)

    def _refuse(self) -> None:
        """Nothing can be written here."""
        # A connection that ends with unread data loses the answer.
        with suppress(ValueError):
            self.rfile.read(max(0, min(int(self.headers.get("Content-Length") or 0), _MOST_BODY)))
        status = HTTPStatus.METHOD_NOT_ALLOWED
        body = f"{status.phrase.lower()}\n".encode()
        self._send(Answer(body, status=status, headers=(("Allow", "GET, HEAD"),)))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse  # noqa: N815

    def _answer(self) -> Answer:
        try:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query, max_num_fields=8))
        except ValueError:
            return Answer(b"bad request\n", status=HTTPStatus.BAD_REQUEST)
        try:
            request = Request(parts.path, query, self.headers.get("Accept") or "")
            return self.server.answer_to(request, self.client_address)
        except UsageError as error:
            return Answer(f"{error}\n".encode(), status=HTTPStatus.BAD_REQUEST)
        except Exception as error:
            line = f"cannot answer: {type(error).__name__}\n".encode()
            return Answer(line, status=HTTPStatus.INTERNAL_SERVER_ERROR)

    def _send(self, answer: Answer, body: bool = True) -> None:
        self.send_response_only(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        if body:
            self.wfile.write(answer.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """One short line; nothing of the request returns in it."""
        status = HTTPStatus(code)
        self._send(Answer(f"{status.phrase.lower()}\n".encode(), status=status))

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: any reader could fill the log."""
