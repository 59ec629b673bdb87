"""Queues of links: settings, classes of data, loads over time, the next link.

Parameters of PFC.

Classes of data: mistakes by name, quanta in proportion to weights.

Shares of a link and pauses by class, in closed form; packet by packet in `test_pauses.py`.

Loads and queues over time, against a plain count at the final length of an interval.

The link on which a switch sends a packet on.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.kernels.kernel import Int, Ints
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.event_driven import FeedbackResult, run_event_driven
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model import state as rs
from rocescope.replay.packets.model.model import Model, Workload
from rocescope.replay.packets.model.queueing import (
    MOST_CLASSES,
    Pfc,
    TrafficClass,
    headroom_needed,
    new_classes,
)
from rocescope.replay.packets.model.records import table
from rocescope.replay.packets.model.rules import Choice, Rules, Strategy, chooser, no_label
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.packets.queues import add_load, add_queue, filled
from rocescope.replay.strategies.registry import parse_packet_strategy


def test_headroom_of_a_cable() -> None:
    """100 Gb/s is 80 ps per byte; 2 us there and back and a reaction of 0.8 us are 35 kB."""
    assert headroom_needed(4160, 80.0, 1_000_000, 800_000) == 4 * 4160 + 64 + 35_000 + 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"alpha": 0.0}, "alpha must be 1/1024 to 64"),
        ({"shared_bytes": -1}, "shared_bytes must be"),
        ({"xoff_bytes": 10, "xon_bytes": 11}, "xon_bytes .* above xoff_bytes"),
        ({"reaction_ps": -1}, "reaction_ps"),
    ],
)
def test_mistakes_name_the_parameter(values: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Pfc(**values)  # type: ignore[arg-type]


def test_queues_that_drop_and_pfc_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="cannot be combined"):
        Model(buffer_bytes=100_000, pfc=Pfc())


def test_only_the_thresholds_in_force_are_told() -> None:
    assert Pfc().described() == {"lossless": "pfc", "alpha": "0.125", "pause_reaction": "100ns"}
    told = Pfc(xoff_bytes=5, xon_bytes=1).described()
    assert "alpha" not in told and told["xoff_bytes"] == "5"


def test_a_quantum_is_enough_for_a_packet() -> None:
    classes = (TrafficClass("a", 3), TrafficClass("b", 7, lossless=False), TrafficClass("c"))
    made = new_classes(classes, 5, np.array([0, 2], np.uint8), 4160)
    assert made.rules["quantum"].tolist() == [4160, 9707, 0]
    assert made.rules["lossless"].tolist() == [1, 0, 1]
    assert len(made.queues) == 15 and (made.queues["head"] == -1).all()
    with pytest.raises(UsageError, match="class 3, but there are 3"):
        new_classes(classes, 5, np.array([3], np.uint8), 4160)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "a b"}, "letters and digits, not 'a b'"),
        ({"name": "x\x1b[1m"}, "letters and digits"),
        ({"weight": 1001}, "weight must be 0 to 1000, not 1001"),
        ({"alpha": 1.0, "xoff_bytes": 7}, "cannot be combined"),
        ({"alpha": float("nan")}, "alpha must be 1/1024 to 64"),
        ({"xoff_bytes": -1}, "xoff_bytes must be"),
    ],
)
def test_mistakes_are_named(values: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TrafficClass(**values)  # type: ignore[arg-type]


def test_models_with_classes() -> None:
    two = (TrafficClass("data", 7), TrafficClass("background", 3, lossless=False))
    told = Model(classes=two).described()["classes"]
    assert told == "data (weight 7), background (weight 3, lossy)"
    assert Model(classes=two).host_jitter == 0.01  # what drops has no phases
    assert "classes" not in Model().described()
    with pytest.raises(UsageError, match="buffer_bytes is for one class"):
        Model(classes=two, buffer_bytes=100_000)
    with pytest.raises(UsageError, match="background: thresholds need PFC"):
        Model(classes=two, pfc=None)
    with pytest.raises(UsageError, match="different names"):
        Model(classes=(TrafficClass(), TrafficClass()))
    with pytest.raises(UsageError, match="1 to 7, not 8"):
        Model(classes=tuple(TrafficClass(f"c{i}") for i in range(MOST_CLASSES + 1)))


FABRIC = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=3,rate=100G,delay=500ns")
SIZE = 400 * 4096


def _two_senders(classes: tuple[TrafficClass, ...], **options: object) -> FeedbackResult:
    """Two hosts send as much to a third one, each in a class of its own."""
    model = Model(classes=classes, pfc=Pfc(**options))  # type: ignore[arg-type]
    load = workload_of(
        np.array([0, 1]), np.array([2, 2]), np.full(2, SIZE), None, model  # type: ignore[arg-type]
    )._replace(priority=np.array([0, 1], np.uint8))  # fmt: skip
    strategy = parse_packet_strategy("switch-random")
    transport = Transport(recovery="sack", rto_ps=30_000_000)
    return run_event_driven(load, FABRIC, strategy, model, 1, transport=transport)


@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (7, 2)])
def test_weights_share_a_link(weights: tuple[int, int]) -> None:
    """The heavier class has its share of the line, and is done when that has carried its data."""
    classes = TrafficClass("a", weights[0]), TrafficClass("b", weights[1])
    done = _two_senders(classes).engine.completed_ps
    line = 400 * 4160 * 80 / 1e6  # us
    assert done[0] / 1e6 == pytest.approx(line * sum(weights) / weights[0], rel=0.03)
    assert max(done) / 1e6 == pytest.approx(2 * line, rel=0.02)


def test_a_class_that_cannot_send_saves_nothing_at_its_host() -> None:
    """A flow of class `a` waits for ACKs most of the time. When more flows of `a` begin, they have
    half of the line, not what `a` did not use before."""
    model = Model(classes=(TrafficClass("a", 1), TrafficClass("b", 1)))
    packets = np.array([60, *[10] * 20, *[60] * 20])
    release = np.array([0, *[150_000_000] * 20, *[0] * 20])
    load = workload_of(
        np.zeros(41, np.int64), np.ones(41, np.int64), packets * 4096, None, model,  # type: ignore[arg-type]
        release_ps=release,
    )._replace(priority=np.repeat(np.array([0, 1], np.uint8), (21, 20)))  # fmt: skip
    strategy, transport = parse_packet_strategy("switch-random"), Transport(mpr_packets=1)
    done = run_event_driven(load, FABRIC, strategy, model, 1, transport=transport)
    late = (done.engine.completed_ps[1:21].max() - 150_000_000) / 1e6
    assert late == pytest.approx(2 * 200 * 4160 * 80 / 1e6, rel=0.1)


def test_a_class_without_a_weight_comes_first() -> None:
    found = _two_senders((TrafficClass("first"), TrafficClass("rest", 1)), xoff_bytes=20_000)
    done, pauses = found.engine.completed_ps, found.engine.pauses
    line = 400 * 4160 * 80 / 1e6
    assert done[0] / 1e6 == pytest.approx(line, rel=0.03)
    assert done[1] / 1e6 == pytest.approx(2 * line, rel=0.02)
    assert pauses is not None and not found.engine.link_drops.any()
    by_class = pauses.pauses.reshape(-1, 2).sum(0)
    assert by_class[0] == 0 and by_class[1] > 0  # only the class that waits is paused


def test_a_class_that_is_not_lossless_is_dropped_and_not_paused() -> None:
    classes = TrafficClass("data", 1), TrafficClass("lossy", 1, lossless=False, xoff_bytes=20_000)
    found = _two_senders(classes, xoff_bytes=20_000)
    pauses = found.engine.pauses
    assert pauses is not None and (found.engine.completed_ps >= 0).all()
    by_class = pauses.pauses.reshape(-1, 2).sum(0)
    assert by_class[0] > 0 and by_class[1] == 0
    assert found.engine.link_drops.any() and not pauses.no_room.any()
    tally = found.tally
    assert tally.data_sent == tally.data_received + tally.data_lost + found.data_under_way


def test_quanta_end_a_pause_that_is_not_repeated_in_time() -> None:
    """Frames are repeated at half of their quanta, which still come in time; with a quantum that
    is shorter than the cable, pauses end before they are repeated, and the headroom overflows."""
    classes = TrafficClass("a", 1), TrafficClass("b", 1)
    ample = _two_senders(classes, xoff_bytes=20_000, quanta=1000).engine
    plain = _two_senders(classes, xoff_bytes=20_000).engine
    assert ample.pauses is not None and plain.pauses is not None
    assert ample.completed_ps.tolist() == plain.completed_ps.tolist()
    assert ample.pauses.pauses.tolist() == plain.pauses.pauses.tolist()
    assert not ample.link_drops.any()
    brief = _two_senders(classes, xoff_bytes=20_000, quanta=1).engine
    assert brief.pauses is not None and brief.pauses.frames.sum() > plain.pauses.frames.sum()


def test_a_long_pause_is_a_storm() -> None:
    classes = TrafficClass("first"), TrafficClass("rest")
    found = _two_senders(classes, xoff_bytes=20_000, storm_ps=50_000_000).engine.pauses
    assert found is not None
    assert (found.longest_ps[found.storm_ps >= 0] >= 50_000_000).all()
    stormy = np.flatnonzero(found.storm_ps >= 0)
    assert [FABRIC.link_name(int(row) // 2) for row in stormy] == ["host2>leaf1"]
    assert (stormy % 2 == 1).all()
    calm = _two_senders(classes, xoff_bytes=20_000).engine.pauses
    assert calm is not None and (calm.storm_ps < 0).all()


LINKS, BINS = 2, 8


@pytest.mark.thorough
@examples(80)
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.integers(0, LINKS - 1),
            st.integers(1, 9000),
            st.integers(0, 3_000),
            st.integers(1, 200),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_bytes_are_summed_and_queues_are_the_longest(
    events: list[tuple[bool, int, int, int, int]],
) -> None:
    loads = np.zeros((BINS, 2 * LINKS), np.int64)
    counts = table(1, rs.COUNTS)
    counts["load_bin_ps"][0] = 10
    for served, link, size, at, service in events:
        if served:
            add_load(loads, counts, link, size, at, service)
        else:
            add_queue(loads, counts, link, size, at)
    length = int(counts["load_bin_ps"][0])
    ends = [at + (service if served else 1) for served, _, _, at, service in events]
    assert length * BINS >= max(ends) and (length == 10 or length // 2 * BINS < max(ends))
    for link in range(LINKS):
        own = [event[0:1] + event[2:] for event in events if event[1] == link]
        for interval in range(BINS):
            begin, end = interval * length, (interval + 1) * length
            queues = [size for served, size, at, _ in own if not served and begin <= at < end]
            assert loads[interval, LINKS + link] == max(queues, default=0)
            exact = sum(
                Fraction(size * max(0, min(end, at + service) - max(begin, at)), service)
                for served, size, at, service in own
                if served
            )
            assert abs(loads[interval, link] - exact) <= len(own)
        assert loads[:, link].sum() == sum(size for served, size, _, _ in own if served)
    assert filled(loads).sum() == loads.sum()


FABRIC_ROUTE = parse_fabric("leaf-spine:leaves=2,spines=3,hosts=1,rate=100G,delay=40ns")


@chooser
def _position(state: Ints, links: Ints, at: Choice) -> Int:
    return state[0]


@dataclass(frozen=True)
class Stubborn(Strategy):
    """Always the same position."""

    position: int
    name: str = "stubborn"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        return Rules(_position(), no_label(), np.array([self.position]))


@pytest.mark.parametrize(
    ("position", "spine"), [(0, 1), (2, 3), (3, 1), (7, 2), (-1, 3), (-4, 3), (1 << 40, 2)]
)
def test_a_position_is_taken_modulo_the_size_of_the_group(position: int, spine: int) -> None:
    load = workload_of(
        np.array([0]),
        np.array([1]),
        np.array([40_000]),
        None,
        Model(pfc=None),  # type: ignore[arg-type]
    )
    strategy = Stubborn(position)
    used = FABRIC_ROUTE.find_links(f"leaf1>spine{spine}")[0]
    for result in (
        run_open_loop(load, FABRIC_ROUTE, strategy, Model(pfc=None)),
        run_event_driven(load, FABRIC_ROUTE, strategy, Model(pfc=None)).engine,
    ):
        assert result.link_packets[used] == load.packets[0]
        assert result.completed_ps[0] > 0
