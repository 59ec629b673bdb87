"""The way of packets from tap to tap, against a plain twin that keeps every packet."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from journeys import WRITE_ONLY, edge, hop
from tracked_batches import START_NS, parts, tracked

from rocescope.analyzer.measures.hops.measure import HopMeasure
from rocescope.analyzer.measures.hops.passing import (
    AHEAD_TRUSTED,
    BEHIND_TRUSTED,
    FIRST_ENDS,
    TWIN_NS,
)
from rocescope.analyzer.measures.hops.state import (
    BYTES_MOST,
    COPIED,
    DOUBTED,
    END,
    LATE,
    LOGGED_MOVES,
    MARKED,
    NEWEST,
    OVERTAKEN,
    SLOWEST,
    START,
)

CE = 3
TAPS = 4


class Sent:
    """A transmission: its rows by tap, in the order of the first at each; whether another of the
    same packet was before."""

    def __init__(self, row, again):
        self.way, self.latest, self.again = {row["tap"]: [row]}, row, again


class Pairing:
    """What tells to which transmission a row belongs."""

    def __init__(self):
        self.lags = defaultdict(list)  # (from tap, to tap) -> times
        self.in_order, self.shared = Counter(), Counter()  # by flow and tap
        self.highest = {}

    def misfit(self, sent, row):
        """Ns outside the learned times; at least 2**62 where there are none."""
        lags = self.lags[sent.latest["tap"], row["tap"]]
        if not lags:
            return 2**62 + abs(sent.latest["hop_limit"] - row["hop_limit"] - 1)
        lag = row["time_ns"] - sent.latest["time_ns"]
        return max(min(lags) - lag, lag - max(lags), 0)

    def note(self, row):
        here = row["flow"], row["tap"]
        row["late"] = row["psn"] <= self.highest.get(here, -1)
        self.highest[here] = max(self.highest.get(here, -1), row["psn"])
        self.in_order[here] += not row["late"]

    def beside(self, sent, row):
        """The first sighting at another tap with the same hop limit."""
        alike = [seen[0] for seen in sent.way.values() if seen[0]["hop_limit"] == row["hop_limit"]]
        return alike[0] if alike and not row["ip_id"] else None

    def share(self, newest, row):
        beside = self.beside(newest, row) if row["tap"] not in newest.way else None
        if beside is not None and not beside["late"] and not row["late"]:
            self.shared[row["flow"], row["tap"]] += 1

    def are_parallel(self, row, beside):
        if beside is None:
            return False
        here, there = (row["flow"], row["tap"]), (row["flow"], beside["tap"])
        both = self.shared[here] + self.shared[there]
        return 4 * (both + 1) < 3 * min(self.in_order[here], self.in_order[there])

    def without_parallel(self, way):
        taps = sorted(way, key=lambda t: (-way[t][0]["hop_limit"], way[t][0]["time_ns"]))
        kept = taps[:1]
        for tap in taps[1:]:
            before, row = way[kept[-1]][0], way[tap][0]
            alike = before["hop_limit"] == row["hop_limit"] and not row["ip_id"]
            if not (alike and self.are_parallel(row, before)):
                kept.append(tap)
        return {tap: way[tap] for tap in kept}

    def join(self, sent, row):
        before = sent.latest
        same = before["hop_limit"] == row["hop_limit"]
        if same or not (row["ip_id"] or sent.again):
            lag = row["time_ns"] - before["time_ns"]
            self.lags[before["tap"], row["tap"]].append(lag)
            self.lags[row["tap"], before["tap"]].append(-lag)
        sent.way[row["tap"]] = [row]
        sent.latest = row


def transmissions_of(rows):
    """By flow, PSN and identification: transmissions, each {tap: [rows]}."""
    transmissions = defaultdict(list)
    pairing = Pairing()
    for row in rows:
        pairing.note(row)
        known = transmissions[row["flow"], row["psn"], row["ip_id"]]
        newest_first = known[::-1]
        if known:
            pairing.share(known[-1], row)
        may_be = [
            sent
            for sent in newest_first
            if row["tap"] not in sent.way
            and not pairing.are_parallel(row, pairing.beside(sent, row))
        ]
        here = [sent for sent in newest_first if row["tap"] in sent.way]
        if any(sent.way[row["tap"]][0]["hop_limit"] != row["hop_limit"] for sent in here):
            continue
        copied = [
            sent
            for sent in here
            if row["ip_id"] or row["time_ns"] - sent.way[row["tap"]][-1]["time_ns"] < TWIN_NS
        ]
        best = min(may_be, key=lambda sent: pairing.misfit(sent, row), default=None)
        fit = [sent for sent in may_be if pairing.misfit(sent, row) == 0]
        best = fit[-1] if fit else best
        if copied and (best is None or pairing.misfit(best, row) > TWIN_NS):
            copied[0].way[row["tap"]].append(row)
            copied[0].latest = row
        elif best is not None:
            pairing.join(best, row)
        else:
            known.append(Sent(row, again=bool(known) and not row["ip_id"]))
    return {
        key: [pairing.without_parallel(sent.way) for sent in known]
        for key, known in transmissions.items()
    }


def twin(rows):
    """Per (flow, from, to): packets, marked, copies, least and most delay; by plain lists."""
    edges = defaultdict(Counter)
    delays = defaultdict(list)
    for (flow, *_), parts_of_key in transmissions_of(rows).items():
        for way in parts_of_key:
            taps = sorted(way, key=lambda t: (-way[t][0]["hop_limit"], way[t][0]["time_ns"]))
            edges[flow, START, taps[0]].update(packets=1, copies=len(way[taps[0]]) - 1)
            edges[flow, taps[-1], END].update(packets=1)
            for near, far in itertools.pairwise(taps):
                a, b = way[near][0], way[far][0]
                marked = a["traffic_class"] & 3 != CE and b["traffic_class"] & 3 == CE
                more = max(len(way[far]) - len(way[near]), 0)
                edges[flow, near, far].update(packets=1, marked=marked, copies=more)
                delays[flow, near, far].append(b["time_ns"] - a["time_ns"])
    return edges, delays


class Going:
    """Where the transmissions of a flow go on from a tap."""

    def __init__(self):
        self.packets = self.turns = self.next_ns = self.early_ns = 0
        self.drop = self.next_tap = self.latest = None
        self.moves, self.skipped = [], 0

    def go(self, tap, drop, time):
        if self.packets and drop > self.drop:
            self.skipped += 1
        else:
            if self.drop is None or drop < self.drop:
                self.drop, self.early_ns = drop, self.next_ns
            elif tap != self.next_tap:
                self.moves.append((self.next_tap, tap, self.next_ns, time))
            self.next_tap, self.next_ns = tap, time
        self.turns += self.packets > 0 and tap != self.latest
        self.latest = tap
        self.packets += 1


def going_twin(rows):
    """Per flow and tap where its transmissions go on, in the order of their first sighting."""
    ways = [
        (min(rows.index(seen[0]) for seen in way.values()), flow, way)
        for (flow, *_), parts_of_key in transmissions_of(rows).items()
        for way in parts_of_key
    ]
    going = defaultdict(Going)
    for _, flow, way in sorted(ways, key=lambda item: item[0]):
        taps = sorted(way, key=lambda t: (-way[t][0]["hop_limit"], way[t][0]["time_ns"]))
        first = way[taps[0]][0]
        going[flow, START].go(taps[0], 255 - first["hop_limit"], first["time_ns"])
        for near, far in itertools.pairwise(taps):
            a, b = way[near][0], way[far][0]
            going[flow, near].go(far, a["hop_limit"] - b["hop_limit"], a["time_ns"])
    return going


@st.composite
def journeys(draw):
    """Rows of packets that pass four taps, the second one of two parallel ones, with loss, marks,
    copies and delays."""
    rows = []
    ids = draw(st.booleans())
    for number in range(draw(st.integers(1, 25))):
        sent = START_NS + 40_000 * number
        flow = draw(st.integers(0, 2))
        psn = draw(st.integers(0, 6))
        tos = draw(st.sampled_from([0, 2, 3]))
        for tap in range(TAPS):
            if draw(st.integers(0, 5)) == 0:
                break  # lost
            if draw(st.integers(0, 9)) == 0:
                continue  # not captured
            if draw(st.integers(0, 5)) == 0:
                tos = 3
            sent += draw(st.integers(1, 5_000))
            row = {
                "flow": flow, "time_ns": sent, "psn": psn, "hop_limit": 64 - tap,
                "tap": TAPS if tap == 1 and draw(st.booleans()) else tap,
                "ip_id": number + 1 if ids else 0, "opcode": WRITE_ONLY, "traffic_class": tos,
                "wire_bytes": 100, "frame_number": len(rows) + 1,
            }  # fmt: skip
            rows.append(row)
            if draw(st.integers(0, 9)) == 0:
                rows.append(row | {"time_ns": sent + 1})
    return sorted(rows, key=lambda row: row["time_ns"])


def measured(rows, cuts=()):
    measure = HopMeasure()
    for batch in parts(tracked(rows, 3), list(cuts)):
        measure.update(batch)
    return measure.settled()


def check(measure, rows):
    edges, delays = twin(rows)
    found = {
        (int(e["flow"]), int(e["from_tap"]), int(e["to_tap"])): e
        for e in measure.edges
        if e["flow"] >= 0
    }
    assert set(found) == set(edges)
    for key, expected in edges.items():
        edge = found[key]
        assert edge["packets"] == expected["packets"]
        if key[2] != END:
            assert edge["copies"] == expected["copies"]
        if key in delays:
            assert edge["marked"] == expected["marked"]
            assert (edge["delay_min"], edge["delay_max"]) == (min(delays[key]), max(delays[key]))
    whole = {(int(e["from_tap"]), int(e["to_tap"])): e for e in measure.edges if e["flow"] < 0}
    for (near, far), edge in whole.items():
        mine = [e for (_, a, b), e in found.items() if (a, b) == (near, far)]
        assert edge["packets"] == sum(e["packets"] for e in mine)
        assert edge["wire_bytes"] == sum(e["wire_bytes"] for e in mine)


@pytest.mark.thorough
@examples(150)
@given(journeys(), st.lists(st.integers(0, 100), max_size=4))
def test_equals_the_twin_however_the_batches_are_cut(rows, cuts):
    if rows:
        check(measured(rows, [min(cut, len(rows)) for cut in sorted(cuts)]), rows)


@examples(100)
@given(journeys())
def test_moves_and_skipped_taps_equal_the_twin(rows):
    if not rows:
        return
    measure, going = measured(rows), going_twin(rows)
    visits = {(int(v["flow"]), int(v["tap"])): v for v in measure.visits}
    moves, skipped = defaultdict(list), Counter()
    for move in measure.moves.tolist():
        moves[move[0], move[1]].append(move[2:])
    for moment in measure.ends:
        near, far = (int(measure.edges[moment["edge"]][name]) for name in ("from_tap", "to_tap"))
        skipped[int(moment["flow"]), near] += START not in (near, far) and far != END
    for key, expected in going.items():
        visit = visits[key]
        assert moves[key] == expected.moves[:LOGGED_MOVES]
        assert (visit["moves"], visit["turns"]) == (len(expected.moves), expected.turns)
        assert (visit["drop"], visit["early_ns"]) == (expected.drop, expected.early_ns)
        assert key[1] == START or skipped[key] == expected.skipped


@examples(100)
@given(
    journeys(),
    st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from([-(2**63), -(10**17), 10**17, 2**63 - 1])),
        max_size=AHEAD_TRUSTED - 1,
    ),
)
def test_packets_with_wild_times_leave_the_others_as_they_are(rows, wild):
    """At any place but the first; all that was in flight between two taps arrives."""
    for number, (at, time) in enumerate(wild if rows else []):
        row = hop(0, number % TAPS, number, flow=2) | {"time_ns": time, "psn": 100 + number}
        rows.insert(1 + at, row)
    if rows:
        check(measured(rows), rows)


@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(1, 30_000), st.booleans()), min_size=1, max_size=40
    ),
    st.lists(st.integers(0, 80), max_size=3),
)
def test_the_packets_beside_a_lost_one_at_its_output(packets, cuts):
    """Two inputs, taps 0 and 1, and one output, tap 2, against a plain list of what passed."""
    rows, passed, ended = [], [], []
    for n, (tap, delay, lost) in enumerate(packets):
        at = 40_000 * n
        rows.append(hop(at, tap, n, 64, flow=tap, frame_number=n + 1))
        if lost:
            ended.append(n)
        else:
            rows.append(hop(at + delay, 2, n, 63, flow=tap))
            passed.append(n)
    # The other direction of the output link, at the same tap.
    rows += [hop(40_000 * n + 20_000, 2, n, 64, flow=2) for n in range(len(packets))]
    rows += [hop(40_000 * n + 20_003, 0, n, 63, flow=2) for n in range(len(packets))]
    rows.sort(key=lambda row: row["time_ns"])
    measure = measured(rows, cuts)
    hops = measure.edges[measure.state.hops]
    moments = {int(m["frame"]) - 1: m for m in measure.ends if m["tap"] < 2}
    for n in ended:
        if not any(m < n and packets[m][0] == packets[n][0] for m in passed):
            continue  # nothing shows its output
        beside = [m for m in passed if m < n][-1:], [m for m in passed if m > n][:1]
        for side, near in zip(("before", "after"), beside, strict=True):
            number = int(moments[n][f"hop_{side}"])
            found = [(int(hops[number]["from_tap"]), int(moments[n][f"delay_{side}"]))]
            assert (found if number >= 0 else []) == [packets[m][:2] for m in near]


def test_the_present_follows_packets_after_a_silence_and_after_a_wrong_first_time():
    for wrong, trusted in ((0, AHEAD_TRUSTED), (2 * START_NS, BEHIND_TRUSTED)):
        rows = [hop(0, 0, 1) | {"time_ns": wrong}]
        rows += [hop(1_000 * n, n % 2, 10 + n // 2) for n in range(trusted)]
        measure = measured(rows[:-1])
        assert measure.state.clock[NEWEST] == wrong
        measure = measured(rows)
        assert measure.state.clock[NEWEST] == rows[-1]["time_ns"]
        assert edge(measure, 0, 1)["packets"] == trusted // 2


SILENCE_NS = 15 * 10**9


@pytest.mark.thorough
@pytest.mark.parametrize("packets", [AHEAD_TRUSTED - 1, AHEAD_TRUSTED, 20, 5_000])
@pytest.mark.parametrize("cuts", [(), range(0, 10_000, 5)], ids=["whole", "cut"])
def test_packets_on_their_way_when_a_silence_ends_arrive(packets, cuts):
    """Many packets within the time from tap to tap, before and after each silence."""
    rows = []
    for burst in range(3):
        for tap in range(3):
            at = burst * SILENCE_NS + tap * 20_000_000
            psns = range(burst * packets, (burst + 1) * packets)
            rows += [hop(at + 1_000 * n, tap, psn, traffic_class=0) for n, psn in enumerate(psns)]
    check(measured(rows, cuts), rows)


def test_packets_on_their_way_when_a_wrong_present_ends_arrive():
    """All packets within the time from tap to tap: the wrong one has no time to pass."""
    rows = [hop(0, 0, 1, traffic_class=0) | {"time_ns": 2 * START_NS}]
    for tap in range(2):
        at = tap * 20_000_000
        rows += [hop(at + n, tap, 10 + n, traffic_class=0) for n in range(2_000)]
    check(measured(rows), rows)


def test_hop_limits_order_taps_whatever_the_clocks_say():
    rows = [hop(1_000 * n - 900 * tap, tap, n) for n in range(20) for tap in range(3)]
    rows.sort(key=lambda row: row["time_ns"])
    measure = measured(rows)
    assert edge(measure, 0, 1)["packets"] == edge(measure, 1, 2)["packets"] == 20
    assert edge(measure, 0, 1)["delay_max"] == -900
    assert edge(measure, 1, 0) is None


def test_equal_hop_limits_are_ordered_by_both_directions():
    """Clock of tap 1 is 1 ms ahead: packets of both directions seem to go from tap 0 to tap 1."""
    rows = []
    for n in range(40):
        there, back = 20_000 * n, 20_000 * n + 7_000
        one, other = {"src": 0, "dst": 1}, {"src": 1, "dst": 0, "flow": 1}
        rows += [hop(there, 0, n, 64, **one), hop(there + 300 + 10**6, 1, n, 64, **one)]
        rows += [hop(back + 10**6, 1, n, 64, **other), hop(back + 300, 0, n, 64, **other)]
    rows.sort(key=lambda row: row["time_ns"])
    measure = measured(rows)
    assert edge(measure, 0, 1, 0)["packets"] == edge(measure, 1, 0, 1)["packets"] == 40
    assert edge(measure, 1, 0, 0) is edge(measure, 0, 1, 1) is None


def test_late_here_only():
    order = [0, 1, 3, 2, 4]
    rows = [hop(1_000 * n, 0, n) for n in range(5)]
    rows += [hop(10_000 + 1_000 * at, 1, psn) for at, psn in enumerate(order)]
    measure = measured(rows)
    assert edge(measure, 0, 1)["late"] == 1
    assert edge(measure, 0, 1)["first_late_ns"] == START_NS + 2_000


def quantiles(measure, near, far):
    return measure.histograms.quantiles(int(edge(measure, near, far)["hop"]), OVERTAKEN)


@examples(100)
@given(st.permutations(range(12)), st.integers(0, 12))
def test_how_many_packets_overtook(order, lost):
    """The second tap sees them in this order, without the first ones of it."""
    rows = [hop(1_000 * n, 0, (n - 6) % (1 << 24)) for n in range(12)]
    seen = order[lost:]
    rows += [hop(20_000 + 1_000 * at, 1, (n - 6) % (1 << 24)) for at, n in enumerate(seen)]
    over = [sum(other > n for other in seen[:at]) for at, n in enumerate(seen)]
    late = [count for count in over if count]
    if seen:
        found = quantiles(measured(rows), 0, 1)
        assert (found.count, found.max, found.mean) == (
            len(late), max(late), sum(late) / len(late)
        ) if late else found is None  # fmt: skip


def test_a_frame_of_each_kind_is_kept():
    """Of the third tap: the first one marked there and the first one late there; the slowest."""
    rows = []
    for n, (tos, wait) in enumerate([(2, 0), (3, 0), (3, 5_500), (2, 0), (2, 9_900)]):
        for tap in range(3):
            at = 1_000 * n + 100 * tap + wait * (tap == 2)
            rows.append(hop(at, tap, n, traffic_class=tos if tap == 2 else 2))
    rows.sort(key=lambda row: row["time_ns"])
    for number, row in enumerate(rows):
        row["frame_number"] = number + 1
    found = edge(measured(rows), 1, 2)
    frames = {(row["tap"], row["psn"]): row for row in rows}
    for kind, psn in ((MARKED, 1), (LATE, 2), (SLOWEST, 4)):
        shown = frames[2, psn]
        assert found["shown_frame"][kind] == shown["frame_number"]
        assert found["shown_ns"][kind] == shown["time_ns"]
    assert not edge(measured(rows), 0, 1)["shown_frame"][[MARKED, LATE, COPIED]].any()


def test_far_behind_all_packets_between_count():
    rows = [hop(1_000 * n, 0, n) for n in range(200)]
    order = [*range(1, 100), 0, *range(100, 200)]
    rows += [hop(10**6 + 1_000 * at, 1, psn) for at, psn in enumerate(order)]
    assert quantiles(measured(rows), 0, 1).max == 99


def test_one_tap_that_mirrors_before_and_after_a_router_counts_once():
    rows = [hop(0, 0, 0, 64), hop(500, 0, 0, 63), hop(900, 1, 0, 62)]
    measure = measured(rows)
    assert edge(measure, 0, 1)["packets"] == 1
    assert edge(measure, 0, 1)["drop_min"] == 2
    assert edge(measure, 0, 0) is None


def test_trimmed_packets_lose_payload_and_tags_are_none():
    """Packets 0 and 1 lose a VLAN tag, 1 its payload and its DSCP, 2 its DSCP."""
    changes = {0: {}, 1: {"payload_bytes": 0, "traffic_class": 44 << 2}, 2: {"traffic_class": 32}}
    rows = []
    for psn, change in changes.items():
        rows += [hop(1_000 * psn, 0, psn, wire_bytes=104)]
        rows += [hop(1_000 * psn + 600, 1, psn, **change)]
    found = edge(measured(rows), 0, 1)
    assert (found["trimmed"], found["dscp_changed"]) == (1, 1)
    assert found["first_trimmed_ns"] == found["last_trimmed_ns"] == START_NS + 1_000


def test_moves_between_next_taps():
    ways = [1, 1, 1, 2, 2, 1]
    rows = [
        row
        for n, way in enumerate(ways)
        for row in (hop(10_000 * n, 0, n), hop(10_000 * n + 500, way, n, 63))
    ]
    visit = next(v for v in measured(rows).visits if v["tap"] == 0)
    assert (visit["first_next_tap"], visit["next_tap"], visit["moves"]) == (1, 1, 2)
    assert visit["first_move_ns"] == START_NS + 30_000
    assert visit["last_move_ns"] == START_NS + 50_000


def test_runs_of_packets_that_end():
    ends = "..XXX.X.XXXX."
    rows = []
    for n, what in enumerate(ends):
        rows.append(hop(10_000 * n, 0, n))
        if what == ".":
            rows.append(hop(10_000 * n + 500, 1, n))
    visit = next(v for v in measured(rows).visits if v["tap"] == 0)
    assert (visit["long_runs"], visit["in_long_runs"], visit["run"]) == (2, 7, 0)


def test_ends_have_moments_once_packets_of_the_flow_went_on():
    rows = [row for n in range(30) for row in (hop(10_000 * n, 0, n), hop(10_000 * n + 500, 1, n))]
    lost = [hop(10_000 * n, 0, n, frame_number=n) for n in range(30, 70)]
    ends = [m for m in measured(rows + lost).ends if m["tap"] == 0 and m["frame"] >= 30]
    assert [int(m["label"]) & 0xFFFFFF for m in ends] == list(range(30, 70))
    assert [int(m["frame"]) for m in ends] == list(range(30, 70))
    assert [int(m["run"]) for m in ends] == list(range(1, 41))


def test_ends_before_any_packet_of_the_flow_went_on_are_counted():
    rows = [hop(10_000 * n, 0, n) for n in range(20)]
    rows += [
        row for n in range(20, 30) for row in (hop(10_000 * n, 0, n), hop(10_000 * n + 5, 1, n))
    ]
    ended = edge(measured(rows), 0, END, flow=0)
    assert (ended["unlogged_early"], ended["last_early_ns"]) == (
        20 - FIRST_ENDS, START_NS + 190_000,
    )  # fmt: skip


def test_windows_double_until_all_times_are_inside():
    times = [0, 5_000_000, 900_000_000, 3_000_000_000]
    rows = []
    for n, t in enumerate(times):
        rows += [hop(t, 0, n, wire_bytes=900 - n), hop(t + 500, 1, n, wire_bytes=900 - n)]
    measure = measured(rows)
    state = measure.state
    number = int(edge(measure, 0, 1)["hop"])
    packets = state.windows[number, :, 0]
    assert packets.sum() == 4
    width, origin = int(state.clock[4]), int(state.clock[5])
    for t in times:
        assert packets[(START_NS + t) // width - origin] > 0
    assert np.count_nonzero(packets) == len({(START_NS + t) // width for t in times})
    longest = state.windows[number, :, BYTES_MOST]
    assert sorted(longest[longest > 0].tolist()) == [897, 898, 900]  # the first two share a window


SLOW_NS = 2_000_000


def sprayed(ways, early_ns=0):
    """Rows of packets without identification over one of two paths, the first of them slow.

    ways: (PSN, path, time it is sent). Taps: 0 at the sender, 1 and 2 before, 3 and 4 after the
    spines, 5 at the receiver, whose clock is early.
    """
    rows = []
    for psn, path, sent in ways:
        slow = SLOW_NS if path == 0 else 0
        times = [0, 6_000, 12_000 + slow, 18_000 + slow - early_ns]
        for taken, tap, limit in zip(
            times, (0, 1 + path, 3 + path, 5), (64, 63, 62, 61), strict=True
        ):
            rows.append({
                "flow": 0, "time_ns": START_NS + sent + taken, "tap": tap, "psn": psn,
                "hop_limit": limit, "ip_id": 0, "opcode": WRITE_ONLY, "wire_bytes": 100,
            })  # fmt: skip
    return sorted(rows, key=lambda row: row["time_ns"])


USUAL = [(n, n % 2, n * 4_000_000) for n in range(40)]
OVERTAKEN_ORIGINAL = USUAL + [(40, 0, 160_000_000)]


@pytest.mark.parametrize("early_ns", [0, 3_000, -50_000])
@pytest.mark.parametrize(
    "after_ns", [100_000, SLOW_NS - 9_000, SLOW_NS - 3_000, SLOW_NS - 1_000, SLOW_NS + 3_000]
)
def test_a_retransmission_beside_its_slow_original_is_no_loss_and_no_copy(after_ns, early_ns):
    rows = sprayed(OVERTAKEN_ORIGINAL + [(40, 1, 160_000_000 + after_ns)], early_ns)
    edges = {
        (int(e["from_tap"]), int(e["to_tap"])): e for e in measured(rows).edges if e["flow"] >= 0
    }
    hops = [(START, 0), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5), (5, END)]
    assert {key: int(e["packets"]) for key, e in edges.items()} == dict(
        zip(hops, [42, 21, 21, 21, 21, 21, 21, 42], strict=True)
    )
    assert sum(int(e["copies"]) for e in edges.values()) == 0


def test_a_copy_beside_a_lost_original_is_a_copy():
    rows = sprayed(OVERTAKEN_ORIGINAL + [(40, 1, 160_100_000)])
    rows = [row for row in rows if not (row["psn"] == 40 and row["tap"] == 3)]
    late = [row for row in rows if row["psn"] == 40 and row["tap"] == 5]
    rows.remove(late[1])
    rows.append(late[0] | {"time_ns": late[0]["time_ns"] + 5_000})
    edges = {
        (int(e["from_tap"]), int(e["to_tap"])): e
        for e in measured(sorted(rows, key=lambda row: row["time_ns"])).edges
        if e["flow"] >= 0
    }
    assert edges[1, END]["packets"] == 1
    assert edges[4, 5]["copies"] == 1


def test_late_packets_and_retransmissions_of_a_new_flow_are_not_joined():
    """From the first packet on, each one over the slow path is retransmitted over the other one,
    and comes first there; the taps after the spines show nothing else."""
    ways = [(n, n % 2, n * 500_000) for n in range(60)]
    ways += [(n, 1, n * 500_000 + 1_200_000) for n in range(0, 60, 2)]
    edges = [
        (int(e["from_tap"]), int(e["to_tap"]))
        for e in measured([row for row in sprayed(ways) if row["tap"] in (3, 4)]).edges
        if e["flow"] >= 0
    ]
    assert sorted(edges) == [(3, END), (4, END), (START, 3), (START, 4)]


@pytest.mark.parametrize("offset_ns", [0, 50_000_000, -50_000_000])
@pytest.mark.parametrize("ends", [False, True])
def test_a_tap_that_saw_one_of_two_transmissions_shows_no_delay(ends, offset_ns):
    """Packets are lost after tap 1, and retransmitted 80 ms later. The capture of tap 0 begins
    between the two, or ends there. Where the clocks of taps 1 and 3 differ from that of tap 0,
    nothing is lost: all packets have the same delay."""
    ways = [(n, 0, n * 1_000_000) for n in range(400)]
    rows, lost = [], range(100, 110) if offset_ns == 0 else ()
    for psn, _, sent in ways:
        for again in (False, True) if psn in lost else (False,):
            for taken, tap in ((0, 0), (6_000, 1), (12_000, 3)):
                if tap == 3 and psn in lost and not again:
                    continue
                time = START_NS + sent + taken + 80_000_000 * again
                if tap == 0 and (time > START_NS + 150_000_000) == ends:
                    continue
                rows.append({
                    "flow": 0, "time_ns": time + (offset_ns if tap else 0), "tap": tap, "psn": psn,
                    "hop_limit": 64 - tap, "ip_id": 0, "opcode": WRITE_ONLY, "wire_bytes": 100,
                })  # fmt: skip
    measure = measured(sorted(rows, key=lambda row: row["time_ns"]))
    edges = measure.edges
    if lost and not ends:  # which transmission tap 1 saw first is unknown
        assert measure.state.used[DOUBTED] >= len(lost)
    passed = [e for e in edges if e["flow"] >= 0 and e["from_tap"] == 0 and e["to_tap"] == 1]
    assert len(passed) == 1
    assert passed[0]["delay_max"] - passed[0]["delay_min"] < 1_000
    assert not any(e["from_tap"] == 0 and e["to_tap"] == END and e["packets"] > 1 for e in edges)


def test_transmissions_at_parallel_taps_are_not_joined():
    rows = sprayed(USUAL + [(n, 1 - n % 2, 170_000_000 + n * 100_000) for n in range(20, 40)])
    edges = [
        (int(e["from_tap"]), int(e["to_tap"]))
        for e in measured([row for row in rows if row["tap"] in (1, 2)]).edges
        if e["flow"] >= 0
    ]
    assert sorted(edges) == [(1, END), (2, END), (START, 1), (START, 2)]
