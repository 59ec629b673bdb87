"""Images of machine code on disk: sound ones run, all others are as if they were not there."""

from __future__ import annotations

import marshal
import os
import zlib
from pathlib import Path

import pytest

from rocescope.kernels import image as machine_code
from rocescope.kernels.image import Image, callable_of, load, save

EMPTY = Image(b"\xc3" * 16, 0, (), b"", b"", b"")


def function() -> None:
    """What the image is said to be made of."""


def test_an_image_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    path = str(tmp_path / "a.code")
    save(EMPTY, path)
    assert os.listdir(tmp_path) == ["a.code"]
    assert callable(load(path, function))


def test_what_is_cut_or_changed_anywhere_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.code"
    save(EMPTY, str(path))
    sound = path.read_bytes()
    for at in range(len(sound)):
        path.write_bytes(sound[:at])
        assert load(str(path), function) is None
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x10]) + sound[at + 1 :])
        assert load(str(path), function) is None


@pytest.mark.parametrize("content", [1, (), tuple(EMPTY)[:-1], (*EMPTY, 1), (1, 2, 3, 4, 5, 6)])
def test_what_is_no_image_is_not_loaded(tmp_path: Path, content: object) -> None:
    data = marshal.dumps(content)
    path = tmp_path / "a.code"
    path.write_bytes(zlib.crc32(data).to_bytes(4, "little") + data)
    assert load(str(path), function) is None


def test_a_missing_file_or_folder_is_no_error(tmp_path: Path) -> None:
    path = str(tmp_path / "none" / "a.code")
    assert load(path, function) is None
    save(EMPTY, path)
    assert not os.listdir(tmp_path)


def test_a_name_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    image = EMPTY._replace(externals=("numba_nothing_of_that_name",))
    with pytest.raises(LookupError):
        callable_of(image, function)
    for name in ("NRT_nothing", "PyExc_Nothing", "nothing_at_all"):
        save(image._replace(externals=(name,)), str(tmp_path / name))
        assert load(str(tmp_path / name), function) is None


def test_the_environment_variables_of_numba_are_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    usable = machine_code.usable.__wrapped__
    monkeypatch.setattr(machine_code, "BOUNDS_CHECK", False)
    for name in [name for name in os.environ if name.startswith("NUMBA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/anywhere")
    assert usable()
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not usable()
