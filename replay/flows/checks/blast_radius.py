"""Effect of a failure of a link, a switch or a plane of a fabric, counted, not simulated."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from ....analyzer.errors import UsageError
from ....analyzer.results.base import about
from ....kernels.kernel import Bools, Ints
from ....kernels.named import NamedTuple
from ...fabrics.fabric import Fabric, tier_name
from .path_counts import paths_between

EACH = "each"
"""Value for one element of every kind, in place of names."""


class BlastRadius(msgspec.Struct, frozen=True, kw_only=True):
    """The consequences of one failure."""

    element: str
    kind: Annotated[str, about("`leaf-spine link`, `spine`, `plane`, ...")]
    links: Annotated[int, about("one-way links that fail")]
    hosts_below: Annotated[int, about("hosts whose packets to other leaves can use a failed link")]
    hosts_cut_off: Annotated[int, about("hosts without a remaining port")]
    host_capacity_percent: Annotated[float, about("lost port capacity of the host that loses most")]
    uplink_capacity_percent: Annotated[
        float, about("lost uplink capacity of the remaining switch that loses most")
    ]
    source: Annotated[str, about("a host below the failure")]
    destination: Annotated[str, about("a host far from it")]
    paths_before: Annotated[int, about("equal-cost paths from one to the other")]
    paths_after: Annotated[int, about("equal-cost paths that avoid the failure")]


class _Element(NamedTuple):
    name: str
    kind: str
    links: Ints


def blast_radii(fabric: Fabric, elements: str) -> list[BlastRadius]:
    """Effects of named failures (`leaf1-spine1,spine2,plane1`, as for `down=`), or of `each`.

    Each fails alone. UsageError for an unknown name, and for a fabric with one host.
    """
    if fabric.hosts < 2:
        raise UsageError(f"{fabric.name} has only one host: there are no paths")
    names = [name.strip() for name in elements.split(",") if name.strip()]
    if not names:
        raise UsageError("--blast-radius takes each, or names such as leaf1-spine1,spine2")
    found = _of_every_kind(fabric) if names == [EACH] else [_element(fabric, n) for n in names]
    return [_radius(fabric, one) for one in found]


def _of_every_kind(fabric: Fabric) -> list[_Element]:
    links, tier = fabric.links, fabric.nodes.tier
    upwards = links.up & (tier[links.target] > tier[links.source])
    found = []
    for layer in range(len(fabric.layers)):
        here = np.flatnonzero(upwards & (links.layer == layer))
        if len(here):
            name = fabric.link_name(int(here[0])).replace(">", "-", 1)
            parallel = len(fabric.find_links(name)) > 2
            found.append(_element(fabric, f"{name}#1" if parallel else name))
    found.sort(key=lambda one: int(tier[links.source[one.links]].min()))
    for level in sorted(set(tier[: fabric.switches].tolist()), reverse=True):
        first = int(np.flatnonzero(tier[: fabric.switches] == level)[0])
        found.append(_element(fabric, fabric.nodes.names[first]))
    if len(set(fabric.nodes.plane[: fabric.switches].tolist())) > 1:
        found.append(_element(fabric, "plane1"))
    return found


def links_of(fabric: Fabric, name: str) -> Ints:
    """Links of a name as `Fabric.find_links` takes it, or of `plane1`; UsageError if unknown."""
    number = name.removeprefix("plane")
    if name in fabric.nodes.names or number == name or not number.isdecimal():
        return fabric.find_links(name)
    switches = np.flatnonzero(fabric.nodes.plane == int(number) - 1)
    if not len(switches):
        raise UsageError(f"{fabric.name} has no {name}")
    inside = np.isin(fabric.links.source, switches) | np.isin(fabric.links.target, switches)
    return np.flatnonzero(inside)


def _element(fabric: Fabric, name: str) -> _Element:
    links = links_of(fabric, name)
    links = links[fabric.links.up[links]]
    if not len(links):
        raise UsageError(f"{name} is already down; name an element that is up")
    if name.removeprefix("plane").isdecimal() and name not in fabric.nodes.names:
        return _Element(name, "plane", links)
    tier = fabric.nodes.tier
    if name in fabric.nodes.names:
        kind = tier_name(int(tier[fabric.nodes.names.index(name)]))
        return _Element(name, kind, links)
    ends = sorted(
        (int(tier[fabric.links.source[links[0]]]), int(tier[fabric.links.target[links[0]]]))
    )
    return _Element(name, f"{tier_name(ends[0])}-{tier_name(ends[1])} link", links)


def _radius(fabric: Fabric, element: _Element) -> BlastRadius:
    lost = np.zeros(len(fabric.links.source), np.bool_)
    lost[element.links] = True
    below = np.flatnonzero(_below(fabric, element.links)[fabric.switches :])
    cut_off, of_host = _hosts_lose(fabric, lost)
    a = int(below[0]) if len(below) else 0
    ways = [paths_between(fabric, a, b) for b in {0, fabric.hosts - 1} - {a}]
    before = max(ways, key=lambda one: (one.longest_links or 0, one.destination))
    b = fabric.nodes.names.index(before.destination) - fabric.switches
    return BlastRadius(
        element=element.name,
        kind=element.kind,
        links=len(element.links),
        hosts_below=len(below),
        hosts_cut_off=cut_off,
        host_capacity_percent=of_host,
        uplink_capacity_percent=_uplinks_lost(fabric, lost),
        source=before.source,
        destination=before.destination,
        paths_before=before.paths,
        paths_after=paths_between(fabric, a, b, lost).paths,
    )


def _below(fabric: Fabric, failed: Ints) -> Bools:
    """bool[nodes]: reached downwards from the lower ends of the links."""
    links, tier = fabric.links, fabric.nodes.tier
    source, target = links.source, links.target
    found = np.zeros(len(tier), np.bool_)
    lower = tier[source[failed]] < tier[target[failed]]
    found[np.where(lower, source[failed], target[failed])] = True
    for level in sorted(set(tier.tolist()), reverse=True):
        on = found[source] & (tier[source] == level) & (tier[target] < level) & links.up
        found[target[on]] = True
    return found


def _hosts_lose(fabric: Fabric, lost: Bools) -> tuple[int, float]:
    """(hosts without a remaining port, lost port capacity of the worst host in percent)."""
    ports = fabric.attachments
    there = ports.switch >= 0
    gone = there & (lost[ports.access_link] | lost[ports.exit_link])
    rate = np.where(there, fabric.links.rate_bits_per_second[ports.access_link], 0)
    whole = np.maximum(rate.sum(1), 1)
    share = np.where(gone, rate, 0).sum(1) / whole
    return int(((gone == there).all(1) & there.any(1)).sum()), float(100 * share.max())


def _uplinks_lost(fabric: Fabric, lost: Bools) -> float:
    """Lost uplink capacity, in percent, of the worst switch with a remaining link."""
    links, tier = fabric.links, fabric.nodes.tier
    upwards = (
        links.up & (tier[links.target] > tier[links.source]) & (links.source < fabric.switches)
    )
    rate = links.rate_bits_per_second
    whole, gone = (
        np.bincount(links.source[of], weights=rate[of], minlength=fabric.switches)
        for of in (upwards, upwards & lost)
    )
    left = np.bincount(links.source[links.up & ~lost], minlength=fabric.switches)
    share = gone / np.maximum(whole, 1)
    alive = left[: fabric.switches] > 0
    return float(100 * share[alive].max(initial=0.0))
