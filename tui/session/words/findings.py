"""The first line of the diagnosis screen."""

from __future__ import annotations

from ....analyzer.words import printable
from ....report.words import diagnosis as words
from ....report.words import human
from ..snapshots.snapshot import Snapshot
from . import sentences


def summary(snapshot: Snapshot) -> str:
    """The number of findings and the worst one; a tick only for checks that passed."""
    if why := sentences.nothing(snapshot):
        return why
    judged = snapshot.judged
    diagnosis = judged.diagnosis
    if diagnosis is None:
        return printable(judged.why)
    so_far, no = ("", "No") if judged.final else ("So far: ", "no")
    if diagnosis.findings:
        worst = printable(diagnosis.findings[0].sentence).rstrip(".")
        return f"{so_far}{words.heading(diagnosis)}: {worst}."
    packets = human.counted(snapshot.source.packets, "packet")
    if not diagnosis.healthy:
        check = "no check covers this traffic" if judged.final else "no check is complete"
        return f"{so_far}{no} finding in {packets}, but {check}."
    return f"{so_far}{no} finding in {packets}; what was checked is below."
