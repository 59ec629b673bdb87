"""Results of `recover-seed`."""

from __future__ import annotations

from typing import Annotated

from ...analyzer.results.base import Record, about
from .base import SCHEMA_VERSION


class Candidate(Record, frozen=True, kw_only=True):
    """A hash function, field set and seed that explain the placements."""

    hash: str
    field_set: str
    parameters: dict[str, str]
    seed: Annotated[int | None, about("the smallest seed that fits; null: no seed")]
    seeds: Annotated[list[int], about("the first seeds that fit")]
    seeds_that_fit: Annotated[int, about("number of searched seeds that fit")]
    seeds_searched: int
    hypotheses: Annotated[int, about("hashes with their fields that may be tried")]
    expected_by_chance: Annotated[
        float,
        about(
            "different placements that would fit all flows by chance, over all "
            "hypotheses; a claim needs less than 0.001"
        ),
    ]
    fitted_flows: int
    validated_flows: Annotated[int, about("held-back flows that the candidate predicts")]
    held_back_flows: int
    note: str = ""


class SwitchRecovery(Record, frozen=True, kw_only=True):
    """Recovery of the choices of one switch over the captured links."""

    direction: Annotated[str, about("direction of the packets used")]
    links: list[str]
    flows: Annotated[int, about("flows seen on exactly one of the links")]
    flows_on_several_links: Annotated[
        int, about("flows sprayed or moved during the capture; not used")
    ]
    flows_per_link: list[int]
    candidates: list[Candidate]
    flows_needed: Annotated[
        dict[str, int],
        about("hashes that may fit these flows by chance: number of flows that would suffice"),
    ]
    conclusion: str
    asked_again: Annotated[
        int | None,
        about("answers of the switch about other flows; null: not asked, or no hash with a seed"),
    ] = None
    agreeing_again: Annotated[
        int | None,
        about(
            "of these, with the link that the candidate computes; others name another "
            "link or a port outside the group"
        ),
    ] = None


class RecoverResult(Record, frozen=True, kw_only=True):
    """The result of `recover-seed`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    sources: list[str]
    switches: list[SwitchRecovery]
    tried: Annotated[list[str], about("hash functions and field sets tried")]
    warnings: list[str]
