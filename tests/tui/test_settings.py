"""The configuration file."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.tui import settings
from rocescope.tui.settings import Settings, load, settings_path

GOOD = """\
theme = "nord"
refresh_hz = 2
[keys]
freeze = "space,f"
[columns]
qps = ["src", "dst", "ranks"]
"""


@pytest.fixture
def read(tmp_path):
    def reading(text):
        file = tmp_path / "tui.toml"
        file.write_text(text)
        return load(file)

    return reading


def test_a_file(read, tmp_path):
    assert read(GOOD) == Settings(
        "nord", 2.0, {"freeze": "space,f"}, {"qps": ["src", "dst", "ranks"]}
    )
    assert load(tmp_path / "none.toml") == read("") == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("theme = ", "tui.toml: Invalid value"),
        ("theme = 7", "tui.toml: .*theme"),
        ("thema = 'nord'", "tui.toml: .*thema"),
        ("[keys]\nfreze = 'f'", "there is no action 'freze'"),
        ("refresh_hz = 100", "refresh_hz must be from 0.2 to 30"),
        ("refresh_hz = nan", "refresh_hz must be from 0.2 to 30"),
        ("[columns]\npaths = ['src']", "columns can be chosen for qps, not for 'paths'"),
        ("[columns]\nqps = ['sorce']", "no column 'sorce'; columns are src, dst"),
    ],
)
def test_mistakes(text, message, read):
    with pytest.raises(UsageError, match=message):
        read(text)


def test_a_user_without_a_home(monkeypatch):
    def homeless(_name):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(settings, "user_config_path", homeless)
    assert str(settings_path()) == "/dev/null" and load() == Settings()
