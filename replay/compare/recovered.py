"""Hash settings of switches, recovered from the captures of their parallel links."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...analyzer.errors import UnreadableInput
from ...kernels.kernel import Ints
from ..fabrics.fabric import Fabric
from ..fabrics.mapping import map_hosts
from ..fabrics.switch_hashing import hash_known
from ..hashing.seeding import SeedRange
from ..seeds.recover import ALL_SEEDS, Wanted, is_explained, recover_all, settings_of
from ..seeds.tapped import directions, read_taps
from .captured import links_of
from .request import ReplayRequest


def with_recovered_seeds(
    request: ReplayRequest,
    fabric: Fabric,
    seeds: SeedRange = ALL_SEEDS,
    tell: Callable[[str, int, int], None] | None = None,
) -> tuple[Fabric, list[str]]:
    """The fabric with the recovered settings, and the names of the switches that have them.

    A switch is examined if all its links to the tier above were captured; a switch with hash
    settings in the fabric keeps them. UsageError if the flows do not show the sides of the links.
    tell: called with the hypothesis, the seeds tried and the number of seeds.
    """
    settings = list(fabric.hash_settings)
    names = [request.tap_names.get(path, os.path.basename(path)) for path in request.captures]
    tap_of = links_of(names, fabric)
    found: list[str] = []
    for switch in range(fabric.switches):
        taps = _parallel_taps(switch, tap_of, fabric)
        if len(taps) < 2:
            continue
        paths = [request.captures[tap] for tap in taps]
        try:
            seen = read_taps(paths, tap_names=request.tap_names)
        except UnreadableInput:  # no flow on these links
            continue
        hosts = map_hosts(seen.names, fabric, request.map).hosts
        known = directions(seen)
        for direction, record in zip(
            known, recover_all(known, Wanted(seeds=seeds), paths, tell).switches, strict=True
        ):
            senders = hosts[np.unique(direction.seen.source)]
            behind = set(fabric.attachments.switch[senders].ravel().tolist()) - {-1}
            best = next((c for c in record.candidates if is_explained(c)), None)
            own = None if best is None else settings_of(best)
            if len(behind) != 1 or (senders < 0).any() or own is None:
                continue
            at = behind.pop()
            if not hash_known(settings[at]) and best is not None and best.seed is not None:
                settings[at] = replace(own, seed=best.seed, seed_recovered=True)
                found.append(fabric.nodes.names[at])
    return replace(fabric, hash_settings=tuple(settings)), found


def _parallel_taps(switch: int, tap_of: Ints, fabric: Fabric) -> list[int]:
    """The taps of all links from a switch to the tier above, in next-hop order; else none."""
    tier, links = fabric.nodes.tier, fabric.links
    above = (links.source == switch) & (tier[links.target] > tier[switch]) & links.up
    taps = [np.flatnonzero((tap_of == link).any(1)) for link in np.flatnonzero(above)]
    return [int(own[0]) for own in taps] if all(len(own) == 1 for own in taps) else []
