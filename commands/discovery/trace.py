"""`rocescope trace`: the path of every captured flow on a fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from ...analyzer.errors import UsageError
from ..options.inputs import check_inputs, input_name
from ..options.output import OUTPUT, Output
from ..options.parameter import Parameter
from ..options.progress import reading_shown
from ..options.replaying import MAPPED, Mapped


def trace(
    *files: Annotated[Path, Parameter(required=True, name="FILE")],
    fabric: str,
    strategy: Annotated[list[str] | None, Parameter(alias="-s", negative="")] = None,
    verify: Annotated[list[Literal["taps", "counters"]] | None, Parameter(negative="")] = None,
    counters: Annotated[list[Path] | None, Parameter(negative="")] = None,
    ask: Literal["none", "sample", "all"] = "none",
    devices: str | None = None,
    advise: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    mapped: Annotated[Mapped, Parameter(name="*")] = MAPPED,
    to: Annotated[Output, Parameter(name="*")] = OUTPUT,
    top: int = 5,
) -> int:
    """Show the path of every flow on a fabric, in both directions, with the evidence of each hop.

    Parameters
    ----------
    files
        Captures; several files are several taps. A tap named after a link, such as
        leaf1-spine2.pcap, is evidence of the flows on it.
    fabric
        A fabric with hash settings and seeds, such as rocescope discover writes.
    strategy
        Another placement of the same flows for comparison, such as static; may be repeated,
        default assign.
    verify
        Compare the prediction of tables and hashes with captures (taps) or with the growth of port
        counters (counters); may be repeated.
    counters
        Folder with NAME.link.json (ip -j -s link) of the devices; given twice: before and after the
        capture.
    ask
        Ask switches for their next hops with ip route get: a sample of the computed hops and all
        hops that cannot be computed, or all hops. Needs --devices.
    devices
        Inventory of devices that are reached over SSH, or netns:PREFIX for network namespaces
        PREFIX + name of this host. Flows whose switches change during the trace are marked.
    advise
        Print changes that would relieve the fullest link: source ports, a seed, or static routes.
        Nothing is applied.
    top
        Number of flows, worst links and open ends in the report.
    """
    to.chosen()
    if top < 1:
        raise UsageError("--top must be 1 or more")
    check_inputs(files)
    wanted = verify or []
    if ("counters" in wanted) != (counters is not None) or len(counters or (1, 2)) != 2:
        raise UsageError("--verify counters needs --counters BEFORE --counters AFTER")
    if "taps" in wanted and (mapped.concat or len(files) < 2):
        raise UsageError("--verify taps needs captures of several taps")
    if ask != "none" and devices is None:
        raise UsageError("--ask needs --devices")

    from ...discovery.port_counters import growth, read_counters
    from ...discovery.remote.devices import parse_devices
    from ...discovery.tracing.asking import Asking
    from ...discovery.tracing.trace import Verify
    from ...discovery.tracing.trace import trace as traced
    from ...replay.fabrics.parse import parse_fabric
    from ...replay.strategies.registry import parse_strategy
    from ...replay.traffic.observed import traffic_from_capture

    parsed = parse_fabric(fabric)
    grown = growth(*(read_counters(one) for one in counters)) if counters else None
    strategies = [parse_strategy(text) for text in strategy or ("assign",)]
    run = None if devices is None else parse_devices(devices)
    names = [input_name(path) for path in files]
    with reading_shown(to.progress, names[0]) as read:
        how, packets = mapped.map, mapped.filter
        traffic = traffic_from_capture(
            names, parsed, how, filter=packets, concat=mapped.concat, progress=read
        )
    result = traced(
        traffic,
        parsed,
        strategies,
        names,
        asking=None if run is None or ask == "none" else Asking(run, ask),
        advice=advise,
        watch=run,
        verify=Verify("taps" in wanted, grown),
        most_flows=top if to.chosen() == "table" else None,
    )

    from ...report.terminal.trace import print_trace

    to.write_replay(result, lambda file: print_trace(result, file, top, to.color))
    return 0
