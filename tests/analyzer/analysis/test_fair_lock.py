import threading
import time

from rocescope.analyzer.analysis.fair_lock import FairLock


def test_who_waits_comes_before_who_frees_it_and_asks_again():
    lock, order, asked = FairLock(), [], threading.Event()

    def visit():
        asked.set()
        with lock:
            order.append("visitor")

    with lock:
        visitor = threading.Thread(target=visit)
        visitor.start()
        asked.wait()
        while lock._next < 2:
            time.sleep(0.001)
    with lock:
        order.append("worker")
    visitor.join()
    assert order == ["visitor", "worker"]


def test_it_holds_one_thread_at_a_time_and_is_freed_by_errors():
    lock, inside, most = FairLock(), [], []

    def work():
        for _ in range(200):
            try:
                with lock:
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
                    raise ValueError
            except ValueError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert max(most) == 1 and len(most) == 800
