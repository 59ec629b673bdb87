"""MRC: queue pairs spray over a set of static paths in all planes and drop the bad ones.

Source: Multipath Reliable Connection 1.0 (OCP, 2026) as read by others, arXiv 2605.04333; see
transport/mrc.py for the states of entropy values and what is assumed. Paths are source routes
(SRv6 micro-segments): the entropy value names plane and spine, no switch hashes. ACKs come back
by the path of the packet they acknowledge (assumed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....analyzer.errors import UsageError
from ....analyzer.units import parse_duration
from ....kernels.kernel import Int
from ...fabrics.fabric import Fabric
from ...packets.model.model import PS, Workload
from ...packets.model.rules import Rules, chooser, no_label
from ..base import known_options, whole_number
from ..packet_state import state_of
from .mrc_labels import PROBE_INTERVAL_PS, PROBES_NEEDED, mrc

ACTIVE = 128
"""Entropy values in use (paper: 128 to 256)."""
LEAST_PROBE_PS = 1_000_000
"""1 us between probes of one entropy value: more would be a load of its own."""


@dataclass(frozen=True)
class Mrc:
    """Options: `evs`, active entropy values of a queue pair (128, or three quarters of the paths if
    that is less); `least` usable ones (a quarter of evs); `probe`, time between probes of a bad one
    (100us); `probes` that must be answered (3)."""

    options: Mapping[str, str]
    name: str = "mrc"
    reacts: bool = True
    static_paths: bool = True

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        known_options(self.name, self.options, ("evs", "least", "probe", "probes"))
        planes = fabric.ports
        if planes < 2:
            raise UsageError(
                f"{self.name} needs a fabric with planes, like multi-plane:planes=8,...; "
                f"hosts of {fabric.name} have one port"
            )
        paths = _paths(self.name, fabric)
        fitting = max(planes, min(ACTIVE, planes * paths * 3 // 4) // planes * planes)
        evs = whole_number(self.name, self.options, "evs", fitting, planes, planes * paths)
        if evs % planes:
            raise UsageError(f"{self.name}: evs={evs}: use a multiple of the {planes} planes")
        least = whole_number(self.name, self.options, "least", evs // 4, 0, evs)
        probes = whole_number(self.name, self.options, "probes", PROBES_NEEDED, 1, 4)
        probe_ps = PROBE_INTERVAL_PS
        if "probe" in self.options:
            probe_ps = parse_duration(self.options["probe"], f"{self.name}: probe") * PS
            if probe_ps < LEAST_PROBE_PS:
                raise UsageError(f"{self.name}: probe={self.options['probe']}: use 1us or more")
        hosts = mrc(len(workload.src), seed, planes, paths, evs, least, probe_ps, probes)
        return Rules(
            _by_label(),
            no_label(),
            state_of([planes]),
            any_port=True,
            parameters={
                "evs": str(evs),
                "paths": str(planes * paths),
                "least": str(least),
                "probe": f"{probe_ps // PS}ns",
                "probes": str(probes),
            },
            hosts=hosts,
            static_paths=True,
        )


def _paths(name: str, fabric: Fabric) -> int:
    """Paths of one plane: links that lead on from a leaf; UsageError when planes differ."""
    sizes = np.diff(fabric.forwarding.group_start)
    leaves = np.unique(fabric.attachments.switch[fabric.attachments.switch >= 0])
    groups = fabric.forwarding.group_of[leaves]
    found = np.unique(sizes[groups[groups >= 0]])
    if len(found) != 1:
        raise UsageError(f"{name}: all leaves of {fabric.name} must have equally many uplinks")
    return int(found[0])


@chooser
def _by_label(
    state: Int,
    links: Int,
    members: Int,
    first: Int,
    size: Int,
    switch: Int,
    edge: Int,
    packet: Int,
    label: Int,
    time: Int,
) -> Int:
    """The link that the entropy value names. State: planes."""
    return label // state[0] % size
