"""Recovery of hash, fields and seed of a switch from the links of its flows.

A hypothesis is a hash with its fields. Its seed is searched with two thirds of the flows
and must predict the other flows (held back). The search tries in this order, until a
hypothesis fits: Linux with every seed; every function that is linear in its seed, by
elimination; an unknown linear function, learned from the flows. Other functions take long
and are tried only on request.

A claim needs fewer than MOST_CHANCE placements that fit by chance, over all hypotheses together. A
hypothesis that the flows cannot distinguish from chance is not searched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.words import choices
from ...kernels.kernel import Bools, Int32s, Ints
from ...version import VERSION
from ..hashing.keys import PacketKeys, fields_matrix, parse_field_set, symmetric
from ..hashing.linux import LinuxHash
from ..hashing.models import MODELS, HashModel, bind
from ..hashing.seeded import LinearHash, SeedRange
from ..hashing.settings import Group, HashSettings
from ..results import Candidate, RecoverResult, SwitchRecovery
from .search import AffineMap, Fit, fitting, search_any, search_linear, search_linux, search_masks
from .tapped import Direction, Seen

FIELD_SETS = ("5-tuple", "4-tuple", "3-tuple", "5-tuple+qpn", "5-tuple+flow-label")
MOST_CHANCE = 0.001
"""Expected number of placements that fit by chance, over all hypotheses: the most for a claim."""
_LEAST_FLOWS = 9
"""A third of them, three, are held back."""
ALL_SEEDS = SeedRange(0, 1 << 32)
_WIDE = 16
"""Linear hashes with more bits are tried with all seeds only on request."""
_LEARNT_FIELDS = "src+dst+protocol+sport+dport+flow-label+qpn"
_LEAST_SPARE = 8
"""Flows that must confirm a learned function, in addition to the flows that determine it."""
_SHOWN = 10
_PROBES = (0, 1, 0x9E3779B9, 0x7F4A7C15)

Tell = Callable[[str, int, int], None]
"""Called with the hypothesis, the seeds tried and the number of seeds."""


class Wanted(NamedTuple):
    """What to look for."""

    hash: str | None = None
    """A model; None for all models with a short search."""
    fields: str | None = None
    group: Group | None = None
    """None: equal cost over the links."""
    seeds: SeedRange = ALL_SEEDS


def recover(
    direction: Direction, wanted: Wanted, known: Sequence[Candidate], tell: Tell | None
) -> tuple[SwitchRecovery, list[str]]:
    """(the recovery for these links, the hypotheses tried).

    known: candidates of the other direction; their seeds are tried first.
    UsageError for an unknown hash or unknown fields.
    """
    seen = direction.seen
    links = len(seen.links)
    group = wanted.group or Group(np.ones(links, np.int64))
    if len(group.weights) != links:
        raise UsageError(f"{len(group.weights)} weights for {links} links: give one per link")
    single = seen.link >= 0
    flows = seen.take(single)
    tried: list[str] = []
    candidates: list[Candidate] = []
    used = np.bincount(flows.link, minlength=links)
    needed: dict[str, int] = {}
    if np.count_nonzero(used) > 1:
        hypotheses = list(_hypotheses(flows, group, wanted, known))
        number = len(hypotheses) + (wanted.hash is None)
        for hypothesis in hypotheses:
            task = _task(hypothesis, flows, group, number)
            if task is None:
                tried.append(_name(hypothesis.settings))
                continue
            if task.chance >= MOST_CHANCE or not task.held_back.any():
                needed[hypothesis.settings.model] = task.enough()
                continue
            tried.append(_name(hypothesis.settings))
            recovered = _tested(task, tell)
            if recovered is not None:
                candidates.append(recovered)
                if is_explained(recovered):
                    break
        if not candidates and wanted.hash is None:
            learnt = _learnt(flows, group, number)
            if learnt is not None:
                tried.append("an unknown linear function")
                candidates.append(learnt)
    record = SwitchRecovery(
        direction=direction.name,
        links=list(seen.links),
        flows=len(flows.link),
        flows_on_several_links=int(np.count_nonzero(~single)),
        flows_per_link=used.tolist(),
        candidates=candidates,
        conclusion=_conclusion(candidates, flows, used, tried, needed),
        flows_needed=needed,
    )
    return record, tried


class _Hypothesis(NamedTuple):
    settings: HashSettings
    seeds: SeedRange
    note: str = ""


def _hypotheses(
    flows: Seen, group: Group, wanted: Wanted, known: Sequence[Candidate]
) -> Iterator[_Hypothesis]:
    if wanted.hash is not None and wanted.hash not in MODELS:
        raise UsageError(f"there is no hash {wanted.hash!r}; {choices(wanted.hash, MODELS)}")
    for candidate in known:
        settings = settings_of(candidate)
        if settings is not None and candidate.seed is not None:
            seed = SeedRange(candidate.seed, candidate.seed + 1)
            yield _Hypothesis(settings, seed, "only the seed of the other direction was tried")
    if wanted.hash in (None, "linux"):
        if wanted.fields is not None and wanted.hash == "linux":
            raise UsageError("--fields cannot be combined with linux: policy selects them")
        for policy in (1, 0) if wanted.fields is None else ():
            yield _Hypothesis(HashSettings("linux", extra={"policy": policy}), wanted.seeds)
    sets: tuple[str, ...] = FIELD_SETS if wanted.fields is None else (wanted.fields,)
    for fields in sets:
        parse_field_set(fields)
    if not (flows.keys.flow_label != 0).any():
        sets = tuple(s for s in sets if s == wanted.fields or "flow-label" not in s)
    for name, model in MODELS.items():
        if name in ("linux", "random-oracle"):
            continue
        if wanted.hash is None and not _is_quick(model, group):
            continue
        if wanted.hash in (None, name):
            for fields in sets:
                for symmetric in (False, True):
                    settings = HashSettings(name, fields, symmetric=symmetric)
                    yield _Hypothesis(settings, wanted.seeds)


def _is_quick(model: HashModel, group: Group) -> bool:
    """Whether all seeds of a model can be tried in a short time."""
    if model.linear is None:
        return False
    members = len(group.weights)
    permutes = members & (members - 1) == 0 and bool((group.weights == group.weights[0]).all())
    return permutes or bool(model.half) or model.bits <= _WIDE


def _name(settings: HashSettings) -> str:
    if settings.model == "linux":
        return f"linux policy {settings.extra['policy']}"
    alike = ", symmetric" if settings.symmetric else ""
    return f"{settings.model} of {settings.field_set}{alike}"


class _Task(NamedTuple):
    """A hypothesis with its distinct flows."""

    hypothesis: _Hypothesis
    keys: PacketKeys
    link: Int32s
    group: Group
    held_back: Bools
    placements: int
    """Most different placements that the seeds give."""
    information: int
    """Flows whose links are independent of each other under a wrong hypothesis."""
    number: int
    """Hypotheses."""

    @property
    def chance(self) -> float:
        """Expected placements that fit by chance, over all hypotheses."""
        n = max(1, len(self.link))
        share = self.group.weights / self.group.weights.sum()
        all_here = float(np.log(np.maximum(share[self.link], 1e-300)).sum())
        exponent = all_here * self.information / n
        return float(self.number * self.placements * np.exp(exponent))

    def enough(self) -> int:
        """Flows of this kind that would suffice."""
        share = self.group.weights / self.group.weights.sum()
        share = share[share > 0]
        each = float(-(share * np.log(share)).sum())
        flows = math.ceil(math.log(self.number * self.placements / MOST_CHANCE) / each)
        return max(_LEAST_FLOWS, flows)


def _task(hypothesis: _Hypothesis, flows: Seen, group: Group, number: int) -> _Task | None:
    """The search for a hypothesis; None if it has one key on two links.

    number: hypotheses.
    """
    settings, seeds = hypothesis.settings, hypothesis.seeds.seeds
    rows = _distinct(flows, settings)
    if rows is None:
        return None
    keys, link = flows.keys.take(rows), flows.link[rows]
    held_back = np.arange(len(rows)) % 3 == 2
    if seeds == 1:  # nothing is fitted
        held_back[:] = True
    elif len(rows) < _LEAST_FLOWS:
        held_back[:] = False
    bound = bind(keys, settings)
    information = len(rows)
    if isinstance(bound, LinearHash):
        most = 1 << bound.bits
        if bound.seed_permutes(group):
            most = len(group.weights) ** len(bound.basis)
        seeds = min(seeds, most)
        information = min(information, _independent(keys, settings))
    return _Task(hypothesis, keys, link, group, held_back, seeds, information, number)


def _independent(keys: PacketKeys, settings: HashSettings) -> int:
    """Keys that determine a linear function of the fields: the others follow from them."""
    if settings.symmetric:
        keys = symmetric(keys)
    data = fields_matrix(keys, settings.field_set).data
    basis: dict[int, int] = {}
    for row in data ^ data[:1]:
        value = int.from_bytes(row.tobytes(), "big")
        while value:
            other = basis.setdefault(value.bit_length(), value)
            if other == value:
                break
            value ^= other
    return len(basis) + 1


def _tested(task: _Task, tell: Tell | None) -> Candidate | None:
    """The candidate of a hypothesis; None if no seed fits or it cannot be searched."""
    hypothesis, group, held_back = task.hypothesis, task.group, task.held_back
    settings = hypothesis.settings
    keys, link = task.keys, task.link
    if hypothesis.seeds.seeds == 1:
        fit: Fit | None = Fit(hypothesis.seeds.part(0, 1), 1, 1)
    else:
        fit = _searched(hypothesis, keys.take(~held_back), link[~held_back], group, tell)
    if fit is None or not fit.number:
        return None
    seeds, count = fit.seeds, fit.number
    right = fitting(keys.take(held_back), settings, group, link[held_back], seeds)
    best = int(right.sum(1).max())
    if held_back.all() and best < len(right[0]):
        return None
    if best == len(right[0]):  # seeds that also fit the held-back flows
        every = right.all(1)
        seeds = seeds[every]
        # All fitting seeds of a solved hash give the same placement.
        count = count if len(fit.seeds) < fit.number else int(every.sum())
    return Candidate(
        hash=settings.model,
        field_set="" if settings.model == "linux" else settings.field_set,
        parameters=_parameters(settings),
        seed=int(seeds[0]),
        seeds=[int(seed) for seed in seeds[:_SHOWN]],
        seeds_that_fit=count,
        seeds_searched=fit.searched,
        hypotheses=task.number,
        expected_by_chance=task.chance,
        fitted_flows=int(np.count_nonzero(~held_back)),
        validated_flows=best,
        held_back_flows=int(np.count_nonzero(held_back)),
        note=hypothesis.note,
    )


def _parameters(settings: HashSettings) -> dict[str, str]:
    parameters = {key: str(value) for key, value in settings.extra.items()}
    if settings.symmetric:
        parameters["symmetric"] = "yes"
    return parameters


def settings_of(candidate: Candidate) -> HashSettings | None:
    """The settings of a candidate, without its seed; None for a learned function."""
    if candidate.hash not in MODELS:
        return None
    extra = {k: int(v) for k, v in candidate.parameters.items() if k == "policy"}
    settings = HashSettings(candidate.hash, extra=extra)
    if candidate.field_set:
        symmetric = candidate.parameters.get("symmetric") == "yes"
        settings = replace(settings, field_set=candidate.field_set, symmetric=symmetric)
    return settings


def _distinct(flows: Seen, settings: HashSettings) -> Ints | None:
    """One row per key that the hash distinguishes; None if a key was captured on two links."""
    probes = bind(flows.keys, settings).values(_PROBES)
    _, first, number = np.unique(probes, axis=1, return_index=True, return_inverse=True)
    if (flows.link[first][number.reshape(-1)] != flows.link).any():
        return None
    rows: Ints = np.sort(first)
    return rows


def _searched(
    hypothesis: _Hypothesis, keys: PacketKeys, link: Int32s, group: Group, tell: Tell | None
) -> Fit | None:
    settings, seeds = hypothesis.settings, hypothesis.seeds
    name = _name(settings)

    def report(done: int, total: int) -> None:
        if tell is not None:
            tell(name, done, total)

    bound = bind(keys, settings)
    if isinstance(bound, LinuxHash):
        return _searched_linux(settings, keys, link, group, seeds, report)
    if isinstance(bound, LinearHash):
        if bound.seed_permutes(group) and seeds == ALL_SEEDS:
            return search_linear(bound, group, link)
        if bound.bits <= _WIDE and seeds == ALL_SEEDS:
            return search_masks(settings, bound, keys, group, link, report)
    return search_any(settings, keys, group, link, seeds, report)


def _searched_linux(
    settings: HashSettings,
    keys: PacketKeys,
    link: Int32s,
    group: Group,
    seeds: SeedRange,
    tell: Callable[[int, int], None],
) -> Fit:
    """Search with the address family with more flows, then check with the other."""
    ipv6 = int(np.count_nonzero(keys.ipv6)) * 2 > keys.units
    of_family = keys.ipv6 == ipv6
    bound = LinuxHash(keys.take(of_family), settings)
    fit = search_linux(bound, group, link[of_family], seeds, tell)
    if of_family.all() or not len(fit.seeds):
        return fit
    right = fitting(keys.take(~of_family), settings, group, link[~of_family], fit.seeds).all(1)
    return Fit(fit.seeds[right], int(right.sum()), fit.searched)


def _learnt(flows: Seen, group: Group, number: int) -> Candidate | None:
    """An unknown linear function of all fields, learned from flows and tested with the others."""
    links = len(group.weights)
    if links & (links - 1) or (group.weights != group.weights[0]).any():
        return None
    data = fields_matrix(flows.keys, _LEARNT_FIELDS).data
    inputs = [int.from_bytes(row.tobytes(), "big") for row in data]
    learnt = AffineMap()
    predicted = 0
    for value, link in zip(inputs, flows.link.tolist(), strict=True):
        expected = learnt.output(value)
        predicted += expected is not None
        if not learnt.learn(value, link):
            return None
    if predicted < _LEAST_SPARE:
        return None
    return Candidate(
        hash="unknown linear function",
        field_set=_LEARNT_FIELDS,
        parameters={"rank": str(learnt.rank)},
        seed=None,
        seeds=[],
        seeds_that_fit=0,
        seeds_searched=0,
        hypotheses=number,
        expected_by_chance=number * float(links) ** -predicted,
        fitted_flows=learnt.rank,
        validated_flows=predicted,
        held_back_flows=predicted,
        note="every link bit is an XOR of header bits, so a CRC, XOR or Toeplitz hash",
    )


def is_explained(candidate: Candidate) -> bool:
    """Whether a candidate predicts all held-back flows, and not by chance."""
    held_back = candidate.held_back_flows
    return candidate.validated_flows == held_back > 0 and candidate.expected_by_chance < MOST_CHANCE


def _conclusion(
    candidates: Sequence[Candidate],
    flows: Seen,
    used: Ints,
    tried: Sequence[str],
    needed: Mapping[str, int],
) -> str:
    """The conclusion in one sentence."""
    if np.count_nonzero(used) < 2:
        if len(flows.link) < _LEAST_FLOWS:
            return f"too few flows ({len(flows.link)}), none of them on a second link"
        return "all flows took one link: the switch had no choice, or other links were not captured"
    best = next((c for c in candidates if is_explained(c)), None)
    if best is None:
        return _refusal(candidates, flows, tried, needed)
    held = f"it predicts {best.validated_flows} of {best.held_back_flows} held-back flows"
    if best.seed is None:
        return f"an unknown linear function fits; {held}"
    text = f"{_name(settings_of(best) or HashSettings())}, seed {best.seed}"
    if best.seeds_searched == 1:
        return f"{text}, found in the other direction; {held}"
    if best.seeds_that_fit == 1:
        return f"{text}, the only seed of {best.seeds_searched:,} that fits; {held}"
    return (
        f"{text}, or any of {best.seeds_that_fit:,} seeds of {best.seeds_searched:,} that give "
        f"the same placement; {held}"
    )


def _refusal(
    candidates: Sequence[Candidate],
    flows: Seen,
    tried: Sequence[str],
    needed: Mapping[str, int],
) -> str:
    """Why no hash is claimed, and how many flows would suffice."""
    by_flows: dict[int, list[str]] = {}
    for model, n in needed.items():
        by_flows.setdefault(n, []).append(model)
    suffice = ", ".join(
        f"{n} flows suffice for {models[0] if len(models) == 1 else f'{len(models)} hashes'}"
        for n, models in sorted(by_flows.items())
    )
    if not tried:
        return f"too few flows ({len(flows.link)}): any hash may fit by chance; {suffice}"
    if candidates:
        best = max(candidates, key=lambda c: c.validated_flows)
        text = (
            f"no hash fits: the best, {best.hash}, predicts only {best.validated_flows} "
            f"of {best.held_back_flows} held-back flows"
        )
    else:
        text = (
            "no hash fits all flows: the files must be in next-hop order; try --weights and --hash"
        )
    if suffice:
        text += f"; too few flows ({len(flows.link)}) for other hashes: {suffice}"
    return text


def parse_weights(text: str) -> Group:
    """`3,1,1,1` as a group. UsageError for invalid weights."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts) or not any(int(p) for p in parts):
        raise UsageError(f"--weights {text!r}: write one number per link, such as 3,1,1,1")
    return Group(np.array([int(part) for part in parts], np.int64))


def recover_all(
    observed: Sequence[Direction], wanted: Wanted, sources: Sequence[str], tell: Tell | None
) -> RecoverResult:
    """The switches of all directions; a seed found in one direction is tried first in the next."""
    switches: list[SwitchRecovery] = []
    tried: list[str] = []
    known: list[Candidate] = []
    for direction in observed:
        record, names = recover(direction, wanted, known, tell)
        switches.append(record)
        tried += [name for name in names if name not in tried]
        known = [c for c in record.candidates if is_explained(c)]
    several = sum(switch.flows_on_several_links for switch in switches)
    warnings = []
    if several:
        warnings.append(
            f"{several:,} flows were captured on several links and are not used: "
            "they are sprayed, moved during the capture, or the links are not those of one switch"
        )
    return RecoverResult(
        version=VERSION,
        sources=list(sources),
        switches=switches,
        tried=tried,
        warnings=warnings,
    )
