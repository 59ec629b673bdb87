"""What the helper process knows of queue pairs, without the process."""

import pytest
from jobs import Job

from rocescope.analyzer.errors import CaptureError
from rocescope.probes.owners import observer
from rocescope.probes.owners.observer import Observer

pytestmark = pytest.mark.usefixtures("root", "libibverbs")


def test_a_killed_process_owns_nothing_more():
    job = Job(5)
    with Observer() as watch:
        job.connect(0x31, 0x61)
        watch.update()
        assert [p.destroyed_ns for p in watch.queue_pairs if p.local_qp == 0x31] == [None]
        job.kill()
        watch.queue_pairs.bury(1)
        assert [p.destroyed_ns for p in watch.queue_pairs if p.local_qp == 0x31] == [1]


def test_what_cannot_be_watched_is_said(monkeypatch):
    def refuse():
        raise CaptureError("no libibverbs to watch: install libibverbs1")

    monkeypatch.setattr(observer, "Uprobes", refuse)
    with Observer() as watch:
        watch.update()
        assert watch.reasons[0] == "no libibverbs to watch: install libibverbs1"
        assert watch.lost == 0
