"""What a request holds."""

from __future__ import annotations

from rocescope.discovery.asking.commands import Request


def test_a_request_has_no_input_by_default():
    assert Request("leaf1", "ip -j link").stdin == b""
