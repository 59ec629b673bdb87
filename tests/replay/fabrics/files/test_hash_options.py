"""How a switch hashes, as written in a file."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.files.hash_options import hash_settings
from rocescope.replay.fabrics.files.yaml_source import parse_yaml
from rocescope.replay.hashing.settings import HashSettings


def read(text):
    return hash_settings(parse_yaml(text, "lab.yaml"))


def test_settings_and_those_of_the_model():
    text = "{model: linux, policy: 1, seed: 0x10, seed_recovered: yes}"
    found = read(text)
    assert found == HashSettings(model="linux", seed=16, extra={"policy": 1})
    assert found.seed_recovered
    crc = read("{model: crc32, field_set: 3-tuple, rotate: 4, offset: 2, seed_use: xor}")
    assert (crc.field_set, crc.rotate, crc.offset, crc.seed_use) == ("3-tuple", 4, 2, "xor")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{model: md5}", "lab.yaml:1: .*md5"),
        ("\nmodel: crc32\nrotate: 64", r"lab.yaml:3: rotate must be 0 to 63, not 64"),
        ("{model: crc32, seed: many}", "lab.yaml:1: seed 'many' is not a whole number"),
        ("{model: crc32, symmetric: 1}", "lab.yaml:1: symmetric must be true or false"),
        ("{model: crc32, colour: red}", "lab.yaml:1: .*colour"),
        ("{model: crc32, field_set: 9-tuple}", "lab.yaml:1: .*9-tuple"),
        ("[crc32]", "lab.yaml:1: expected model, seed"),
    ],
)
def test_mistakes_name_the_line(text, message):
    with pytest.raises(UsageError, match=message):
        read(text)
