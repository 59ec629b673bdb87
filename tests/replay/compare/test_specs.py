"""Options of the packet engine: what they mean, and mistakes by the name of their key."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest, with_words
from rocescope.replay.compare.specs import (
    check_classes,
    pairs_of,
    parse_classes,
    parse_failures,
    parse_lossless,
    parse_model,
    parse_shape,
    parse_transport,
)
from rocescope.replay.compare.vary import replay_varied
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.queueing import Pfc, TrafficClass
from rocescope.replay.packets.offers import Shape
from rocescope.replay.results import ReplayResult, short_titles
from rocescope.report.files.results import encode

# Options of the packet engine: what they mean, and mistakes by the name of their key.

PLANES = parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=2,rate=100G")
US = 1_000_000


def test_a_ramp_has_its_three_numbers() -> None:
    model = parse_model("ecn=5kB+200kB+1%,ecn-last-hop=no")
    assert (model.ecn_low_bytes, model.ecn_high_bytes) == (5_000, 200_000)
    assert model.ecn_most == 0.01
    assert not model.ecn_last_hop


def test_one_threshold_marks_everything_above_it() -> None:
    model = parse_model("ecn=80kB")
    assert (model.ecn_low_bytes, model.ecn_high_bytes, model.ecn_most) == (80_000, 80_000, 1.0)
    assert model.ecn_last_hop


def test_settings_of_marking_are_told_only_with_marking() -> None:
    assert "ecn_most" not in parse_model("").described()
    assert "drop" not in parse_model("").described()
    assert parse_model("ecn=1kB+2kB+20%").described()["ecn_most"] == "0.2"


def test_hosts_have_jitter_where_queues_can_be_full() -> None:
    assert parse_model("").host_jitter == 0
    model = parse_model("buffer=80kB")
    assert (model.host_jitter, model.drop) == (0.01, "random")
    model = parse_model("buffer=80kB,drop=tail,jitter=0%")
    assert (model.host_jitter, model.drop) == (0.0, "tail")
    assert parse_model("jitter=10%").described()["jitter"] == "10%"


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
def test_mistakes_name_the_key_of_model(text: str, words: str) -> None:
    with pytest.raises(UsageError, match="--model") as raised:
        parse_model(text)
    assert words in str(raised.value)


def test_what_is_given_is_changed() -> None:
    for text in ("", "buffer=1MB", "qps=1", "message-size=1x"):
        assert parse_shape(text) is None
    assert parse_shape("mtu=1024,ecn=80kB") == Shape(mtu_bytes=1024)
    assert parse_shape("qps=4,message-size=2.5x") == Shape(factor=2.5, queue_pairs=4)
    assert parse_shape("message-size=1MiB") == Shape(longest_bytes=1 << 20)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("qps=0", "qps '0' is not a whole number from 1 to 64"),
        ("qps=65", "qps '65' is not a whole number from 1 to 64"),
        ("qps=two", "qps 'two' is not a whole number"),
        ("message-size=0x", "message-size=0x: use 0.001x to 1000x"),
        ("message-size=nanx", "message-size=nanx: use"),
        ("message-size=big", "message-size 'big' is not a size"),
        ("mtu=0", "mtu must be more than 0"),
    ],
)
def test_mistakes_name_the_key_of_shape(text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_shape(text)
    assert words in str(error.value) and "\n" not in str(error.value)


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
        ("window=3", "--transport has no 'window' at column 1"),
    ],
)
def test_transport_names_the_parameter(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_transport(text)


def test_kinds_of_lossless() -> None:
    assert parse_lossless("infinite") is None
    assert parse_lossless("pfc") == Pfc()
    found = parse_lossless("pfc:buffer=32MB,alpha=1/16,xon=0,headroom=100kB,reaction=1us")
    assert found == Pfc(32_000_000, 1 / 16, None, 0, 100_000, 1_000_000)
    assert parse_lossless("pfc:xoff=200kB") == Pfc(xoff_bytes=200_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "use infinite, pfc or pfc:"),
        ("infinite:xoff=1kB", "use infinite, pfc or pfc:"),
        ("pfc:kmin=1kB", "has no 'kmin' at column 5; it has buffer, xoff"),
        ("pfc:alpha=1/0", "alpha '1/0' is not a number"),
        ("pfc:alpha=nan", "alpha must be"),
        ("pfc:alpha=1,xoff=1kB", "cannot be combined"),
        ("pfc:xoff=1kB,xon=2kB", "xon .* is above xoff"),
        ("pfc:headroom=much", "headroom"),
        ("pfc:reaction=2ms", "reaction must be at most 1 ms"),
    ],
)
def test_mistakes_name_the_key_of_lossless(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"--lossless.*{words}"):
        parse_lossless(text)


def test_classes() -> None:
    assert parse_classes([]) == (TrafficClass(),)
    assert parse_classes(["data:weight=70", "background:weight=30,lossless=no,alpha=1/16"]) == (
        TrafficClass("data", 70),
        TrafficClass("background", 30, lossless=False, alpha=1 / 16),
    )
    assert [one.dscps for one in parse_classes(["a:dscp=26+34", "b:dscp=8"])] == [(26, 34), (8,)]
    assert parse_classes(["a:xoff=20kB"]) == (TrafficClass("a", xoff_bytes=20_000),)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["a:weight=x"], "a: weight 'x' is not a whole number"),
        (["a:weight=2000"], "weight must be 0 to 1000"),
        (["a:lossless=maybe"], "lossless=maybe: use yes or no"),
        (["a:alpha=x"], "'x' is not a number"),
        (["a:alpha=1,xoff=1kB"], "alpha cannot be combined with xoff"),
        (["a:color=red"], "no 'color' at column 3; .*weight"),
        ([":weight=1"], "letters and digits"),
        (["a", "a"], "two classes a"),
        (["a:dscp=64"], "dscp must be 0 to 63, not 64"),
        (["a:dscp=26+x"], "dscp 'x' is not a whole number"),
        (["a:dscp=26", "b:dscp=8+26"], "DSCP 26 is given twice"),
        ([f"c{i}" for i in range(8)], "at most 7 classes, not 8"),
    ],
)
def test_mistakes_of_classes(texts: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=f"--priority.*{words}"):
        parse_classes(texts)


def test_classes_that_no_traffic_could_have() -> None:
    with pytest.raises(UsageError, match="--priority b: no captured flow would have this class"):
        check_classes(parse_classes(["a", "b"]), captures=True)
    with pytest.raises(UsageError, match="dscp needs captures"):
        check_classes(parse_classes(["a:dscp=8"]), captures=False)
    check_classes(parse_classes(["a", "b:dscp=8"]), captures=True)
    check_classes(parse_classes(["a", "b"]), captures=False)


def events(text: str) -> list[tuple[int, str, str, float]]:
    return [
        (e.time_ps, PLANES.link_name(int(e.link)), e.what, e.value)
        for e in parse_failures([text], "never", PLANES, 1).events
    ]


def test_a_cable_is_down_for_a_while() -> None:
    one, other = "plane1.leaf1>plane1.spine2", "plane1.spine2>plane1.leaf1"
    assert events("plane1.leaf1-plane1.spine2@2us..3us") == [
        (2 * US, one, "down", 0), (2 * US, other, "down", 0),
        (3 * US, one, "up", 0), (3 * US, other, "up", 0),
    ]  # fmt: skip
    assert events(one) == [(0, one, "down", 0)]


def test_slow_lossy_and_flapping_links() -> None:
    link = "plane1.leaf1>plane1.spine2"
    assert events(f"{link}=10G@1us..2us") == [
        (US, link, "slow", 1e10),
        (2 * US, link, "slow", 1e11),
    ]
    assert events(f"{link}=0.5%@1us..2us") == [
        (US, link, "lossy", 0.005), (2 * US, link, "lossy", 0),
    ]  # fmt: skip
    assert events(f"{link}=flap:2us:3us@1us..8us") == [
        (1 * US, link, "down", 0), (3 * US, link, "up", 0),
        (6 * US, link, "down", 0), (8 * US, link, "up", 0),
    ]  # fmt: skip


def test_lengths_and_random_times() -> None:
    link = "plane1.leaf1>plane1.spine2"
    assert events(f"{link}@2us+3us") == [(2 * US, link, "down", 0), (5 * US, link, "up", 0)]
    begins = set()
    for seed in range(20):
        down, up = parse_failures([f"{link}@1us~9us+2us"], "never", PLANES, seed).events
        assert US <= down.time_ps <= 9 * US and up.time_ps == down.time_ps + 2 * US
        begins.add(down.time_ps)
    assert len(begins) == 20
    cables = parse_failures(["100%@0~50us"], "never", PLANES, 1).events
    assert len(cables) == 16 and len({event.time_ps for event in cables}) == 8  # both ways at once


def test_switches_planes_and_a_share_of_all_cables() -> None:
    assert len(events("plane1.spine1")) == 4
    assert len(events("plane2")) == 2 * (2 * 2 + 4)
    assert len(events("100%")) == 2 * 8 and events("0%") == []
    assert parse_failures(["plane1"], "5us", PLANES, 1).convergence_ps == 5 * US
    assert parse_failures(["plane1"], "0", PLANES, 1).convergence_ps == 0
    assert parse_failures(["plane1"], "never", PLANES, 1).convergence_ps is None


@pytest.mark.parametrize(
    "text",
    ["plane3", "plane1.spine1@2us..1us", "plane1.spine1@1us..", "plane1.spine1=fast", "101%",
     "1%=10G", "plane1.spine1=flap:1us:1us", "plane1.spine1@soon",
     "plane1@2us~1us", "plane1@1us+0"],
)  # fmt: skip
def test_failures_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match=f"^--fail {re.escape(text)}: "):
        parse_failures([text], "never", PLANES, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flap:0:1us", "flapping needs a link.* leaf1-spine1=flap:20us:20us@0..500us$"),
        ("plane1.spine1=1@0", "'1' is not a rate, .* plane1.spine1=100G, plane1.spine1=0.1% or"),
        ("plane1.spine1=flap:0:1us@0..5us", "above 0, for example plane1.spine1=flap:20us:20us@"),
        ("plane1.spine1=@0", "'' is not a rate"),
    ],
)
def test_mistakes_are_told_with_an_example(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"^--fail {re.escape(text)}: .*{words}"):
        parse_failures([text], "never", PLANES, 1)


# `--pattern`: its options are named as they are written there.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4")
ONE = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=1")


def test_options_and_defaults() -> None:
    pairs, acks = pairs_of("permutation:qps=3,acks=no", FABRIC)
    assert (len(pairs), acks) == (24, False)
    assert pairs_of("incast:fan-in=2", FABRIC)[1]


@pytest.mark.parametrize(
    ("spec", "mtu", "told"),
    [
        ("permutation", 9000, "--model: mtu=9000: a path MTU of RoCE is one of 256, 512"),
        ("permutation:qps=0", 4096, "--pattern permutation: qps must be 1 to 4096, not 0"),
        ("permutation:hosts=9", 4096, "--pattern permutation: 9 hosts, but the fabric has 8"),
        ("permutation:messages=0", 4096, "--pattern permutation: message-size, messages and"),
        ("incast:fan-in=9", 4096, "--pattern incast: fan-in must be 1 to 7 for 8 hosts"),
        ("jam", 4096, "--pattern jam: there is no pattern 'jam'; there are permutation"),
        (
            "permutation:fan=1",
            4096,
            "--pattern permutation has no option 'fan' at column 13; did you mean fan-in?",
        ),
        ("permutation:acks=1", 4096, "--pattern permutation: acks=1: use yes or no"),
    ],
)
def test_mistakes(spec: str, mtu: int, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        pairs_of(spec, FABRIC, path_mtu=mtu)
    assert str(caught.value).startswith(told)


def test_a_fabric_of_one_host_has_no_traffic() -> None:
    with pytest.raises(UsageError, match="^--pattern permutation: hosts must be 2 to .*, not 1$"):
        pairs_of("permutation", ONE)


# Titles of strategies.

# Titles of strategies.

REQUEST_FABRIC = "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G,delay=500ns"
PATTERN = "permutation:message-size=8192"


def _replayed(*strategies: str) -> ReplayResult:
    request = ReplayRequest(REQUEST_FABRIC, strategies, pattern=PATTERN, packets=True)
    return PreparedReplay(request).by_packets(strategies, None)[0]


@pytest.mark.parametrize(
    ("strategies", "titles", "short"),
    [
        (
            ("host-spray:evs=9", "host-spray:evs=9,order=turns", "drill"),
            ["host-spray (evs=9)", "host-spray (evs=9, order=turns)", "drill"],
            ["host-spray (evs=9)", "host-spray (evs=9, order=turns)", "drill"],
        ),
        (
            ("jsq:ties=first", "jsq", "ecmp"),
            [
                "jsq (ties=first, acks=random)",
                "jsq (ties=random, acks=random)",
                "ecmp (hash=linux)",
            ],
            ["jsq (ties=first, acks=random)", "jsq (ties=random, acks=random)", "ecmp"],
        ),
    ],
)
def test_parameters_in_which_strategies_of_one_name_differ_are_in_their_titles(
    strategies: tuple[str, ...], titles: list[str], short: list[str]
) -> None:
    result = _replayed(*strategies)
    assert [one.title for one in result.strategies] == titles
    assert short_titles(result.strategies) == short
    rows = csv.DictReader(encode(result, "csv").decode().splitlines())
    assert list(dict.fromkeys(row["strategy"] for row in rows)) == short


def test_titles_of_varied_cases() -> None:
    request = ReplayRequest(
        REQUEST_FABRIC, ("jsq:ties=first", "jsq"), pattern=PATTERN, packets=True
    )
    result, whole = replay_varied(request, ["rate=100G,400G"])
    assert (
        whole
        and [short_titles(one.strategies) for one in result.varied]
        == [["jsq (ties=first, acks=random)", "jsq (ties=random, acks=random)"]] * 2
    )


# What is asked of a replay, in words.

PLAIN = ReplayRequest("fat-tree:k=4", captures=("a.pcap",), map="order")


def test_words_say_all_that_can_be_changed() -> None:
    text = (
        "fat-tree:k=8 exact --fail 1% --transport recovery=sack --fail=leaf1-spine1@0 --converge 0"
    )
    found = with_words(PLAIN, text)
    assert found == replace(
        PLAIN,
        fabric="fat-tree:k=8",
        map="exact",
        fail=("1%", "leaf1-spine1@0"),
        transport="recovery=sack",
        converge="0",
    )
    assert with_words(PLAIN, found.words) == found
    assert found.options.count("--fail") == 2 and "--pattern" not in found.options
    assert with_words(found, "fat-tree:k=4 order") == PLAIN  # options do not stay
    spaces = replace(PLAIN, fabric="my fabric.yaml")
    assert with_words(PLAIN, spaces.words) == spaces


def test_what_needs_the_packet_engine() -> None:
    assert not PLAIN.by_packet
    for change in ({"fail": ("1%",)}, {"model": "buffer=1MB"}, {"runs": 2}, {"packets": True}):
        assert replace(PLAIN, **change).by_packet  # type: ignore[arg-type]
    assert replace(PLAIN, strategies=("ecmp", "jsq:acks=shortest")).by_packet


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "give a fabric"),
        ("a b c", "give a fabric"),
        ("a --fail", "--fail needs a value"),
        ("a --runs 3", "there is no option --runs; there are --pattern, --jobs, --offer"),
        ("a --model x --model y", "--model is given twice"),
        ("a 'b", "No closing quotation"),
    ],
)
def test_words_that_make_no_sense(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        with_words(PLAIN, text)
