"""Runs the commands of many devices at once and collects the answers."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from ..analyzer.errors import UsageError
from ..analyzer.words import printable
from .asking import Line, Namespaces, Request, Said
from .dialects.dialect import Dialect, Question
from .dialects.registry import DIALECTS
from .inventory import Target, read_inventory
from .results import Asked, AskedCommand, write_asked
from .ssh import (
    AT_ONCE,
    OUTPUT_BYTES,
    Answer,
    Client,
    Connection,
    NotReached,
    reason_of,
    require_asyncssh,
)

# Commands on the devices of an inventory over connections that stay open.


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


# How devices are reached: `--devices`.

NAMESPACES = "netns:"
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|")


def parse_devices(text: str) -> Line:
    """`netns:PREFIX`: device leaf1 is the network namespace PREFIXleaf1 of this machine; else the
    file of an inventory, whose devices are reached over SSH.

    UsageError for another text, or without asyncssh.
    """
    if text.startswith(NAMESPACES):
        prefix = text.removeprefix(NAMESPACES)
        if not _PREFIX.fullmatch(prefix):
            raise UsageError(f"--devices {text!r}: {prefix!r} is not a prefix of namespaces")
        return Namespaces(prefix)
    return OverSsh(_targets(text))


def dialects_of(text: str) -> dict[str, Dialect]:
    """The dialects of the devices of an inventory, by name; none for namespaces, all of Linux."""
    if text.startswith(NAMESPACES):
        return {}
    return {target.name: target.dialect for target in _targets(text)}


def _targets(text: str) -> list[Target]:
    file = Path(text)
    if not file.is_file():
        raise UsageError(f"--devices {text!r}: give an inventory, or netns:PREFIX")
    return read_inventory(file, DIALECTS)


_UNFINISHED = "not asked to the end: the collection was interrupted"
_SUFFIXES = sorted({q.suffix for d in DIALECTS.values() for q in d.questions_for("host")})
"""Of all dialects and kinds: a device may have had another one before."""
Progress = Callable[[int, str], None]
"""Called with the number of devices that are done, and the name of the last."""


def collect(
    targets: Sequence[Target],
    folder: Path,
    progress: Progress | None = None,
    most_bytes: int = OUTPUT_BYTES,
) -> None:
    """Ask all devices; their answers go to `folder`, as `read_folder` reads them.

    most_bytes: of an answer; one of more is cut and not used.

    A device that does not answer is one entry of `asked.json`; the others are asked all the same.
    Files of earlier answers of the same devices are replaced. After an interruption `asked.json`
    says of all devices that they were not asked to the end.
    """
    require_asyncssh()
    folder.mkdir(parents=True, exist_ok=True)
    write_asked(folder, {target.name: _asked(target, problem=_UNFINISHED) for target in targets})
    asked = asyncio.run(_all(targets, folder, progress, most_bytes))
    write_asked(folder, dict(zip((t.name for t in targets), asked, strict=True)))


async def _all(
    targets: Sequence[Target], folder: Path, progress: Progress | None, most_bytes: int
) -> list[Asked]:
    client = Client()
    free = asyncio.Semaphore(AT_ONCE)
    done = 0

    async def ask(target: Target) -> Asked:
        nonlocal done
        async with free:
            asked = await _device(client, target, folder, most_bytes)
        done += 1
        if progress is not None:
            progress(done, target.name)
        return asked

    try:
        return list(await asyncio.gather(*(ask(target) for target in targets)))
    finally:
        client.close()


async def _device(client: Client, target: Target, folder: Path, most_bytes: int) -> Asked:
    questions = target.dialect.questions_for(target.kind)
    first = [q for q in questions if not q.instead_of]
    instead = [q for q in questions if q.instead_of]
    try:
        for suffix in _SUFFIXES:
            for name in (f"{target.name}.{suffix}", f"{target.name}.{suffix}.failed"):
                (folder / name).unlink(missing_ok=True)
        async with client.connected(target.ssh) as connection:
            answers: dict[Question, Answer] = {}
            for turn in (first, instead):
                wanted = [q for q in turn if not q.instead_of or _failed(q.instead_of, answers)]
                said = await asyncio.gather(
                    *(_ask(connection, q, target, folder, most_bytes) for q in wanted)
                )
                answers.update(zip(wanted, said, strict=True))
    except Exception as error:  # whatever one device causes, the others are asked
        return _asked(target, problem=reason_of(error))
    return _asked(target, [_about(q, a) for q, a in answers.items()])


def _failed(suffix: str, answers: Mapping[Question, Answer]) -> bool:
    return any(a.problem or not a.output_bytes for q, a in answers.items() if q.suffix == suffix)


def _asked(target: Target, answers: Sequence[AskedCommand] = (), problem: str = "") -> Asked:
    return Asked(
        dialect=target.dialect.name,
        kind=target.kind,
        ssh=target.ssh,
        answers=list(answers),
        problem=problem,
    )


async def _ask(
    connection: Connection, question: Question, target: Target, folder: Path, most_bytes: int
) -> Answer:
    """Ask one question. An answer that is not complete is kept beside, as NAME.SUFFIX.failed."""
    file = folder / f"{target.name}.{question.suffix}"
    failed = file.with_name(file.name + ".failed")
    with failed.open("wb") as out:
        answer = await connection.ask(question.command, out.write, most_bytes=most_bytes)
    if not answer.problem or (question.partial and answer.status and answer.output_bytes):
        failed.rename(file)
    elif not answer.output_bytes:
        failed.unlink()
    return answer


def _about(question: Question, answer: Answer) -> AskedCommand:
    return AskedCommand(
        suffix=question.suffix,
        command=question.command,
        began_ns=answer.began_ns,
        ended_ns=answer.ended_ns,
        output_bytes=answer.output_bytes,
        problem=answer.problem,
    )
