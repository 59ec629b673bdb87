"""`rocescope discover`: read a fabric from the answers of its switches and hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from ...analyzer.errors import UsageError
from ...analyzer.units import parse_duration, parse_rate
from ..options.output import ColorWhen, write_results, write_table
from ..options.parameter import Parameter


def discover(
    folder: Annotated[Path | None, Parameter(name="FOLDER")] = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    commands: Literal["linux", "frr"] | None = None,
    rate: str = "400G",
    delay: str = "500ns",
    format: Annotated[Literal["table", "json"], Parameter(alias="-f")] = "table",
    color: ColorWhen = "auto",
) -> int:
    """Read a fabric from the answers of its switches and hosts, with the evidence of every link.

    Parameters
    ----------
    folder
        Folder with the answers of all devices, such as leaf1.route.json; see --commands.
    output
        Write the fabric to this file, .yaml or .json, for --fabric of other commands.
    commands
        Print the commands to run on every device of this kind, with the files for their answers.
    rate
        Rate of all links: the answers do not contain it.
    delay
        Propagation delay of all links.
    format
        The report as table or json.
    color
        Colour in the report; auto follows the terminal, NO_COLOR and FORCE_COLOR.
    """
    if commands is not None:
        from ...discovery.dialects.registry import DIALECTS

        for question in DIALECTS[commands].questions:
            print(f"{question.command} > NAME.{question.suffix}")
        return 0
    if folder is None:
        raise UsageError("give a folder with the answers of devices, or --commands linux")
    suffix = "" if output is None else output.suffix.lower()
    if suffix not in ("", ".yaml", ".yml", ".json"):
        raise UsageError(f"the suffix of {output} is not .yaml or .json")
    bits_per_second = parse_rate(rate, "--rate")
    delay_ns = 0 if delay == "0" else parse_duration(delay, "--delay")

    from ...discovery.discover import discover_folder

    found = discover_folder(folder, bits_per_second, delay_ns)
    if output is not None:
        from ...replay.fabrics.files.convert import json_bytes, yaml_bytes

        write = json_bytes if suffix == ".json" else yaml_bytes
        write_results(write(found.fabric), output)
    if format == "json":
        import msgspec

        write_results(msgspec.json.format(msgspec.json.encode(found.report)) + b"\n", None)
        return 0

    from ...report.terminal.discovery import print_discovery

    write_table(lambda file: print_discovery(found.report, file, color), None)
    return 0
