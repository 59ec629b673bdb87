"""The MRC measure against a plain-Python twin, cut anywhere and merged, and by worked examples."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.mrc import CC_STATE, ERTH, MRC_ROW, NETH, SETH, TSETH
from rocescope.analyzer.measures import mrc as mrc_state
from rocescope.analyzer.measures.mrc import ORDER_LABEL_HIGH as LABEL_HIGH
from rocescope.analyzer.measures.mrc import ORDER_PORT_HIGH as PORT_HIGH
from rocescope.analyzer.measures.mrc import MrcMeasure, sent_key
from rocescope.analyzer.track.batch import IN_ORDER, TAP_COPY, TrackedBatch
from rocescope.analyzer.wire.packets import RTX, PacketTable

WRITE, SACK, NACK, REQUEST = 0xC7, 0xDC, 0xDD, 0xD8
WRAP = 1 << 23  # 65536 units of 128 ns
EV = 0xABCD_C001
PATH_MTU = 1024
PEER = np.array([1, 0], np.int32)  # flow 0 sends, flow 1 answers


def batch(rows: list[dict[str, Any]], start: int = 0) -> TrackedBatch:
    """Rows of flows 0 and 1, one microsecond apart unless they say so."""
    table = PacketTable.zeros(len(rows))
    table.wire_bytes[:] = 1100
    table.payload_bytes[:] = PATH_MTU
    records = np.zeros(len(rows), MRC_ROW)
    records["row"] = np.arange(len(rows))
    verdict = np.full(len(rows), IN_ORDER, np.uint8)
    flow = np.zeros(len(rows), np.int32)
    for i, row in enumerate(rows):
        table.time_ns[i] = 1_000_000_000 + (start + i) * 1000
        table.frame_number[i] = start + i + 1
        flow[i] = row["opcode"] in (SACK, NACK)
        if row["opcode"] == WRITE and "timestamp" in row:
            records["present"][i] = TSETH
        if row["opcode"] == SACK:
            records["present"][i] = SETH | CC_STATE
        if row["opcode"] == NACK:
            records["present"][i] = NETH
        for name, value in row.items():
            if name == "verdict":
                verdict[i] = value
            elif name == "rtx":
                table.bth_flags[i] = RTX if value else 0
            elif name in MRC_ROW.names and name != "psn":
                records[name][i] = value
            else:
                getattr(table, name)[i] = value
                if name == "psn":
                    records["psn"][i] = value
    table = PacketTable(*(getattr(table, name) for name, _ in table.columns()), mrc=records)
    return TrackedBatch(table, flow, verdict, PEER, 2)


def measured(*batches: TrackedBatch) -> MrcMeasure:
    found = MrcMeasure()
    for one in batches:
        found.update(one, np.array([PATH_MTU, 0]))
    return found


class Twin:
    """The same again, over one dictionary per packet."""

    def __init__(self) -> None:
        self.sent: dict[int, Any] = defaultdict(lambda: defaultdict(int))
        self.told: dict[int, Any] = defaultdict(lambda: defaultdict(int))
        self.ring: dict[int, tuple[int, int, bool]] = {}
        self.packets = self.resends = self.after_nack = self.returned = 0
        self.votes = [0, 0, 0, 0]
        self.depths: list[int] = []
        self.trips: list[int] = []
        self.received, self.counter = 0, None
        self.clock: int | None = None
        self.trims: list[list[int]] = [[], []]
        """Times of trimmed packets and of NACKs of trimmed packets."""

    def row(self, row: dict[str, Any], time: int) -> None:
        if row.get("verdict") == TAP_COPY:
            return
        {WRITE: self.write, SACK: self.sack, NACK: self.nack}[row["opcode"]](row, time)

    def write(self, row: dict[str, Any], time: int) -> None:
        ev = self.sent[row["ev"]]
        silent = self.packets - ev["index"]
        if ev["packets"] and silent > max(64, 16 * len(self.sent)):
            self.returned += 1
        ev["index"] = self.packets
        ev["packets"] += 1
        ev["marked"] += row["traffic_class"] == 3
        ev["trimmed"] += row["payload_bytes"] < PATH_MTU
        if row["payload_bytes"] < PATH_MTU:
            self.trims[mrc_state.SENT].append(time)
        self.packets += 1
        if "timestamp" in row:
            self.clock = (time - row["timestamp"] * 128) % WRAP
        known = self.ring.get(row["psn"] % 1024)
        if row["rtx"]:
            ev["resends"] += 1
            self.resends += 1
            if known and known[0] == row["psn"]:
                self.sent[known[1]]["lost"] += 1
                self.after_nack += known[2]
        self.ring[row["psn"] % 1024] = (row["psn"], row["ev"], False)

    def answered(self, about: Any, row: dict[str, Any], time: int) -> None:
        if row["timestamp"] and self.clock is not None:
            passed = (time - self.clock - row["timestamp"] * 128) % WRAP
            passed = 0 if passed > WRAP - WRAP // 16 else passed
            about["trips"] += 1
            about["trip_ns"] += passed
            self.trips.append(passed)

    def sack(self, row: dict[str, Any], time: int) -> None:
        about = self.told[row["entropy"]]
        about["sacks"] += 1
        about["skips"] += row["feedback"] == 1
        about["always_skips"] += row["feedback"] == 2
        psn = (row["psn"] + row["psn_offset"]) % (1 << 24)
        known = self.ring.get(psn % 1024)
        if known and known[0] == psn:
            turned = known[1] % 65536 * 65536 + known[1] // 65536
            right, other = row["entropy"] == known[1], row["entropy"] == turned
            self.votes[2 if right and other else 0 if right else 1 if other else 3] += 1
        bits = row["sack_bitmap"]
        self.depths.append(max(0, row["sack_offset"] + bits.bit_length() - 1) if bits else 0)
        self.answered(about, row, time)
        if self.counter is None:
            self.counter = row["rcvd_bytes"]
        grown = (row["rcvd_bytes"] - self.counter) % (1 << 24)
        if grown < 1 << 23:
            self.received += grown
            self.counter = row["rcvd_bytes"]

    def nack(self, row: dict[str, Any], time: int) -> None:
        about = self.told[row["entropy"]]
        about["nacks"] += 1
        if row["reason"] in (1, 2):
            self.trims[mrc_state.TOLD].append(time)
        known = self.ring.get(row["psn"] % 1024)
        if known and known[0] == row["psn"]:
            self.ring[row["psn"] % 1024] = (*known[:2], True)
            self.answered(about, row, time)
        elif self.clock is not None:
            self.answered(about, row, time)


EVS = st.sampled_from([EV, 0xC001_ABCD, 0x0001_C002, 0xC001_C001])
PSNS = st.sampled_from([5, 6, 7, 1029, (1 << 24) - 1])
STAMPS = st.sampled_from([0, 1, 2, 40_000, 65_535])
WRITES = st.fixed_dictionaries(
    {
        "opcode": st.just(WRITE),
        "ev": EVS,
        "psn": PSNS,
        "rtx": st.booleans(),
        "traffic_class": st.sampled_from([2, 3]),
        "payload_bytes": st.sampled_from([PATH_MTU, 100]),
    },
    optional={"timestamp": STAMPS, "verdict": st.just(TAP_COPY)},
)
SACKS = st.fixed_dictionaries(
    {
        "opcode": st.just(SACK),
        "entropy": EVS,
        "psn": PSNS,
        "psn_offset": st.sampled_from([0, 1, -1, 6]),
        "feedback": st.integers(0, 2),
        "sack_offset": st.sampled_from([1, -3, 5]),
        "sack_bitmap": st.sampled_from([0, 1, 5, 1 << 63]),
        "timestamp": STAMPS,
        "rcvd_bytes": st.sampled_from([0, 7, 0xFFFFFF, 0x400000]),
    }
)
NACKS = st.fixed_dictionaries(
    {
        "opcode": st.just(NACK),
        "entropy": EVS,
        "psn": PSNS,
        "timestamp": STAMPS,
        "reason": st.sampled_from([1, 2, 6]),
    }
)


def compare(found: MrcMeasure, twin: Twin) -> None:
    flow, answers = found.flow(0), found.flow(1)
    assert flow["packets"] == twin.packets
    assert flow["resends"] == twin.resends
    assert flow["resends_after_nack"] == twin.after_nack
    assert list(found.votes) == twin.votes
    sent = {int(ev["key"]): ev for ev in found.evs(0, mrc_state.SENT)}
    assert set(sent) == set(twin.sent)
    for key, ev in twin.sent.items():
        for name in ("packets", "marked", "trimmed", "resends", "lost"):
            assert sent[key][name] == ev[name], name
    told = {int(ev["key"]): ev for ev in found.evs(1, mrc_state.TOLD)}
    assert set(told) == set(twin.told)
    for key, about in twin.told.items():
        for name in ("sacks", "skips", "always_skips", "nacks"):
            assert told[key][name] == about[name], name
        assert told[key]["round_trips"] == about["trips"]
        assert told[key]["round_trip_sum_ns"] == about["trip_ns"]
    for kind, values in ((mrc_state.OOO_DEPTH, twin.depths), (mrc_state.ROUND_TRIP, twin.trips)):
        quantiles = found.histograms.quantiles(1, kind)
        assert (quantiles.count if quantiles else 0) == len(values)
        assert not values or (quantiles is not None and quantiles.max == max(values))
    assert answers["received_units"] == twin.received
    for lane, record in ((mrc_state.SENT, flow), (mrc_state.TOLD, answers)):
        times = twin.trims[lane]
        frame = (times[0] - 1_000_000_000) // 1000 + 1 if times else 0
        assert record["trim_frame"][lane] == frame
        if times:
            first, last = record["trim_first_ns"][lane], record["trim_last_ns"][lane]
            assert (first, last) == (times[0], times[-1])


@examples(60)
@given(
    st.lists(st.one_of(WRITES, WRITES, SACKS, NACKS), min_size=1, max_size=30), st.integers(0, 30)
)
def test_equals_the_twin_wherever_it_is_cut(rows: list[dict[str, Any]], cut: int) -> None:
    twin = Twin()
    for i, row in enumerate(rows):
        twin.row(row, 1_000_000_000 + i * 1000)
    parts = [(rows[:cut], 0), (rows[cut:], cut)]
    found = measured(*(batch(part, start) for part, start in parts if part))
    compare(found, twin)


def write(psn: int, ev: int = EV, **more: Any) -> dict[str, Any]:
    return {"opcode": WRITE, "ev": ev, "psn": psn, **more}


def test_a_value_left_out_is_retired_and_returns() -> None:
    evs = [EV, EV + 1, EV + 2, EV + 3]
    rows = [write(n, evs[n % 4]) for n in range(40)]
    rows += [write(40 + n, evs[n % 3]) for n in range(90)]  # EV + 3 is silent
    rows += [write(130 + n, evs[n % 4]) for n in range(40)]
    found = measured(batch(rows))
    (entry,) = found.log()
    assert entry["kind"] == mrc_state.LOG_RETURNED
    assert entry["key"] == EV + 3
    assert entry["value"] == 1_000_000_000 + 39 * 1000
    assert entry["time_ns"] == 1_000_000_000 + 133 * 1000
    assert entry["without"] == 93
    assert entry["lost_ns"] == 0


def test_a_loss_explains_a_shorter_silence() -> None:
    """Its packet is retransmitted over another value, and four rounds go by without it."""
    evs = [EV, EV + 1, EV + 2, EV + 3]
    rows = [write(n, evs[n % 4], rtx=False) for n in range(40)]
    rows += [write(39, EV, rtx=True)] + [write(40 + n, evs[n % 3]) for n in range(17)]
    rows += [write(57, EV + 3)]
    (entry,) = measured(batch(rows)).log()
    assert (entry["key"], entry["without"]) == (EV + 3, 18)
    assert entry["lost_ns"] == 1_000_000_000 + 40 * 1000
    assert not len(measured(batch(rows[:50] + rows[-1:])).log())  # less than four rounds
    nacked = [*rows[:40], {"opcode": NACK, "entropy": EV + 3, "psn": 39, "reason": 1}, *rows[40:]]
    assert [e["kind"] for e in measured(batch(nacked)).log()] == [mrc_state.LOG_NACK]


def test_round_trip_over_the_wrap() -> None:
    """Sent with stamp 65535, answered 5 us later: the stamps have wrapped meanwhile."""
    rows = [write(1, timestamp=65_535)] + [write(n) for n in range(2, 6)]
    rows += [{"opcode": SACK, "entropy": EV, "psn": 1, "timestamp": 65_535}]
    (about,) = measured(batch(rows)).evs(1, mrc_state.TOLD)
    assert about["round_trip_sum_ns"] == 5000
    # A packet 4 us later with a stamp 31 units (3,968 ns) later: the clocks agree within a unit.
    rows[4] = write(5, timestamp=65_535 + 31 - 65_536)
    (about,) = measured(batch(rows)).evs(1, mrc_state.TOLD)
    assert abs(int(about["round_trip_sum_ns"]) - 5000) < 128


def test_port_status() -> None:
    rows = [
        {"opcode": REQUEST, "src": 7, "present": ERTH, "operation": 0, "port_mask": mask}
        for mask in (0b1111, 0b1111, 0b1101, 0b1101, 0b1111)
    ]
    rows.insert(2, {"opcode": REQUEST, "src": 7, "present": ERTH, "operation": 1, "port_mask": 0})
    found = measured(batch(rows))
    assert [(c.host, c.mask) for c in found.port_changes] == [(7, 15), (7, 13), (7, 15)]
    assert [c.time_ns % 10_000 // 1000 for c in found.port_changes] == [0, 3, 5]


def test_either_order_and_none() -> None:
    turned = 0xC001_ABCD
    sack = {"opcode": SACK, "psn": 1, "timestamp": 0}
    for entropy, order in ((EV, LABEL_HIGH), (turned, PORT_HIGH)):
        found = measured(batch([write(1), sack | {"entropy": entropy}]))
        assert found.entropy_order() == (order, None)
        assert sent_key(entropy, order) == EV
    for rows, reason in (
        ([write(1)], "no SACK was seen together with its packet"),
        ([write(1), sack | {"entropy": 1}], "no SACK holds the entropy value"),
        ([write(1, 0x12341234), sack | {"entropy": 0x12341234}], "both halves"),
        ([write(1), sack | {"entropy": EV}, sack | {"entropy": turned}], "both orders"),
    ):
        order, why = measured(batch(rows)).entropy_order()
        assert order is None
        assert why is not None and reason in why


def test_memory_is_bounded() -> None:
    rows = [write(n, n) for n in range(6000)]
    found = measured(batch(rows))
    evs = found.evs(0, mrc_state.SENT)
    assert len(evs) == 4097
    assert int(evs["packets"].sum()) == 6000
    nacks = [{"opcode": NACK, "entropy": EV, "psn": n, "reason": 0xFF} for n in range(10_050)]
    found = measured(batch(nacks))
    assert len(found.log()) == 10_000
    assert found.omitted == 50
    assert found.flow(1)["nacks"][-1] == 10_050


def test_a_trimmed_last_by_either_reading_of_its_length() -> None:
    last = {"opcode": 0xC8, "ev": EV}
    lengths = [(300, 300), (300, 299), (4 * PATH_MTU + 300, 300), (4 * PATH_MTU + 300, 0)]
    lengths += [(2 * PATH_MTU, PATH_MTU), (2 * PATH_MTU, 64), (0, 0)]
    rows = [
        {**last, "psn": i, "dma_length": whole, "payload_bytes": held}
        for i, (whole, held) in enumerate(lengths)
    ]
    assert measured(batch(rows)).flow(0)["trimmed"] == 3
