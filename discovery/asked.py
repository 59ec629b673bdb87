"""What was asked of devices, when, and with what outcome: `asked.json` in a folder of answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ..analyzer.results.base import about
from ..analyzer.saved_file import decoded

ASKED = "asked.json"
_UnixTime = Annotated[int, Meta(ge=0, le=(1 << 63) - 1, description="Unix time")]


class AskedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command."""

    suffix: Annotated[str, about("the answer is in the file NAME.SUFFIX")]
    command: str
    began_ns: _UnixTime
    ended_ns: _UnixTime
    output_bytes: Annotated[int, Meta(ge=0)]
    problem: Annotated[str, about("why there is no complete answer; empty: there is")]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One device."""

    dialect: str
    kind: Literal["switch", "host"]
    ssh: Annotated[str, about("host in ssh_config")]
    answers: list[AskedCommand] = []
    problem: Annotated[str, about("why it was not asked; empty: it was")] = ""

    def problem_of(self, suffix: str) -> str:
        """Why a question has no complete answer; empty if it has one or was not asked."""
        return next((said.problem for said in self.answers if said.suffix == suffix), self.problem)

    def time_ns(self, suffix: str) -> int | None:
        """The Unix time at which a command ended."""
        return next((said.ended_ns for said in self.answers if said.suffix == suffix), None)


def write_asked(folder: Path, asked: Mapping[str, Asked]) -> None:
    """Write `asked.json`; the old one stays until the new one is complete."""
    new = folder / f"{ASKED}.new"
    new.write_bytes(msgspec.json.format(msgspec.json.encode(asked)) + b"\n")
    new.replace(folder / ASKED)


def read_asked(folder: Path) -> dict[str, Asked]:
    """The devices of `asked.json` by name; none without the file. UsageError names the file."""
    return decoded(folder / ASKED, dict[str, Asked], "a list of asked devices", b"") or {}
