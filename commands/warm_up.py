"""`rocescope warm-up`: compile kernels ahead of use, on all cores."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Annotated, Literal, TypeAlias, get_args

from ..analyzer.errors import RocescopeError
from ..analyzer.pipeline.ahead import PARTS, call_of, in_python
from ..kernels.cache import cache_base
from .options.progress import ProgressAs, steps_shown
from .table import Parameter

Use: TypeAlias = Literal[
    "aggregate", "analyze", "check", "export", "live", "replay", "sweep", "tui"
]
USES: tuple[Use, ...] = get_args(Use)

_PATTERN = "--pattern permutation:message-size=4KiB"
_FABRIC = "--fabric leaf-spine:leaves=2,spines=2,hosts=2"
_ANALYZE = ("analyze plain", "analyze plain other", "analyze mrc", "analyze blocks")
_LINES: dict[Use, tuple[str, ...]] = {
    "aggregate": (
        "aggregate plain --fabric leaf-spine:leaves=2,spines=2,hosts=4 "
        "--jobs workers=2,fragments=20,window=10,iterations=1",
        "aggregate --fabric leaf-spine:leaves=2,spines=2,hosts=4 --loss 0.01 "
        "--jobs workers=4,racks=2,fragments=20,window=10,iterations=1",
    ),
    "analyze": _ANALYZE,
    "check": ("check plain other", "check mrc"),
    "export": (*_ANALYZE, "export --pcapng plain other", "export --pcapng blocks"),
    "replay": tuple(
        f"replay {_PATTERN} {_FABRIC} {how}"
        for how in ("", "--packets -s all", "-s ecmp --transport recovery=go-back-n")
    ),
    "sweep": (f"sweep {_PATTERN} {_FABRIC} --seeds 0:100",),
}
"""Command lines that run the kernels of a command; keys of `_CAPTURES` are small captures."""
_CAPTURES = {
    "plain": "permutation --hosts 2 --messages 1 --message-size 4KiB",
    "other": "permutation --hosts 2 --messages 1 --message-size 4KiB --seed 2",
    "mrc": "mrc --messages 1 --message-size 1MiB --loss 0.05 --trim 0.05",
}


def warm_up(
    *,
    for_: Annotated[list[Use] | None, Parameter(name="--for", negative="")] = None,
    progress: ProgressAs = "auto",
) -> int:
    """Compile the kernels of other commands, on all cores; compiled kernels are only loaded.

    Parameters
    ----------
    for_
        Compile only the kernels of this command; may be repeated.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    """
    base = cache_base()
    if base is None:
        raise RocescopeError("no writable folder for compiled kernels: set NUMBA_CACHE_DIR")
    cores = len(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory() as folder,
        steps_shown(progress) as tell,
        ThreadPoolExecutor(cores) as pool,
    ):
        captures = {name: os.path.join(folder, f"{name}.pcap") for name in _CAPTURES}
        # Every use needs these, and they take longest.
        work = [pool.submit(_run, call_of(part)) for part in PARTS]
        writing = [
            pool.submit(_run, _command(f"generate {how} -o {captures[name]}"))
            for name, how in _CAPTURES.items()
        ]
        for capture in writing:
            capture.result()
        captures["blocks"] = os.path.join(folder, "blocks.pcapng")
        with open(captures["plain"], "rb") as pcap, open(captures["blocks"], "wb") as pcapng:
            pcapng.write(_pcapng(pcap.read()))
        work += [pool.submit(_run, code) for code in _codes(for_ or list(USES), captures)]
        for done, future in enumerate(as_completed(work)):
            future.result()
            if tell is not None:
                tell("compiling kernels", done + 1, len(work))
    print(f"compiled kernels are kept in {base}")
    return 0


def _codes(uses: list[Use], captures: dict[str, str]) -> Iterator[str]:
    """Python statements that compile the kernels of these commands."""
    if "live" in uses:
        yield (
            "from rocescope.analyzer.measures.series import DEFAULT_WINDOW_NS; "
            "from rocescope.probes.live_analysis import warm_up; warm_up(DEFAULT_WINDOW_NS)"
        )
    lines = {line: None for use in uses for line in _LINES.get(use, _LINES["analyze"])}
    for line in lines:
        words = " ".join(captures.get(word, word) for word in line.split())
        form = "" if line.startswith("export") else "--format json"
        yield _command(f"{words} {form} --progress none -o {os.devnull}")


def _pcapng(pcap: bytes) -> bytes:
    """The first packet of a pcap as a pcapng, whose blocks have their own kernels."""
    from ..analyzer.capture.pcapng_writer import (
        interface_description,
        packet_block,
        section_header,
    )
    from ..analyzer.wire.frames import LINKTYPE_ETHERNET
    from ..analyzer.wire.taps import Tap

    (length,) = struct.unpack_from("<I", pcap, 24 + 8)
    packet = packet_block(0, 0, pcap[24 + 16 : 24 + 16 + length], length)
    tap = interface_description(Tap("eth0", LINKTYPE_ETHERNET))
    return section_header("", "", ()) + tap + packet


def _command(line: str) -> str:
    return f"from rocescope.cli import main; main({line.split()!r})"


def _run(code: str) -> None:
    done = subprocess.run(in_python(code), capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RocescopeError(said[-1].removeprefix("rocescope: "))
