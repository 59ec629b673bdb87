"""Commands on the devices of an inventory over connections that stay open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from ...analyzer.words import printable
from ..asking.commands import Request, Said
from .inventory import Target
from .ssh import AT_ONCE, Client, Connection, NotReached, require_asyncssh


class OverSsh:
    """Runs commands over SSH. A device is connected on its first command; one that could not be
    reached is not tried again, except by `listen`."""

    def __init__(self, targets: Sequence[Target]) -> None:
        require_asyncssh()
        self._targets = {target.name: target for target in targets}
        self._connections: dict[str, asyncio.Task[Connection]] = {}
        self._client = Client()
        self._logins = asyncio.Semaphore(AT_ONCE)
        self._stacks: dict[str, AsyncExitStack] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="ssh", daemon=True).start()

    def __call__(self, requests: Sequence[Request]) -> list[Said]:
        async def every() -> list[Said]:
            return list(await asyncio.gather(*map(self._ask, requests)))

        return asyncio.run_coroutine_threadsafe(every(), self._loop).result()

    def listen(self, device: str, command: str, heard: Callable[[], object]) -> str:
        """As `Line.listen`."""
        return asyncio.run_coroutine_threadsafe(
            self._listen(device, command, heard), self._loop
        ).result()

    def close(self) -> None:
        """Close all connections."""

        async def every() -> None:
            for name in list(self._stacks):
                await self._stacks.pop(name).aclose()
            self._client.close()

        asyncio.run_coroutine_threadsafe(every(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _listen(self, device: str, command: str, heard: Callable[[], object]) -> str:
        target = self._targets.get(device)
        if target is None:
            return "not in the inventory"
        try:
            connection = await self._connected(target)
            heard()
            answer = await connection.ask(command, lambda _: heard(), seconds=None, most_bytes=None)
            reason = answer.problem or "it ended"
        except NotReached as error:
            reason = str(error)
            self._client.forget_failures()
        self._connections.pop(device, None)
        if (stack := self._stacks.pop(device, None)) is not None:
            await stack.aclose()
        return printable(reason)

    async def _ask(self, request: Request) -> Said:
        target = self._targets.get(request.device)
        if target is None:
            return Said(b"", "not in the inventory")
        try:
            connection = await self._connected(target)
        except NotReached as error:
            return Said(b"", printable(str(error)))
        output = bytearray()
        answer = await connection.ask(
            request.command, output.extend, stdin=request.stdin, most_bytes=request.most_bytes
        )
        return Said(bytes(output), printable(answer.problem))

    async def _connected(self, target: Target) -> Connection:
        if target.name not in self._connections:
            self._connections[target.name] = asyncio.create_task(self._open(target))
        return await self._connections[target.name]

    async def _open(self, target: Target) -> Connection:
        stack = AsyncExitStack()
        async with self._logins:
            connection = await stack.enter_async_context(self._client.connected(target.ssh))
        self._stacks[target.name] = stack
        return connection
