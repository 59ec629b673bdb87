"""One thread waits for the batches of another."""

from __future__ import annotations

import threading

from rocescope.analyzer.analysis.followed import Followed


def test_waiting_ends_when_all_batches_are_done():
    followed = Followed()
    assert followed.wait()
    for _ in range(3):
        followed.due()

    def do_all():
        for _ in range(3):
            followed.done()

    other = threading.Thread(target=do_all)
    other.start()
    assert followed.wait()
    other.join()


def test_waiting_ends_when_the_other_thread_ends():
    followed = Followed()
    followed.due()
    other = threading.Thread(target=followed.end)
    other.start()
    assert not followed.wait()
    other.join()
