"""Names, labels and exemplars, and series that are absent instead of 0."""

from __future__ import annotations

import subprocess

import numpy as np
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rocescope.agent.adapters import AdapterState
from rocescope.agent.findings import Blind, Place
from rocescope.agent.flows import COUNTED, WIDTH_BOUNDS
from rocescope.agent.metrics import Seen, State, Worst, families
from rocescope.probes.owners.nldev import QueuePairCounters
from rocescope.probes.owners.queue_pairs import Resource


def seen(interface="eth2", direction="in", peers=(), **worst):
    sums = np.arange(len(COUNTED), dtype=np.uint64)
    bins = np.zeros(len(WIDTH_BOUNDS) + 1, np.int64)
    bins[0], bins[-1] = 2, 1
    place = Place(interface, direction)
    return Seen(place, 10, 900, sums, 1, 2, 3, 4, 5, 6, bins, 70.0, list(peers), worst)


def state(places=(), **more):
    usual = {
        "time_s": 1.0,
        "places": places,
        "sources": {"eth2": "packets"},
        "blind": [],
        "adapters": AdapterState(),
        "has_adapters": False,
        "findings": [],
        "unlisted_packets": 0,
        "recordings": None,
    }
    return State(**usual | more)


class Collected(CollectorRegistry):
    def __init__(self, state):
        super().__init__()
        self.collect = lambda: families(state)


def lines(state):
    text = exposition.generate_latest(Collected(state)).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_values():
    found = lines(state([seen()]))
    assert 'rocescope_packets_total{device="eth2",direction="in"} 10.0' in found
    assert 'rocescope_missing_packets{device="eth2",direction="in"} 6.0' in found
    late = COUNTED.index("late")
    assert f'rocescope_late_packets_total{{device="eth2",direction="in"}} {late}.0' in found
    bucket = 'rocescope_spraying_width_bucket{device="eth2",direction="in",le="+Inf"} 3.0'
    assert bucket in found
    assert len(found) <= 80 // 2 + 6  # a direction, and what is about the agent


def test_what_is_blind_has_no_series():
    found = lines(state(blind=[Blind(interface="eth2", reason="adapter_bypass", sentence="x")]))
    assert 'rocescope_blind{device="eth2",reason="adapter_bypass"} 1.0' in found
    assert not [line for line in found if "packets" in line.split("{")[0]]
    assert not [line for line in found if line.startswith("rocescope_queue_pairs")]


def test_exemplars_name_the_worst_queue_pair():
    worst = Worst(0x11, "10.0.0.7", 5, 2.0)
    text = openmetrics.generate_latest(Collected(state([seen(late=worst)]))).decode()
    (late,) = [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "rocescope_late_packets_total"
    ]
    assert late.exemplar.labels == {"dest_qp": "0x000011", "peer": "10.0.0.7"}
    assert late.exemplar.value == 5


def test_peers_are_labels_and_queue_pairs_are_none():
    peers = [("10.0.0.7", np.ones(len(COUNTED))), ("other", np.ones(len(COUNTED)))]
    found = lines(state([seen(peers=peers)]))
    assert sum('peer="other"' in line for line in found) == 8
    assert not [line for line in found if "qp=" in line or "port=" in line]


def test_queue_pairs_of_adapters():
    pairs = [Resource("mlx5_0", 1, n, 5, "RC", "RTS", 0, 0, 7, "x") for n in (1, 2)]
    counters = [QueuePairCounters("mlx5_0", 1, (n,), 7, {"out_of_sequence": n}) for n in (1, 2)]
    adapters = AdapterState(pairs, counters)
    found = lines(state(adapters=adapters, has_adapters=True))
    assert 'rocescope_queue_pairs{adapter="mlx5_0",state="RTS",type="RC"} 2.0' in found
    largest = 'rocescope_queue_pair_counter_max{adapter="mlx5_0",counter="out_of_sequence"} 2.0'
    assert largest in found
    unknown = AdapterState(reason="no permission")
    assert not [x for x in lines(state(adapters=unknown, has_adapters=True)) if "queue_pairs" in x]


def test_promtool_accepts_the_names(need_tool):
    promtool = need_tool("promtool")
    text = exposition.generate_latest(Collected(state([seen(peers=[("other", np.ones(99))])])))
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
