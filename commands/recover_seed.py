"""`rocescope recover-seed`: hash, fields and seed of a switch from the links its flows took."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..analyzer.errors import UsageError
from .options.output import OUTPUT, Output
from .options.progress import reading_shown, steps_shown
from .options.taps import NAMING, Naming
from .sweep import parse_seeds
from .table import Parameter

if TYPE_CHECKING:
    from ..replay.hashing.seeded import SeedRange

_NOTHING_FITS = 1


def recover_seed(
    *files: Annotated[Path, Parameter(name="FILE")],
    hash: str | None = None,
    fields: str | None = None,
    weights: str | None = None,
    from_: Annotated[list[str] | None, Parameter(name="--from", negative="")] = None,
    seeds: str = "0:0x100000000",
    ask: str | None = None,
    fabric: str | None = None,
    devices: str | None = None,
    naming: Annotated[Naming, Parameter(name="*")] = NAMING,
    to: Annotated[Output, Parameter(name="*")] = OUTPUT,
) -> int:
    """Find the hash, fields and seed that place every flow on the link where it was captured.

    Parameters
    ----------
    files
        One capture per parallel link of a switch, in next-hop order.
    hash
        Try only this hash; required for hashes with a long search (jenkins, fnv1a, ...).
    fields
        Try only these fields, such as 5-tuple+qpn.
    weights
        Weights of the links, such as 3,1,1,1, default equal.
    from_
        Only flows from this subnet, such as the hosts of one switch; may be repeated.
    seeds
        Seeds to try, FIRST:END, where END is not included.
    ask
        Ask this Linux router of --fabric for next hops, in place of captures: the hash is recovered
        from 300 answers and verified with 200 others.
    fabric
        The fabric of --ask, with names of ports, such as rocescope discover writes.
    devices
        Inventory with the router, which is reached over SSH, or netns:PREFIX: the network namespace
        PREFIX + router name on this host.
    """
    to.chosen()
    span = parse_seeds(seeds)
    if ask is not None:
        if files or from_ or weights or naming.tap or fabric is None or devices is None:
            raise UsageError("--ask takes --fabric and --devices, and no captures")
        if span.step != 1:
            raise UsageError("--seeds of recover-seed takes FIRST:END, without a step")
        return _asked(ask, fabric, devices, hash, fields, span, to)
    names, tap_names = naming.captures(files)

    from ..replay.seeds.recover import Wanted, is_explained, parse_weights, recover_all
    from ..replay.seeds.tapped import directions, from_subnets, read_taps

    if span.step != 1:
        raise UsageError("--seeds of recover-seed takes FIRST:END, without a step")
    group = None if weights is None else parse_weights(weights)
    with reading_shown(to.progress, names[0]) as read:
        seen = read_taps(names, read, tap_names, naming.addresses())
    wanted = Wanted(hash, fields, group, span)
    chosen_flows = [from_subnets(seen, from_)] if from_ else directions(seen)
    with steps_shown(to.progress) as tell:
        result = recover_all(chosen_flows, wanted, names, tell)

    from ..replay.seeds.sweep import small_fabric
    from ..report.terminal.sweep import fill_recovery

    on = small_fabric(chosen_flows)
    traffic = [name for name in names if name not in tap_names]
    traffic += [word for path, tap in tap_names.items() for word in ("--tap", f"{tap}={path}")]
    to.write_replay(result, lambda page: fill_recovery(page, result, traffic=traffic, on=on))
    explained = any(is_explained(c) for switch in result.switches for c in switch.candidates)
    return 0 if explained else _NOTHING_FITS


def _asked(
    switch: str,
    fabric: str,
    devices: str,
    hash: str | None,
    fields: str | None,
    seeds: SeedRange,
    to: Output,
) -> int:
    from ..discovery.collect import dialects_of, parse_devices
    from ..discovery.tracing.learn import learn
    from ..replay.fabrics.parse import parse_fabric
    from ..replay.seeds.recover import Wanted, is_explained

    run = parse_devices(devices)
    with steps_shown(to.progress) as tell:
        wanted = Wanted(hash, fields, None, seeds)
        result = learn(parse_fabric(fabric), run, switch, wanted, tell, dialects_of(devices))

    from ..report.terminal.sweep import fill_recovery

    to.write_replay(result, lambda page: fill_recovery(page, result, asked_of=fabric))
    (record,) = result.switches
    tested = record.asked_again is not None and record.asked_again == record.agreeing_again
    return 0 if tested and any(map(is_explained, record.candidates)) else _NOTHING_FITS
