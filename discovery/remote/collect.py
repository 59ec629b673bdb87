"""The answers of all devices of an inventory, asked at once over SSH, as files of a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..asked import Asked, AskedCommand, write_asked
from ..dialects.dialect import Question
from ..dialects.registry import DIALECTS
from .inventory import Target
from .ssh import AT_ONCE, Answer, Client, Connection, reason_of, require_asyncssh

_UNFINISHED = "not asked to the end: the collection was interrupted"
_SUFFIXES = sorted({q.suffix for d in DIALECTS.values() for q in d.questions_for("host")})
"""Of all dialects and kinds: a device may have had another one before."""
Progress = Callable[[int, str], None]
"""Called with the number of devices that are done, and the name of the last."""


def collect(targets: Sequence[Target], folder: Path, progress: Progress | None = None) -> None:
    """Ask all devices; their answers go to `folder`, as `read_folder` reads them.

    A device that does not answer is one entry of `asked.json`; the others are asked all the same.
    Files of earlier answers of the same devices are replaced. After an interruption `asked.json`
    says of all devices that they were not asked to the end.
    """
    require_asyncssh()
    folder.mkdir(parents=True, exist_ok=True)
    write_asked(folder, {target.name: _asked(target, problem=_UNFINISHED) for target in targets})
    asked = asyncio.run(_all(targets, folder, progress))
    write_asked(folder, dict(zip((t.name for t in targets), asked, strict=True)))


async def _all(targets: Sequence[Target], folder: Path, progress: Progress | None) -> list[Asked]:
    client = Client()
    free = asyncio.Semaphore(AT_ONCE)
    done = 0

    async def ask(target: Target) -> Asked:
        nonlocal done
        async with free:
            asked = await _device(client, target, folder)
        done += 1
        if progress is not None:
            progress(done, target.name)
        return asked

    try:
        return list(await asyncio.gather(*(ask(target) for target in targets)))
    finally:
        client.close()


async def _device(client: Client, target: Target, folder: Path) -> Asked:
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
                said = await asyncio.gather(*(_ask(connection, q, target, folder) for q in wanted))
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


async def _ask(connection: Connection, question: Question, target: Target, folder: Path) -> Answer:
    """Ask one question. An answer that is not complete is kept beside, as NAME.SUFFIX.failed."""
    file = folder / f"{target.name}.{question.suffix}"
    failed = file.with_name(file.name + ".failed")
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
