"""`--transport`: one line for a mistake."""

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.specs.transport import parse_transport

US = 1_000_000


def test_transport() -> None:
    found = parse_transport("recovery=sack,congestion=nscc,reordering=6,rto=50us,rate=90%")
    assert (found.recovery, found.congestion, found.reordering_packets) == ("sack", "nscc", 6)
    assert (found.rto_ps, found.rate_share) == (50 * US, 0.9)
    found = parse_transport("mpr=1024,linear=3,rate=rho-max")
    assert (found.mpr_packets, found.linear_retries, found.rate_share) == (1024, 3, 1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("recovery=magic", "recovery must be one of none, ideal, sack, go-back-n"),
        ("rto=1h", "rto must be"),
        ("rate=0%", "rate must be"),
        ("reordering=0", "reordering must be"),
        ("mpr=9999999", "mpr must be"),
        ("window=3", "--transport has no 'window'"),
    ],
)
def test_transport_names_the_parameter(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_transport(text)
