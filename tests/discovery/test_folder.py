"""Folders with raw answers."""

from __future__ import annotations

import pytest
from answers import recorded

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.folder import read_folder


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
    assert missing["leaf1"] == ["bucket.json"]
    assert missing["leaf2"] == ["bucket.json", "lldp.json"]


def test_a_device_with_half_an_answer_is_named_and_the_others_are_read(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    file = folder / "spine2.route.json"
    file.write_bytes(file.read_bytes()[:1000])
    answers, unreadable = read_folder(folder)
    assert len(answers) == 7
    assert [one.name for one in unreadable] == ["spine2"]
    assert "spine2.route.json: not JSON" in unreadable[0].reason


def test_folders_without_an_answer(tmp_path):
    with pytest.raises(UsageError, match="is no folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(UsageError, match=r"has no readable NAME.route.json; rocescope discover"):
        read_folder(tmp_path)
    (tmp_path / "r.route.json").write_text("x: [")
    with pytest.raises(UsageError, match=r"no readable NAME.route.json; .*r.route.json: not JSON"):
        read_folder(tmp_path)
