"""Captures in an object store: s3://BUCKET/KEY, through pyarrow's filesystem."""

from __future__ import annotations

import io
import os
import re
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import StoreError, UnreadableInput, UsageError, require

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from pyarrow import fs

SCHEME = "s3://"
_ENDPOINTS = "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"
_FIRST_BYTES = 1 << 16
"""Enough to look at a capture: nothing is fetched ahead before more is read."""
_PIECE_BYTES = 1 << 21
_PIECES_AHEAD = 4
"""Fetched side by side, as each takes a round trip. With the piece that is read they are all of an
object that is in memory."""
_ATTEMPTS = 5
_CODE = re.compile(r"AWS Error (UNKNOWN \(HTTP status \d+\)|[A-Z_]+)")
_REFUSED = re.compile(
    "ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH"
    "|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION_TOKEN|REQUEST_EXPIRED|INVALID_SIGNATURE"
    r"|EXPIRED_TOKEN|HTTP status 40[13]\b"
)
_ELSEWHERE = re.compile(r"HTTP status 30[17]\b")


def is_stored(path: str) -> bool:
    """Whether a path is the address of an object."""
    return path.startswith(SCHEME)


class StoredObject(io.RawIOBase):
    """The bytes of an object from the beginning, in bounded memory.

    UnreadableInput if it is missing. StoreError, here and while reading, if the store refuses or
    does not answer: that is no damage of the capture, and another try may succeed.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        key = _key(address)
        if "/" not in key.rstrip("/"):
            raise _nothing(address)
        try:
            self._object = _store().open_input_file(key)
            self.size: int = self._object.size()
            """Bytes."""
            self.tag: str = self._object.metadata().get("ETag", b"").decode("ascii", "replace")
            """Another one when the content is another one."""
        except (OSError, ValueError) as error:
            raise _explained(address, error) from None
        self._threads: ThreadPoolExecutor | None = None
        self._fetched: deque[Future[bytes]] = deque()
        self._asked = 0
        """Bytes that are fetched or about to be."""
        self._rest = memoryview(b"")

    def readinto(self, buffer: Any) -> int:
        """Fill the start of `buffer`; returns the number of bytes, 0 only at the end."""
        if self.closed:
            raise ValueError("closed")
        if not self._rest:
            self._rest = self._next()
        view = memoryview(buffer)
        got = min(len(view), len(self._rest))
        view[:got] = self._rest[:got]
        self._rest = self._rest[got:]
        return got

    def _next(self) -> memoryview:
        if not self._asked:
            self._asked = min(_FIRST_BYTES, self.size)
            return memoryview(self._read(0, self._asked))
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(_PIECES_AHEAD, "rocescope-fetch")
        while self._asked < self.size and len(self._fetched) < _PIECES_AHEAD:
            count = min(_PIECE_BYTES, self.size - self._asked)
            self._fetched.append(self._threads.submit(self._read, self._asked, count))
            self._asked += count
        return memoryview(self._fetched.popleft().result() if self._fetched else b"")

    def _read(self, offset: int, count: int) -> bytes:
        try:
            data: bytes = self._object.read_at(count, offset)
        except (OSError, ValueError) as error:
            raise _explained(self._address, error) from None
        if len(data) < count:
            raise StoreError(
                f"{self._address}: the object ends after {offset + len(data)} of {self.size} bytes:"
                " it was replaced while it was read; run again"
            )
        return data

    def readable(self) -> bool:
        """See RawIOBase."""
        return True

    def close(self) -> None:
        """Ends fetching."""
        if not self.closed and self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        super().close()


def objects_at(address: str) -> list[str]:
    """The object with this address, or all below this prefix, sorted.

    UsageError for no address, UnreadableInput if there is nothing, StoreError as `StoredObject`.
    """
    key = _key(address).rstrip("/")
    try:
        store = _store()
        if not address.endswith("/") and "/" in key and store.get_file_info(key).is_file:
            return [address]
        infos = store.get_file_info(_below(key))
    except (OSError, ValueError) as error:
        raise _explained(address, error) from None
    names = sorted(SCHEME + info.path for info in infos if info.is_file)
    if not names:
        raise _nothing(address)
    return names


def _below(key: str) -> fs.FileSelector:
    from pyarrow import fs

    return fs.FileSelector(key, recursive=True)


def _key(address: str) -> str:
    """BUCKET/KEY. UsageError for credentials and parameters: addresses are in plans and results."""
    key = address.removeprefix(SCHEME)
    bucket = key.partition("/")[0]
    if "@" in bucket or ":" in bucket or "?" in key:
        raise UsageError(
            "an s3:// address holds more than a bucket and a prefix: give s3://BUCKET/PREFIX, and"
            " credentials as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or in ~/.aws/credentials"
        )
    if "*" in key:
        raise UsageError(f"{address}: patterns are for files: give a prefix, s3://BUCKET/PREFIX")
    if not bucket or "//" in key:
        raise UsageError(f"{address} is not an address such as s3://BUCKET/PREFIX")
    return key


@cache
def _store() -> fs.S3FileSystem:
    require("pyarrow")
    from pyarrow import fs

    # pyarrow does not read this variable of the AWS tools itself.
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
    return fs.S3FileSystem(
        endpoint_override=endpoint,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )


def _explained(address: str, error: Exception) -> UnreadableInput | StoreError:
    """Never with the text of the store, which may repeat what it was sent."""
    if isinstance(error, FileNotFoundError) or "NO_SUCH_" in str(error):
        return _nothing(address)
    match = _CODE.search(str(error))
    code = match[1] if match else type(error).__name__
    if _REFUSED.search(code):
        return StoreError(
            f"{address}: the store refuses access ({code}): check the credentials"
            " (AWS_ACCESS_KEY_ID, AWS_PROFILE) and what they may read"
        )
    if _ELSEWHERE.search(code):
        return StoreError(f"{address}: the bucket is in another region: set AWS_REGION")
    if code == "NETWORK_CONNECTION":
        return StoreError(
            f"{address}: the store does not answer: check AWS_ENDPOINT_URL, AWS_REGION and the"
            " network; run again"
        )
    return StoreError(f"{address}: the store cannot deliver the object ({code}): run again")


def _nothing(address: str) -> UnreadableInput:
    return UnreadableInput(
        f"{address}: no such bucket, object or prefix; check the address and AWS_ENDPOINT_URL"
    )
