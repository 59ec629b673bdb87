"""The comment of each packet, and the files for Wireshark that show it as fields.

For example `late by 3, extent 5, 12.0 us [rocescope verdict=reordered late_by=3 ...]`. Values are
numbers and words without spaces; `rocescope.lua` makes fields of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...analyzer.capture.pcapng_writer import MARK
from ...analyzer.decode.grants import GRANT_COLUMN, GRANT_COLUMNS, RANK_KNOWN, REASONS
from ...analyzer.track import batch as verdicts
from ...analyzer.track.batch import TrackedBatch
from ...analyzer.wire.bth import (
    ACKNOWLEDGE,
    NAK_NAMES,
    OPCODE_CLASS,
    SYNDROME_KIND_MASK,
    SYNDROME_NAK,
    SYNDROME_RNR_NAK,
)
from ...analyzer.wire.packets import HAS_AETH, PacketTable
from ...analyzer.words import printable
from ...kernels.kernel import Bools, Int32s, Records
from .. import human
from ..hops import short_taps
from ..notes import Sight, psn_note, psn_steps
from .reading import Known, RankPair

# Files for Wireshark: the Lua file that makes fields of the comments, and coloring rules.

NAME = "rocescope.lua"
COLOURS = "colorfilters"
"""As Wireshark calls the coloring rules of a profile."""
PROFILE = "rocescope"
"""The profile that has these rules: those of other profiles stay as they are."""


def text(name: str = NAME) -> str:
    """The contents of one of the files."""
    return Path(__file__).with_name(name).read_text()


_REFERENCES = {
    verdicts.REORDERED: ("overtaken_by", "overtaken by frame"),
    verdicts.OVERTAKEN: ("overtaken_by", "overtaken by frame"),
    verdicts.RECOVERED: ("gap_at", "gap at frame"),
    verdicts.RETRANSMITTED: ("retransmission_of", "retransmission of frame"),
    verdicts.DUPLICATE: ("duplicate_of", "duplicate of frame"),
    verdicts.MIRROR_DUPLICATE: ("duplicate_of", "duplicate of frame"),
    verdicts.TAP_COPY: ("copy_of", "after frame"),
}
_GRANT_FIELDS = ("rank", "number", "slot_bytes", "entries")
_UNUSUAL = np.ones(256, np.bool_)
_UNUSUAL[[verdicts.NOT_SEQUENCED, verdicts.IN_ORDER]] = False
_UNSAFE = re.compile(r"[^\w.:/+-]")


class Comments:
    """Makes the comments of tracked batches; `known` is what a first reading told."""

    def __init__(self, known: Known | None = None) -> None:
        self._known = known or Known()
        self._names: list[str] = []
        self._ranks: dict[int, tuple[str, str] | None] = {}

    def of(
        self,
        batch: TrackedBatch,
        sights: Records,
        tap_names: Sequence[str],
        endpoints: Sequence[str] = (),
    ) -> dict[int, bytes]:
        """Comments by row. endpoints: all addresses, where flows may have ranks."""
        table, known = batch.table, self._known
        if len(self._names) != len(tap_names):
            self._names = list(short_taps(tap_names).values())
            if len(self._names) != len(tap_names):  # namesakes
                self._names = [printable(name) for name in tap_names]
        refused = _refused(table)
        wanted = _UNUSUAL[batch.verdict] | refused
        unseen = known.never_seen_rows(table)
        for row in unseen:
            wanted[row] = True
        ranked = self._ranked_rows(table, batch.flow, endpoints)
        if ranked is not None:
            wanted |= ranked
        grants = _grants(table)
        wanted[list(grants)] = True
        rows = np.flatnonzero(wanted)
        columns: Any = zip(
            rows.tolist(),
            batch.flow[rows].tolist(),
            batch.verdict[rows].tolist(),
            table.psn[rows].tolist(),
            table.tap[rows].tolist(),
            sights[rows].tolist(),
            refused[rows].tolist(),
            strict=True,
        )
        made = {}
        for row, flow, kind, psn, tap, sight, is_nak in columns:
            texts: list[str] = []
            fields: list[str] = []
            self._say_verdict(texts, fields, kind, psn, Sight(*sight), self._names[tap])
            if is_nak:
                _say_nak(texts, fields, int(table.aeth[row]) >> 24, psn)
            if row in unseen:
                _say_unseen(texts, fields, unseen[row], self._names)
            ranks = self._ranks.get(flow)
            if ranks is not None:
                texts.append(ranks[0])
                fields.append(ranks[1])
            if row in grants:
                _say_grant(texts, fields, grants[row])
            made[row] = f"{', '.join(texts)} {MARK}{' '.join(fields)}]".encode()
        return made

    def _say_verdict(
        self,
        texts: list[str],
        fields: list[str],
        kind: int,
        psn: int,
        sight: Sight,
        tap: str,
    ) -> None:
        note = psn_note(kind, psn, sight, tap)
        if not note:
            return
        texts.append(note)
        fields.append(f"verdict={verdicts.VERDICT_NAMES[kind]}")
        if kind == verdicts.REORDERED and sight.due >= 0:
            fields.append(f"late_by={-psn_steps(psn, sight.due)}")
        if sight.extent >= 0:
            fields += [f"extent={sight.extent}", f"late_ns={sight.late_ns}"]
        if kind == verdicts.AHEAD and sight.due >= 0:
            gap = psn_steps(psn, sight.due)
            last = (psn - 1) & 0xFFFFFF
            texts.append(f"PSN {sight.due} to {last}" if gap > 1 else f"PSN {sight.due}")
            fields += [f"gap={gap}", f"gap_from={sight.due}"]
            late = self._known.late_of_gap(sight.gap)
            if late is not None:
                lost = gap - late
                if lost > 0:
                    texts.append(f"{lost} lost before this tap")
                    fields.append(f"lost_before={lost}")
                else:
                    texts.append("all came late")
        if kind in _REFERENCES and sight.other >= 0:
            name, words = _REFERENCES[kind]
            texts.append(f"{words} {sight.other}")
            fields.append(f"{name}={sight.other}")
        if sight.hop >= 0:
            ago = human.duration(abs(sight.since_ns))
            texts[-1] += f" by {ago}" if sight.since_ns >= 0 else f", {ago} before it by the clock"
            fields += [f"hop={sight.hop}", f"hop_ns={sight.since_ns}"]

    def _ranked_rows(
        self, table: PacketTable, flow: Int32s, endpoints: Sequence[str]
    ) -> Bools | None:
        """Which packets belong to flows with ranks; None if no flow has."""
        if not self._known.ranks:
            return None
        flows, first = np.unique(flow, return_index=True)
        for number, row in zip(flows.tolist(), first.tolist(), strict=True):
            if number not in self._ranks:
                src, dst = endpoints[int(table.src[row])], endpoints[int(table.dst[row])]
                found = self._known.ranks.get((src, dst, int(table.dest_qp[row])))
                self._ranks[number] = None if found is None else _rank_words(found)
        with_ranks = [n for n in flows.tolist() if self._ranks[n] is not None]
        mine: Bools = np.isin(flow, with_ranks)
        return mine


def _refused(table: PacketTable) -> Bools:
    """NAKs and RNR NAKs."""
    kind = (table.aeth >> 24) & SYNDROME_KIND_MASK
    answer = (OPCODE_CLASS[table.opcode] & ACKNOWLEDGE != 0) & (table.decode_flags & HAS_AETH != 0)
    refused: Bools = answer & ((kind == SYNDROME_NAK) | (kind == SYNDROME_RNR_NAK))
    return refused


def _say_nak(texts: list[str], fields: list[str], syndrome: int, psn: int) -> None:
    if syndrome & SYNDROME_KIND_MASK == SYNDROME_RNR_NAK:
        name = "RNR"
        texts.append(f"RNR NAK, PSN {psn}")
    else:
        name = NAK_NAMES.get(syndrome, f"code 0x{syndrome:02x}")
        texts.append(f"NAK, {name}, PSN {psn}")
    fields += [f"nak={_UNSAFE.sub('_', name)}", f"nak_psn={psn}"]


def _say_unseen(texts: list[str], fields: list[str], next_tap: int, names: Sequence[str]) -> None:
    where = names[next_tap] if 0 <= next_tap < len(names) else "any later tap"
    texts.append(f"lost after this tap: never seen at {where}")
    fields += ["lost_after=1", f"never_seen_at={_word(where)}"]


def _grants(table: PacketTable) -> dict[int, dict[str, int]]:
    """What each grant tells, by row."""
    if table.grants is None:
        return {}
    names = [column.name for column in GRANT_COLUMNS]
    return {
        row: {
            name: value
            for name, value in zip(names, values, strict=True)
            if value != GRANT_COLUMN[name].unknown
        }
        for row, *values in table.grants.tolist()
    }


def _say_grant(texts: list[str], fields: list[str], grant: dict[str, int]) -> None:
    number = f" {grant['number']}" if "number" in grant else ""
    size = f", {human.message_size(grant['slot_bytes'])}" if "slot_bytes" in grant else ""
    reason = REASONS[grant.get("reason", RANK_KNOWN)]
    rank = f" to rank {grant['rank']}" if "rank" in grant else f" without a rank ({reason})"
    texts.append(f"NCCL's grant{number}{rank}{size}")
    fields += [f"grant_{name}={grant[name]}" for name in _GRANT_FIELDS if name in grant]


def _rank_words(ranks: RankPair) -> tuple[str, str]:
    sender, receiver, comm = ranks
    known = [
        f"{name}={rank}"
        for name, rank in (("src_rank", sender), ("dst_rank", receiver))
        if rank is not None
    ]
    if comm:
        known.append(f"comm={_word(comm)}")
    ends = ["?" if rank is None else str(rank) for rank in (sender, receiver)]
    return f"rank {ends[0]} to rank {ends[1]}", " ".join(known)


def _word(text: str) -> str:
    """A name from a file as one word of ASCII letters, digits and a few signs."""
    return _UNSAFE.sub("_", text.encode("ascii", "replace").decode())[:64]
