"""The peers of the hash benchmark choose the members that the models choose."""

from __future__ import annotations

import hashing
import pytest


@pytest.mark.parametrize("model", hashing.PEERS)
def test_peers_agree(model, monkeypatch):
    few = {name: (peer, 2) for name, (peer, _) in hashing.PEERS[model].items()}
    monkeypatch.setitem(hashing.PEERS, model, few)
    measured = hashing.row(model, hashing.some_keys().take(slice(40)), seeds=3, rounds=1)
    assert set(measured.peers) == set(few)
    assert measured.millions > 0


def test_a_peer_that_disagrees_is_told(monkeypatch):
    wrong = hashing.each(lambda row, seed: 1)
    monkeypatch.setitem(hashing.PEERS, "crc32", {"zlib": (wrong, 1)})
    with pytest.raises(SystemExit, match="crc32: zlib chose other members"):
        hashing.row("crc32", hashing.some_keys(), seeds=3, rounds=1)
