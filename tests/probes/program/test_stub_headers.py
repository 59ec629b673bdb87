"""The environment in which bcc compiles."""

from __future__ import annotations

import os

import pytest

from rocescope.probes.program.stub_headers import HEADERS, stub_headers


@pytest.mark.parametrize("before", [None, "/usr/src/linux"])
def test_the_variable_is_put_back(before, monkeypatch):
    if before is None:
        monkeypatch.delenv("BCC_KERNEL_SOURCE", raising=False)
    else:
        monkeypatch.setenv("BCC_KERNEL_SOURCE", before)
    with pytest.raises(ValueError, match="inside"), stub_headers():
        assert os.environ["BCC_KERNEL_SOURCE"] == str(HEADERS)
        raise ValueError("inside")
    assert os.environ.get("BCC_KERNEL_SOURCE") == before


def test_there_are_headers_that_only_their_owner_writes():
    files = list(HEADERS.rglob("*.h"))
    assert files and not any(file.stat().st_mode & 0o002 for file in files)
