"""`rocescope fabric`: show, check and convert a fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from ..analyzer.errors import UsageError
from .options.output import ColorWhen, write_page, write_results
from .options.taps import STANDARD_OUTPUT
from .table import Parameter

_SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".graphml": "graphml"}


def fabric(
    spec: Annotated[str, Parameter(name="SPEC")],
    /,
    *,
    to: Literal["yaml", "graphml", "json"] | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    format: Annotated[Literal["table", "json"], Parameter(alias="-f")] = "table",
    color: ColorWhen = "auto",
    paths: str | None = None,
    blast_radius: str | None = None,
) -> int:
    """Show, check and convert a fabric of switches and hosts.

    The exit code is 1 if a host cannot reach another.

    Parameters
    ----------
    spec
        leaf-spine:, fat-tree:, multi-plane: or rail: with parameters (leaf-spine:help lists
        them); a YAML, containerlab or GraphML file; or linux:FOLDER with `ip -j route` output
        of routers. Optional suffixes: ,down=leaf1-spine2 and ,slow=leaf1-spine3:100G.
    to
        Write the fabric in this format in place of the report.
    output
        Write to this file; the suffixes .yaml, .json and .graphml select --to.
    format
        The report as table or json.
    paths
        Count the equal-cost paths between two hosts, such as host1,host300.
    blast_radius
        Show the effect of failures: of one link, switch and plane of each kind (each), or of these
        elements: leaf1-spine1,spine2,plane1.
    color
        Colour in the report; auto follows the terminal, NO_COLOR and FORCE_COLOR.
    """
    if output == STANDARD_OUTPUT:
        output = None
    if to is None and output is not None and format == "table" and output.suffix != ".txt":
        if output.suffix.lower() not in _SUFFIXES:
            raise UsageError(f"the suffix of {output} selects no format: give --to or --format")
        converted = _SUFFIXES[output.suffix.lower()]
    else:
        converted = to or ""

    from ..replay.fabrics.parse import KINDS, parameter_help, parse_fabric

    kind, _, rest = spec.partition(":")
    if kind in KINDS and rest == "help":
        print(parameter_help(kind))
        return 0
    parsed = parse_fabric(spec)
    if converted:
        from ..replay.fabrics.files import graphml_bytes, json_bytes, yaml_bytes

        write = {"yaml": yaml_bytes, "json": json_bytes, "graphml": graphml_bytes}[converted]
        write_results(write(parsed), output)
        return 0

    from ..replay.flows.checks import check_fabric, named_pair

    pair = named_pair(parsed, paths) if paths is not None else None
    report = check_fabric(parsed, pair, blast_radius)
    if format == "json":
        import msgspec

        from ..report.files import encode_json

        write_results(msgspec.json.format(encode_json(report)) + b"\n", output)
    else:
        from ..report.terminal.discovery import fill_fabric

        write_page(lambda page: fill_fabric(page, report), output, color)
    return 0 if report.is_sound else 1
