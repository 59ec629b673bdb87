"""Causes of imbalance, derived from the results of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from ..hashing.seeding import PerSwitch
from ..hashing.settings import HashSettings
from ..results.sweep import SweepLayer

_FEW = 64
_IDLE = 0.9
"""Fewer used links than this share of random placement mean dependent choices of the tiers."""


def findings(
    settings: Sequence[HashSettings],
    linear: bool,
    layers: Sequence[SweepLayer],
    per_switch: PerSwitch,
    seeds: int,
) -> list[str]:
    """Sentences, most severe first. linear: every switch hashes linearly in its seed."""
    names = ", ".join(sorted({one.model for one in settings}))
    found = _polarised(layers, names, linear, per_switch)
    if seeds > 1:
        found += _seeds_without_effect(layers, names, linear)
    return found + _worse_than_chance(layers, names)


def _polarised(
    layers: Sequence[SweepLayer], names: str, linear: bool, per_switch: PerSwitch
) -> list[str]:
    hit = [layer for layer in layers if _is_polarised(layer)]
    if not hit:
        return []
    shares = ", ".join(
        f"{100 * layer.used_links:.0f} % of the {layer.layer} links "
        f"(chance: {100 * layer.used_links_chance:.0f} %)"
        for layer in hit
    )
    if per_switch == "equal":
        cause = (
            f"every tier hashes with {names} and the same seed, so flows that one tier sends to "
            "the same link also share a link in the next tier: give each switch its own seed"
        )
        if linear:
            cause += f"; {names} is linear, so one tier also needs another function or rotation"
    elif linear:
        cause = (
            f"{names} is linear, so different seeds do not make the tiers' choices independent: "
            "use another function, rotation or offset in one of the tiers"
        )
    else:
        cause = "the choices of the tiers are not independent"
    return [f"Hash polarisation: traffic uses on average {shares}; {cause}."]


def _is_polarised(layer: SweepLayer) -> bool:
    return layer.used_links < _IDLE * layer.used_links_chance


def _seeds_without_effect(layers: Sequence[SweepLayer], names: str, linear: bool) -> list[str]:
    fixed = [one for one in layers if one.distribution.distinct == 1]
    if not linear:  # in polarised layers idle links are the cause
        fixed = [one for one in fixed if not _is_polarised(one)]
    few = [one for one in layers if 1 < (one.distribution.distinct or _FEW + 1) <= _FEW]
    found = []
    if fixed:
        where = " and ".join(one.layer for one in fixed)
        text = f"Every seed gives the same imbalance in {where}"
        if linear:
            text += (
                f": {names} is linear, so a new seed only permutes the links of a group whose "
                "size is a power of two, and the same flows collide. Another seed does not help; "
                "another function, other fields or more queue pairs can"
            )
        found.append(f"{text}.")
    if few and linear:
        where = ", ".join(f"{one.distribution.distinct} in {one.layer}" for one in few)
        found.append(
            f"All seeds give only few different results ({where}): {names} is linear, "
            "so seeds only permute the links of the groups of each switch."
        )
    return found


def _worse_than_chance(layers: Sequence[SweepLayer], names: str) -> list[str]:
    """Layers with all links in use but less evenly than with random placement."""
    hit = [
        one for one in layers if not _is_polarised(one) and one.distribution.mean > one.chance.p95
    ]
    if not hit:
        return []
    where = ", ".join(
        f"{one.layer} ({one.distribution.mean:.1f}, chance {one.chance.mean:.1f})" for one in hit
    )
    return [
        f"{names} spreads this traffic less evenly than chance in {where}: its keys differ in "
        "too few of the bits it uses, or an earlier tier's choice already used them."
    ]
