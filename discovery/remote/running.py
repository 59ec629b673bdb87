"""Commands on the devices of an inventory over connections that stay open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack

from ...analyzer.words import printable
from ..asking.commands import Request, Said
from .inventory import Target
from .ssh import AT_ONCE, Client, Connection, NotReached, require_asyncssh


class OverSsh:
    """Runs commands over SSH. A device is connected on its first command; one that could not be
    reached is not tried again."""

    def __init__(self, targets: Sequence[Target]) -> None:
        require_asyncssh()
        self._targets = {target.name: target for target in targets}
        self._connections: dict[str, asyncio.Task[Connection]] = {}
        self._client = Client()
        self._logins = asyncio.Semaphore(AT_ONCE)
        self._stack = AsyncExitStack()
        self._stack.callback(self._client.close)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="ssh", daemon=True).start()

    def __call__(self, requests: Sequence[Request]) -> list[Said]:
        async def every() -> list[Said]:
            return list(await asyncio.gather(*map(self._one, requests)))

        return asyncio.run_coroutine_threadsafe(every(), self._loop).result()

    def close(self) -> None:
        """Close all connections."""
        asyncio.run_coroutine_threadsafe(self._stack.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _one(self, request: Request) -> Said:
        target = self._targets.get(request.device)
        if target is None:
            return Said(b"", "not in the inventory")
        if target.name not in self._connections:
            self._connections[target.name] = asyncio.create_task(self._open(target))
        try:
            connection = await self._connections[target.name]
        except NotReached as error:
            return Said(b"", printable(str(error)))
        output = bytearray()
        answer = await connection.ask(request.command, output.extend, stdin=request.stdin)
        return Said(bytes(output), printable(answer.problem))

    async def _open(self, target: Target) -> Connection:
        async with self._logins:
            return await self._stack.enter_async_context(self._client.connected(target.ssh))
