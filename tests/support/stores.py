"""An object store on the loopback interface: the S3 of moto, asked over HTTP."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from rocescope.analyzer.capture import stored

BUCKET = "captures"
KEY_ID, SECRET = "AKIDOFTHETEST", "secret-of-the-test"


class Store:
    """A running store with one bucket."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._ask("POST", "moto-api/reset", b"")  # stores of one process share their state
        self._ask("PUT", BUCKET)

    def put(self, key: str, content: bytes | Path) -> str:
        """Store an object; returns its address."""
        data = content if isinstance(content, bytes) else content.read_bytes()
        self._ask("PUT", f"{BUCKET}/{key}", data)
        return f"s3://{BUCKET}/{key}"

    def delete(self, key: str) -> None:
        """Delete an object."""
        self._ask("DELETE", f"{BUCKET}/{key}")

    def refuse(self) -> None:
        """From now on the store knows no credentials."""
        self._ask("POST", "moto-api/reset-auth", b"0")

    def allow(self) -> None:
        """From now on the store takes any credentials."""
        self._ask("POST", "moto-api/reset-auth", b"inf")

    def _ask(self, method: str, path: str, data: bytes | None = None) -> None:
        headers = {
            "Content-Type": "application/octet-stream",  # else the body would be taken for a form
            "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request",
        }
        with urlopen(Request(f"{self.url}/{path}", data, headers, method=method)):
            pass


@contextmanager
def store() -> Iterator[Store]:
    """A store; this process and those that it starts read from it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        one = Store(f"http://{host}:{port}")
        with settings(one.url):
            try:
                yield one
            finally:
                one.allow()
    finally:
        server.stop()


@contextmanager
def settings(url: str) -> Iterator[None]:
    """Read from the store at `url`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        patch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.delenv("AWS_PROFILE", raising=False)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        stored._store.cache_clear()
        try:
            yield
        finally:
            stored._store.cache_clear()
