"""Code blocks of the documentation: read, run as written, compared with the output on the page.

`python tests/support/pages.py PAGE...` writes the outputs on pages anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
_FENCED = re.compile(
    r"^```(\w*)\n(.*?)^```$(?:\n\n?^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE
)
_CONTINUED = re.compile(r"\\\n|(?<=\|)\n")
_GAP = "..."
"""A line of an output on a page that stands for any number of lines."""


class Block(NamedTuple):
    """One fenced block and the `text` block right after it."""

    page: str
    language: str
    text: str
    output: str | None


def pages() -> list[Path]:
    """README, CONTRIBUTING and all of docs/."""
    return [
        CHECKOUT / "README.md",
        CHECKOUT / "CONTRIBUTING.md",
        *sorted(CHECKOUT.glob("docs/*.md")),
    ]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page in order."""
    for found in _FENCED.finditer(page.read_text()):
        yield Block(page.relative_to(CHECKOUT).as_posix(), found[1], found[2], found[3])


def commands(block: Block) -> list[str]:
    """The command lines of a block, without their comments."""
    lines = _CONTINUED.sub(" ", block.text).splitlines()
    return [found for line in lines if (found := re.sub(r"\s+# .*$", "", line).strip())]


def working_folder(folder: Path) -> dict[str, str]:
    """Make `folder` look like the checkout to a command, and return the environment to run it in.

    `rocescope` is the one under test, `sudo` runs its arguments.
    """
    programs = folder / "bin"
    programs.mkdir(parents=True)
    scripts = {"rocescope": f"exec {shlex.quote(sys.executable)} -m rocescope", "sudo": "exec"}
    for name, script in scripts.items():
        (programs / name).write_text(f'#!/bin/sh\n{script} "$@"\n')
        (programs / name).chmod(0o755)
    (folder / "tests").symlink_to(CHECKOUT / "tests")
    return os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "80"}


def demo() -> str:
    """The last command line of `make demo`, after the set-up."""
    found = subprocess.run(
        ["make", "-s", "-n", "-o", ".venv/.installed", "demo"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return found.stdout.splitlines()[-1].replace(".venv/bin/", "").strip()


def run(
    command: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """The command line as a shell runs it; a failure anywhere in a pipe fails it."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip


def missing(shown: str, printed: str) -> str | None:
    """The first part of an output on a page that the command did not print, if any."""
    parts = _parts(shown)
    rest = _stripped(printed)
    if _GAP not in shown.splitlines():
        whole = _stripped(shown)
        return None if whole == rest else whole
    for part in parts:
        before, found, rest = rest.partition(part)
        if not found or (before and not before.endswith("\n")):
            return part
    return None


def _parts(shown: str) -> list[str]:
    gap = re.compile(rf"^{re.escape(_GAP)}$\n?", re.MULTILINE)
    return [part for part in map(_stripped, gap.split(shown)) if part]


def _stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def renewed(shown: str, printed: str) -> str:
    """The output on a page with every paragraph replaced by the printed one with its first line."""
    printed = _stripped(printed)
    if _GAP not in shown.splitlines():
        return printed + "\n"
    by_first_line = {text.partition("\n")[0]: text for text in printed.split("\n\n")}
    renewed = []
    for paragraph in re.split(
        rf"(\n\n|^{re.escape(_GAP)}$\n?)", _stripped(shown), flags=re.MULTILINE
    ):
        end = "\n" if paragraph.endswith("\n") else ""
        first = paragraph.strip("\n").partition("\n")[0]
        renewed.append(by_first_line[first] + end if first in by_first_line else paragraph)
    return "".join(renewed) + "\n"


def main() -> None:
    """Run every block with an output and write what it printed to the page."""
    import tempfile

    for name in sys.argv[1:]:
        page = Path(name).resolve()
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            environment = working_folder(folder)
            text = page.read_text()
            for block in blocks(page):
                if block.language != "sh":
                    continue
                printed = ""
                for command in commands(block):
                    if block.output is not None or " -o " in command:
                        line = demo() if command == "make demo" else command
                        done = run(line, folder, environment)
                        printed = done.stdout
                if block.output is not None and not printed.strip():
                    # A reader's own file, for which only the tests have a capture.
                    print(f"{name}: kept the output of: {line}\n{done.stderr}", file=sys.stderr)
                elif block.output is not None:
                    head, shown, rest = text.partition(
                        f"{block.text}```\n\n```text\n{block.output}"
                    )
                    output = renewed(block.output, printed)
                    text = f"{head}{shown.removesuffix(block.output)}{output}{rest}"
            page.write_text(text)


if __name__ == "__main__":
    main()
