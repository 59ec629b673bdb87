"""The answers of all devices of an inventory, asked at once over SSH, as files of a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from ..asked import ASKED, Asked, AskedCommand, write_asked
from ..dialects.dialect import Question
from .inventory import Target
from .ssh import Answer, Connection, NotReached, connected, require_asyncssh

_AT_ONCE = 128
"""Connections: each takes a file descriptor, of which a process may have 1024."""
Progress = Callable[[int, str], None]
"""Called with the number of devices that are done, and the name of the last."""


def collect(targets: Sequence[Target], folder: Path, progress: Progress | None = None) -> None:
    """Ask all devices; their answers go to `folder`, as `read_folder` reads them.

    A device that does not answer is one entry of `asked.json`; the others are asked all the same.
    Files of earlier answers of the same devices are replaced.
    """
    require_asyncssh()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ASKED).unlink(missing_ok=True)
    asked = asyncio.run(_all(targets, folder, progress))
    write_asked(folder, dict(zip((t.name for t in targets), asked, strict=True)))


async def _all(targets: Sequence[Target], folder: Path, progress: Progress | None) -> list[Asked]:
    free = asyncio.Semaphore(_AT_ONCE)
    done = 0

    async def one(target: Target) -> Asked:
        nonlocal done
        async with free:
            asked = await _device(target, folder)
        done += 1
        if progress is not None:
            progress(done, target.name)
        return asked

    return list(await asyncio.gather(*(one(target) for target in targets)))


async def _device(target: Target, folder: Path) -> Asked:
    questions = target.dialect.questions_for(target.kind)
    for question in questions:
        (folder / f"{target.name}.{question.suffix}").unlink(missing_ok=True)
    try:
        async with connected(target.ssh) as connection:
            answers = await asyncio.gather(
                *(_ask(connection, question, target, folder) for question in questions)
            )
    except NotReached as error:
        return Asked(
            dialect=target.dialect.name, kind=target.kind, ssh=target.ssh, problem=str(error)
        )
    return Asked(
        dialect=target.dialect.name,
        kind=target.kind,
        ssh=target.ssh,
        answers=[_about(q, a) for q, a in zip(questions, answers, strict=True)],
    )


async def _ask(connection: Connection, question: Question, target: Target, folder: Path) -> Answer:
    """Ask one question. An answer that is not complete is kept beside, as NAME.SUFFIX.failed."""
    file = folder / f"{target.name}.{question.suffix}"
    failed = file.with_name(file.name + ".failed")
    failed.unlink(missing_ok=True)
    with failed.open("wb") as out:
        answer = await connection.ask(question.command, out.write)
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
