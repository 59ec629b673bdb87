"""The result of `recover-seed` on a terminal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace

from rich.table import Table

from ...analyzer.words import printable
from ...replay.fabrics.files.convert import hash_document
from ...replay.results.recover import Candidate, RecoverResult, SwitchRecovery
from ...replay.seeds.recover import is_explained, settings_of
from ...replay.seeds.small_fabric import SmallFabric
from ..words import human
from .page import Page, folded, numbers, texts
from .replay_parts import NONE


def fill_recovery(
    page: Page,
    result: RecoverResult,
    *,
    traffic: Sequence[str] = (),
    on: SmallFabric | None = None,
    asked_of: str | None = None,
) -> None:
    """The recovered settings.

    traffic, on: captures to replay, and a fabric that they fit. asked_of: the fabric whose switch
    was asked in place of captures.
    """
    page.warn(result.warnings)
    for switch in result.switches:
        page.section(f"Packets {switch.direction}")
        fits = any(is_explained(c) for c in switch.candidates)
        mark, style = (page.glyphs.good, "green") if fits else (page.glyphs.warning, "yellow")
        page.say(f"{mark} {switch.conclusion[:1].upper()}{switch.conclusion[1:]}.", style)
        if switch.asked_again:
            agree = f"{human.count(switch.agreeing_again)} of {human.count(switch.asked_again)}"
            page.say(f"Verified with other flows: {agree} answers name the computed link.")
        page.draw(lambda table, switch=switch: _links(table, switch))  # type: ignore[misc]
        if switch.candidates:
            page.draw(lambda table, switch=switch: _candidates(table, switch))  # type: ignore[misc]
    words = dict.fromkeys(filter(None, map(_find_words, result.switches)))
    if words:
        page.gap()
        page.say("To replay traffic with this hash and seed on every switch:", "dim")
    files = printable(shlex.join(traffic)) if traffic else "FILE..."
    fabric = "FABRIC" if on is None else f"{on.fabric} --map {on.map}"
    if asked_of is not None:  # no captures: any traffic shows what the hash does
        files, fabric = "--pattern permutation", printable(shlex.quote(asked_of))
    for strategy in words:
        page.line(f"  rocescope replay {files} --fabric {fabric} -s {strategy}", "dim")
    if words and on is not None:
        page.say("This fabric has only the captured links; replace it with the real fabric.", "dim")
    lines = dict.fromkeys(filter(None, map(_find_line, result.switches)))
    if lines:
        page.say(
            "To trace flows with it, write into the entry of the switch in the fabric file:", "dim"
        )
    for line in lines:
        page.line(f"  {line}", "dim")
    tried = result.tried
    shown = ", ".join(tried[:6]) + (f" and {len(tried) - 6} more" if len(tried) > 6 else "")
    page.gap()
    page.say(f"Tried: {shown or 'nothing'}", "dim")


def _find(switch: SwitchRecovery) -> Candidate | None:
    """The first candidate with a seed that explains the placements of a switch."""
    explained = (c for c in switch.candidates if is_explained(c) and c.seed is not None)
    return next((c for c in explained if settings_of(c) is not None), None)


def _find_words(switch: SwitchRecovery) -> str | None:
    candidate = _find(switch)
    return None if candidate is None else strategy_words(candidate)


def _find_line(switch: SwitchRecovery) -> str | None:
    """`hash:` of the switch in a fabric file."""
    candidate = _find(switch)
    settings = None if candidate is None else settings_of(candidate)
    if candidate is None or candidate.seed is None or settings is None:
        return None
    document = hash_document(replace(settings, seed=candidate.seed, seed_recovered=True))
    return "hash: " + json.dumps(document)  # JSON is YAML, whatever a field set contains


def strategy_words(candidate: Candidate) -> str:
    """The strategy of `rocescope replay` that hashes as the candidate, with its seed everywhere."""
    options = {"hash": candidate.hash, **candidate.parameters}
    if candidate.field_set:
        options["fields"] = candidate.field_set
    options |= {"seed": str(candidate.seed), "per-switch": "equal"}
    return "ecmp:" + ",".join(f"{key}={value}" for key, value in options.items())


def _links(table: Table, switch: SwitchRecovery) -> None:
    folded(table, "next hop")
    table.add_column("flows", justify="right")
    for name, flows in zip(switch.links, switch.flows_per_link, strict=True):
        table.add_row(name, human.count(flows))


def _candidates(table: Table, switch: SwitchRecovery) -> None:
    texts(table, "hash")
    folded(table, "fields")
    numbers(table, "seed", "seeds that fit", "by chance", "validated")
    for fit in switch.candidates:
        fields = fit.field_set or ", ".join(f"{k} {v}" for k, v in fit.parameters.items())
        known = fit.seed is not None
        table.add_row(
            fit.hash,
            fields,
            str(fit.seed) if known else NONE,
            human.count(fit.seeds_that_fit) if known else NONE,
            f"{fit.expected_by_chance:.2g}",
            f"{fit.validated_flows} of {fit.held_back_flows}",
        )
