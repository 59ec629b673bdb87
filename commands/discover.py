"""`rocescope discover`: read a fabric from the answers of its switches and hosts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

from ..analyzer.errors import UsageError
from ..analyzer.saved_file import MAX_BYTES
from ..analyzer.words import parse_duration, parse_rate, parse_size
from .options.output import ColorWhen, write_page, write_results
from .options.progress import ProgressAs, new_bar, shows_bar
from .table import Parameter

if TYPE_CHECKING:
    from ..discovery.collect import Progress
    from ..discovery.discover import Discovered
    from ..discovery.inventory import Target

DialectName = Literal["linux", "frr", "sonic", "cumulus", "eos", "nxos", "junos", "vrp"]
_UNANSWERED = 1


def discover(
    source: Annotated[Path | None, Parameter(name="SOURCE")] = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    ethers: Path | None = None,
    raw: Path | None = None,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    commands: DialectName | None = None,
    print_gate: DialectName | None = None,
    rate: str = "400G",
    delay: str = "500ns",
    max_answer: str = "256MiB",
    format: Annotated[Literal["table", "json"], Parameter(alias="-f")] = "table",
    progress: ProgressAs = "auto",
    color: ColorWhen = "auto",
) -> int:
    """Read a fabric from the answers of its switches and hosts, with the evidence of every link.

    Parameters
    ----------
    source
        An inventory in YAML, whose devices are asked over SSH, or a folder with the answers of
        all devices, such as leaf1.route.json.
    output
        Write the fabric to this file, .yaml or .json, for --fabric of other commands.
    ethers
        Write the names of all Ethernet addresses to this file, for --ethers of other commands.
    raw
        Save the answers in this folder, for a later run without network (SOURCE).
    dry_run
        Show which commands would run on which device, and connect to none.
    commands
        Print the commands to run on a device of this kind, with the file name of each answer.
    print_gate
        Print a script that restricts an SSH key to the commands for devices of this kind, with the
        sudoers lines; for systems without a shell, the configuration of such a user.
    rate
        Rate of links whose devices do not report a rate, such as Linux.
    delay
        Propagation delay of all links.
    max_answer
        Size of the largest answer that is read, at most 256MiB; the report names each command
        whose answer is larger.
    format
        The report as table or json.
    progress
        Progress on standard error: auto shows a bar on a terminal.
    color
        Colour in the report; auto follows the terminal, NO_COLOR and FORCE_COLOR.
    """
    if commands is not None or print_gate is not None:
        _print_constants(commands, print_gate)
        return 0
    if source is None:
        raise UsageError("give an inventory or a folder with answers, or --commands linux")
    suffix = "" if output is None else output.suffix.lower()
    if suffix not in ("", ".yaml", ".yml", ".json"):
        raise UsageError(f"the suffix of {output} is not .yaml or .json")
    bits_per_second = parse_rate(rate, "--rate")
    delay_ns = 0 if delay == "0" else parse_duration(delay, "--delay")
    most_bytes = parse_size(max_answer, "--max-answer")
    if most_bytes > MAX_BYTES:
        raise UsageError(f"--max-answer must be at most {MAX_BYTES >> 20}MiB")

    from ..discovery.discover import discover_folder
    from ..discovery.folder import NO_ANSWER, UNEXPECTED, UNREADABLE

    if source.is_file():
        from ..discovery.dialects.registry import DIALECTS
        from ..discovery.inventory import read_inventory

        targets = read_inventory(source, DIALECTS)
        if dry_run:
            _print_plan(targets)
            return 0
        with answers_of(targets, progress, raw, most_bytes) as folder:
            result = discover_folder(folder, bits_per_second, delay_ns, str(source), most_bytes)
    elif not source.exists():
        raise UsageError(f"{source} does not exist; give an inventory or a folder with answers")
    elif raw is not None or dry_run:
        raise UsageError("--raw and --dry-run need an inventory")
    else:
        result = discover_folder(source, bits_per_second, delay_ns, most_bytes=most_bytes)
    if output is not None:
        from ..replay.fabrics.files import json_bytes, yaml_bytes

        write = json_bytes if suffix == ".json" else yaml_bytes
        write_results(write(result.fabric), output)
    if ethers is not None:
        lines = [f"{address} {name}\n" for address, name in result.ethers.items()]
        write_results("".join(lines).encode(), ethers)
    _report(result, format, color)
    faults = (NO_ANSWER, UNREADABLE, UNEXPECTED)
    failed = any(remark.kind in faults for remark in result.report.remarks)
    return _UNANSWERED if failed else 0


def _print_constants(commands: str | None, print_gate: str | None) -> None:
    from ..discovery.dialects.registry import DIALECTS
    from ..discovery.follow import gate_script

    if commands is not None:
        for question in DIALECTS[commands].questions_for("host"):
            print(f"{question.command} > NAME.{question.suffix}")
    if print_gate is not None:
        print(gate_script(DIALECTS[print_gate], "rocescope"), end="")


def _print_plan(targets: list[Target]) -> None:
    for target in targets:
        for question in target.dialect.questions_for(target.kind):
            print(
                f"{target.name} ({target.kind}, {target.dialect.name}, ssh {target.ssh}): ", end=""
            )
            print(question.command)


@contextmanager
def answers_of(
    targets: list[Target],
    progress: ProgressAs,
    raw: Path | None = None,
    most_bytes: int = MAX_BYTES,
) -> Iterator[Path]:
    """The folder with what the devices answer now. raw: keeps the answers."""
    from ..discovery.collect import collect

    with TemporaryDirectory(prefix="rocescope-") as temporary:
        folder = raw if raw is not None else Path(temporary)
        with _devices_done(progress, len(targets)) as report:
            collect(targets, folder, report, most_bytes)
        yield folder


@contextmanager
def _devices_done(how: ProgressAs, devices: int) -> Iterator[Progress | None]:
    """Shows how many devices have answered."""
    if how == "json":

        def line(done: int, name: str) -> None:
            import json

            text = json.dumps({"device": name, "done": done, "devices": devices})
            print(text, file=sys.stderr, flush=True)

        yield line
    elif shows_bar(how):
        from rich.progress import MofNCompleteColumn, TimeElapsedColumn

        with new_bar(MofNCompleteColumn(), TimeElapsedColumn()) as bar:
            task = bar.add_task("asking devices", total=devices)
            yield lambda done, name: bar.update(task, completed=done)
    else:
        yield None


def _report(result: Discovered, format: str, color: ColorWhen) -> None:
    if format == "json":
        import msgspec

        from ..report.files import encode_json

        write_results(msgspec.json.format(encode_json(result.report)) + b"\n", None)
        return

    from ..report.terminal.discovery import fill_discovery

    write_page(lambda page: fill_discovery(page, result.report), None, color)
