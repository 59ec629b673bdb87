"""Folders with raw answers."""

from __future__ import annotations

import os
import re

import pytest
from answers import recorded

from rocescope.analyzer.errors import RocescopeError, UsageError
from rocescope.discovery.discover import discover_folder
from rocescope.discovery.folder import NOT_ASKED, UNEXPECTED, read_folder
from rocescope.discovery.results import Asked, write_asked


def test_devices_their_dialects_and_what_was_not_asked(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    (folder / "leaf2.lldp.json").unlink()
    answers, unreadable = read_folder(folder)
    assert not unreadable
    assert {one.device.name: one.dialect.name for one in answers} == {
        **{f"h{i}": "linux" for i in range(1, 5)},
        **dict.fromkeys(("leaf1", "leaf2", "spine1", "spine2"), "frr"),
    }
    missing = {one.device.name: [q.suffix for q in one.missing] for one in answers}
    assert missing["leaf1"] == ["bucket.json", "rule.json", "rule6.json"]
    assert missing["leaf2"] == ["bucket.json", "rule.json", "rule6.json", "lldp.json"]


def test_a_device_with_half_an_answer_is_named_and_the_others_are_read(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    file = folder / "spine2.route.json"
    file.write_bytes(file.read_bytes()[:1000])
    answers, unreadable = read_folder(folder)
    assert len(answers) == 7
    assert [one.name for one in unreadable] == ["spine2"]
    assert "spine2.route.json: not JSON" in unreadable[0].reason


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (answer, kind)
        for answer in (
            "route.json",
            "nexthop.json",
            "addr.json",
            "lldp.json",
            "sysctl",
            "rule.json",
        )
        for kind in ("pipe", "device", "sparse")
    ],
)
def test_an_answer_that_is_no_file_is_never_read_without_end(tmp_path, answer, kind):
    folder = recorded(tmp_path) / "healthy"
    file = folder / f"leaf1.{answer}"
    file.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        with file.open("wb") as sparse:
            sparse.truncate(1 << 40)
    answers, unread = read_folder(folder)
    assert len(answers) == 8 - len(unread)
    reasons = [one.reason for one in unread]
    (reason,) = reasons + [text for one in answers for text in one.device.unexpected]
    assert f"leaf1.{answer}: " in reason
    assert ("larger than" if kind == "sparse" else "not a regular file") in reason


def test_the_list_of_asked_devices_may_be_a_pipe(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    os.mkfifo(folder / "asked.json")
    with pytest.raises(UsageError, match=r"asked\.json: not a regular file"):
        read_folder(folder)


def test_folders_without_an_answer(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(UsageError, match=r"has no readable NAME.route.json; rocescope discover"):
        read_folder(tmp_path)
    (tmp_path / "r.route.json").write_text("x: [")
    with pytest.raises(UsageError, match=r"no readable NAME.route.json; .*r.route.json: not JSON"):
        read_folder(tmp_path)


def test_older_answers_beside_those_of_a_collection(tmp_path):
    """A device that asked.json does not name, and the answer of an earlier dialect."""
    folder = recorded(tmp_path) / "healthy"
    asked = {
        name: Asked(dialect="linux", kind="switch", ssh=name)
        for name in ("leaf1", "leaf2", "spine1", "spine2", "h1", "h2", "h3")
    }
    write_asked(folder, asked)
    answers, (other,) = read_folder(folder)
    assert {one.device.name for one in answers} == set(asked)
    assert (other.name, other.kind) == ("h4", NOT_ASKED)
    assert [one.installed for one in answers] == [{}] * 7


@pytest.mark.parametrize(
    ("suffix", "content", "reason"),
    [
        ("route.json", '[{"dst":"10.0.0.0/8","dev":"x","via":{"family":"inet6"}}]', "has no host"),
        ("nexthop.json", '[{"id":7,"group":[{"weight":3}]}]', r"\[0\].group\[0\]: it has no id"),
        ("sysctl", "net.ipv4.fib_multipath_hash_policy = 77", "must be 0 to 3, not 77"),
        ("sysctl", "x = 1\nnet.ipv4.fib_multipath_hash_seed = -5", ":2: .* not -5"),
        ("sysctl", f"net.ipv4.fib_multipath_hash_seed = {1 << 70}", "must be 0 to 4,294,967,295"),
        ("sysctl", "net.ipv6.fib_multipath_hash_fields = 4096", "must be 0 to 4,095, not 4096"),
    ],
)
def test_odd_answers_of_one_device_are_named(suffix, content, reason, tmp_path):
    folder = recorded(tmp_path) / "healthy"
    (folder / f"leaf1.{suffix}").write_text(content)
    answers, (unread,) = read_folder(folder)
    assert len(answers) == 7
    assert unread.name == "leaf1"
    assert re.search(rf"leaf1.{suffix}.*{reason}", unread.reason)


@pytest.mark.parametrize(
    "suffix",
    ["lldp.json", "addr.json", "neigh.json", "rule.json", "route6.json", "frr-route.json"],
)
def test_half_an_answer_beside_the_routes_leaves_the_routes(suffix, tmp_path):
    folder = recorded(tmp_path) / "healthy"
    file = folder / f"leaf1.{suffix}"
    before = read_folder(folder)[0]
    file.write_bytes(b'[{"dst": "10.' if suffix == "rule.json" else file.read_bytes()[:150])
    answers, unread = read_folder(folder)
    assert unread == []
    told = {one.device.name: one.device.unexpected for one in answers if one.device.unexpected}
    (text,) = told.pop("leaf1")
    assert text.startswith(f"leaf1.{suffix}: ")
    assert told == {}
    kept, whole = (
        [r for one in found if one.device.name == "leaf1" for r in one.device.routes]
        for found in (answers, before)
    )
    assert kept == [r for r in whole if r.network.version == 4 or suffix != "route6.json"]
    report = discover_folder(folder, 10**10, 500).report
    assert (report.switches, report.hosts, len(report.links)) == (4, 4, 12)
    assert [one.device for one in report.remarks if one.kind == UNEXPECTED] == ["leaf1"]


def test_when_no_device_answers_the_devices_are_named(tmp_path):
    """Not the folder, which may be a temporary one."""
    asked = {
        f"leaf{i}": Asked(
            dialect="linux", kind="switch", ssh=f"leaf{i}", answers=[], problem="no route to host"
        )
        for i in range(9)
    }
    write_asked(tmp_path, asked)
    with pytest.raises(RocescopeError) as error:
        read_folder(tmp_path)
    assert error.value.exit_code == 1
    assert str(error.value).startswith("no device answered: leaf0: no route to host; leaf1: ")
    assert str(error.value).endswith("; and 4 more")
