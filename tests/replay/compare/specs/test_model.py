"""`--model`: sizes, thresholds, and mistakes by the name of their key."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.specs.model import parse_model


def test_a_ramp_has_its_three_numbers() -> None:
    model, captured = parse_model("ecn=5kB+200kB+1%,ecn-last-hop=no")
    assert (model.ecn_low_bytes, model.ecn_high_bytes) == (5_000, 200_000)
    assert model.ecn_most == 0.01
    assert not model.ecn_last_hop
    assert captured


def test_one_threshold_marks_everything_above_it() -> None:
    model, _ = parse_model("ecn=80kB")
    assert (model.ecn_low_bytes, model.ecn_high_bytes, model.ecn_most) == (80_000, 80_000, 1.0)
    assert model.ecn_last_hop


def test_settings_of_marking_are_told_only_with_marking() -> None:
    assert "ecn_most" not in parse_model("")[0].described()
    assert "drop" not in parse_model("")[0].described()
    assert parse_model("ecn=1kB+2kB+20%")[0].described()["ecn_most"] == "0.2"


def test_hosts_have_jitter_where_queues_can_be_full() -> None:
    assert parse_model("")[0].host_jitter == 0
    model, _ = parse_model("buffer=80kB")
    assert (model.host_jitter, model.drop) == (0.01, "random")
    model, _ = parse_model("buffer=80kB,drop=tail,jitter=0%")
    assert (model.host_jitter, model.drop) == (0.0, "tail")
    assert parse_model("jitter=10%")[0].described()["jitter"] == "10%"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ecn=1kB+2kB+3%+4", "use Kmin, Kmin+Kmax or Kmin+Kmax+Pmax%"),
        ("ecn=1kB+2kB+7", "'7' is not a share"),
        ("ecn=1kB+2kB+0%", "ecn: Pmax must be above 0"),
        ("ecn=2kB+1kB", "the low ECN threshold is above the high threshold"),
        ("ecn=80kB+90kB,buffer=80kB", "Kmin (80,000 B) is not below buffer (80,000 B)"),
        ("ecn-last-hop=no", "ecn-last-hop needs ecn"),
        ("ecn=1kB,ecn-last-hop=maybe", "use yes or no"),
        ("trim=64", "trim needs buffer"),
        ("drop=tail", "drop needs buffer"),
        ("buffer=80kB,drop=head", "drop must be random or tail"),
        ("jitter=2", "'2' is not a share"),
    ],
)
def test_mistakes_name_the_key(text: str, words: str) -> None:
    with pytest.raises(UsageError, match="--model") as raised:
        parse_model(text)
    assert words in str(raised.value)
