"""What every scheme says of itself."""

from __future__ import annotations

import pytest

from rocescope.replay.aggregation.schemes.registry import SCHEMES


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_names_all_its_options_and_has_timers(name):
    scheme = SCHEMES[name]({})
    conduct = scheme.conduct
    assert scheme.name == name and "rto" in scheme.parameters
    assert 0 < conduct.rto_ps <= conduct.first_rto_ps
