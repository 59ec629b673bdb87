"""perftest: what its lines say, and programs whose lines are mixed."""

from __future__ import annotations

from itertools import zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.jobs.perftest import PerftestLog, PerftestPair, without_times

HERE, THERE = "10.0.0.1", "10.0.0.2"


def run(first, device="mlx5_0", count=1, here=HERE, there=THERE):
    """The output of a program with queue pairs from `first` on; `first` + 64 at the other end."""
    yield " Dual-port       : OFF\t\tDevice         : " + device
    yield f" Number of qps   : {count}\t\tTransport type : IB"
    yield " Connection type : RC\t\tUsing SRQ      : OFF"
    for side, base, host in (("local", first, here), ("remote", first + 64, there)):
        for qpn in range(base, base + count):
            yield f" {side} address: LID 0000 QPN 0x{qpn:04x} PSN 0x3490f6 RKey 0x1 VAddr 0x7f"
            yield " GID: 00:00:00:00:00:00:00:00:00:00:255:255:" + ":".join(
                f"{int(part):02d}" for part in host.split(".")
            )
    yield " 65536      1000             9.81               9.81               0.018715"


def pairs(first, device="mlx5_0", count=1, mixed=False):
    far = [(None, None)] * count if mixed else [(first + 64 + i, THERE) for i in range(count)]
    return [PerftestPair(first + i, HERE, device, *far[i]) for i in range(count)]


def heard(lines):
    log = PerftestLog(1000)
    for line in lines:
        log.hear(line)
    return log.finish(), log


def test_runs_after_each_other():
    lines = [*run(0x100, count=4), *run(0x200, "mlx5_1"), *run(0x300)]
    assert heard(lines)[0] == pairs(0x100, count=4) + pairs(0x200, "mlx5_1") + pairs(0x300)
    assert heard(lines)[1].mixed == 0


def test_other_lines_are_not_taken():
    log = PerftestLog(10)
    for line in (
        " GID: 00:00:00:00:00:00:00:00:00:00:255:999:10:00:00:01",
        " Connection type : RC\t\tUsing SRQ      : OFF",
        "Device  : mlx5_0",
        "local address: unknown",
    ):
        assert not log.hear(line)
    assert log.finish() == [] and log.unmatched_lines == 0


def mixed(*logs):
    """The lines of programs in turn."""
    return [line for lines in zip_longest(*logs) for line in lines if line is not None]


@pytest.mark.parametrize("other", ["mlx5_0", "mlx5_1"])
def test_programs_that_are_mixed_have_a_device_only_if_it_is_the_same(other):
    found, log = heard(mixed(run(0x100, "mlx5_0"), run(0x200, other)))
    device = "mlx5_0" if other == "mlx5_0" else None
    assert found == pairs(0x100, device, mixed=True) + pairs(0x200, device, mixed=True)
    assert log.mixed == 2


def test_after_mixed_programs_a_later_one_is_certain():
    lines = [*mixed(run(0x100), run(0x200, "mlx5_1", 2)), *run(0x300, "mlx5_2")]
    assert heard(lines)[0][-1:] == pairs(0x300, "mlx5_2")


def test_addresses_of_mixed_programs_are_known_only_if_each_could_be_of_one():
    lines = mixed(run(0x100), run(0x200, there="10.0.0.9"))
    assert [pair.address for pair in heard(lines)[0]] == [HERE, HERE]
    lines = mixed(run(0x100), run(0x200, here="10.0.0.9"))
    assert [pair.address for pair in heard(lines)[0]] == [None, None]


def test_a_program_that_ends_after_its_header_leaves_the_device_of_the_next_uncertain():
    """It may still be running; its lines may come later."""
    begun = list(run(0x100, "mlx5_1"))[:3]
    assert heard([*begun, *run(0x200)])[0] == pairs(0x200, None, mixed=True)


def test_a_file_that_begins_within_a_program():
    """It has printed all its ends if the other ends are there; else its lines may still come."""
    for cut, device in ((5, "mlx5_1"), (6, "mlx5_1"), (8, "mlx5_1")):
        found, _ = heard([*list(run(0x100, count=2))[cut:], *run(0x200, "mlx5_1")])
        assert found[-1:] == pairs(0x200, device), cut
        assert all(pair.device is pair.remote_qpn is None for pair in found[:-1])
    found, _ = heard([*list(run(0x100, count=2))[3:6], *run(0x200, "mlx5_1")])
    assert {(pair.device, pair.remote_qpn) for pair in found} == {(None, None)}


def test_a_gid_without_its_queue_pair_shows_that_addresses_are_uncertain():
    lines = list(run(0x100, count=2))[4:]
    assert [pair.address for pair in heard(lines)[0]] == [None]
    assert heard(lines)[1].unmatched_lines == 1


def test_more_ends_than_a_program_has_are_of_several():
    """The header of one of them is not in the file."""
    lines = mixed(run(0x100, count=2), list(run(0x200, "mlx5_1"))[1:])
    assert {(pair.device, pair.remote_qpn) for pair in heard(lines)[0]} == {(None, None)}
    assert heard(lines)[1].mixed == 3


@given(st.data())
def test_mixed_lines_name_no_wrong_device_address_or_other_end(data):
    """Whatever the order in which two programs write."""
    hosts = st.sampled_from([HERE, "10.0.0.3"])
    logs = [
        list(run(0x100, "mlx5_0", data.draw(st.integers(1, 3)), data.draw(hosts))),
        list(run(0x200, "mlx5_1", data.draw(st.integers(1, 3)), data.draw(hosts))),
    ]
    right = {pair.qpn: pair for log in logs for pair in heard(log)[0]}
    lines = []
    while any(logs):
        log = data.draw(st.sampled_from([log for log in logs if log]))
        lines.append(log.pop(0))
    found, _ = heard(lines)
    assert {pair.qpn for pair in found} == set(right)
    for pair in found:
        whole = right[pair.qpn]
        assert pair.address in (None, whole.address)
        assert pair.device in (None, whole.device)
        assert (pair.remote_qpn, pair.remote_address) in (
            (None, None),
            (whole.remote_qpn, whole.remote_address),
        )


def test_the_last_gid_of_a_program_may_come_after_the_header_of_the_next():
    lines = [*list(run(0x100))[:6], *run(0x200, "mlx5_1")]
    lines.insert(7, list(run(0x100))[6])
    found, log = heard(lines)
    assert found == pairs(0x100, None, mixed=True) + pairs(0x200, None, mixed=True)
    assert log.unmatched_lines == 0


def test_programs_on_infiniband_print_no_gid():
    lines = [line for line in (*run(0x100), *run(0x200, "mlx5_1")) if "GID" not in line]
    assert [(pair.qpn, pair.device, pair.address) for pair in heard(lines)[0]] == [
        (0x100, "mlx5_0", None),
        (0x200, "mlx5_1", None),
    ]


def test_the_text_before_their_lines_tells_programs_apart():
    logs = [
        [f"node7: {line}" for line in run(0x100)],
        [f"node8: {line}" for line in run(0x200, "mlx5_1", 2)],
        run(0x300, "mlx5_2"),
    ]
    found, log = heard(mixed(*logs))
    right = pairs(0x100) + pairs(0x200, "mlx5_1", 2) + pairs(0x300, "mlx5_2")
    assert sorted(found) == right and log.mixed == log.unmatched_lines == 0


TIMES = [
    "2026-11-21T09:05:0{}.123456789Z ",
    "2026-11-21 09:05:0{},123 ",
    "2026-11-21T09:05:0{}+02:00 stdout F ",
    "[pod/a/b] 2026-11-21T09:05:0{}.5Z ",
    "Sat Nov 21 09:05:0{} 2026[1,0]<stdout>:",
    "Nov 21 09:05:0{} node7 run[31]: ",
    "[09:05:0{}] ",
    "179525190{}.123456 ",
]


@pytest.mark.parametrize("before", TIMES)
def test_times_before_lines_do_not_count(before):
    log = [before.format(number % 10) + line for number, line in enumerate(run(0x100, count=2))]
    assert heard(log)[0] == pairs(0x100, count=2)
    assert without_times(before.format(1)) == without_times(before.format(7))


def test_lines_in_json():
    lines = [f'{{"log":"{line}\\n","stream":"stdout"}}' for line in run(0x100)]
    assert heard(lines)[0] == pairs(0x100)


def test_text_that_changes_from_line_to_line_says_nothing():
    """As line numbers of grep."""
    found, log = heard([f"{number}: {line}" for number, line in enumerate(run(0x100))])
    assert found == [PerftestPair(0x100, None, None, None, None)]
    assert log.unmatched_lines == 2


def test_what_is_kept_is_bounded():
    log = PerftestLog(3)
    for line in run(0x100, count=10):
        log.hear(line)
    assert log.dropped == 4 and len(log.finish()) == 6
