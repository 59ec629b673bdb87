"""Images of machine code on disk: sound ones run, all others are as if they were not there."""

from __future__ import annotations

import marshal
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocescope.kernels import image as machine_code
from rocescope.kernels import numba_side as compiling
from rocescope.kernels.image import Image, callable_of, load, save


def quotients(values: Any, divisors: Any, scale: Any) -> Any:
    """Loops, constants, a division that raises, several results."""
    total = 0.25
    for i in range(len(values)):
        total += values[i] // divisors[i] * scale
    return total, len(values)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image of `quotients`, as it is stored."""
    folder = tmp_path_factory.mktemp("kernels")
    function = compiling.dispatcher(quotients, {"cache": True, "nogil": True}, str(folder))
    array = np.zeros(1, np.int64)
    compiling.compiled_for(function, (array, array, 1), str(folder / "a.code"))
    return Image(*marshal.loads((folder / "a.code").read_bytes()[4:]))


def test_an_image_does_what_the_function_does(image: Image) -> None:
    values, divisors = np.arange(10, 20), np.arange(1, 11)
    for _ in range(2):  # also when it is linked again
        call = callable_of(image, quotients)
        assert call(values, divisors, 3) == quotients(values, divisors, 3)
        assert call.__name__ == "quotients"


def test_errors_are_the_same(image: Image) -> None:
    call = callable_of(image, quotients)
    array = np.zeros(1, np.int64)
    with pytest.raises(ZeroDivisionError):
        call(array, array, 1)
    with pytest.raises(TypeError):
        call(array, array)
    with pytest.raises(TypeError):
        call(array, None, 1)
    assert call(array, array + 1, 1) == (0.25, 1)


def test_an_image_is_loaded_as_it_was_saved(image: Image, tmp_path: Path) -> None:
    path = str(tmp_path / "a.code")
    save(image, path)
    assert os.listdir(tmp_path) == ["a.code"]
    loaded = load(path, quotients)
    assert loaded is not None and loaded(np.arange(3), np.ones(3, np.int64), 1) == (3.25, 3)


def test_what_is_cut_or_changed_anywhere_is_not_loaded(image: Image, tmp_path: Path) -> None:
    path = tmp_path / "a.code"
    save(image, str(path))
    sound = path.read_bytes()
    for at in range(0, len(sound), 97):
        path.write_bytes(sound[:at])
        assert load(str(path), quotients) is None
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x10]) + sound[at + 1 :])
        assert load(str(path), quotients) is None


@pytest.mark.parametrize(
    "content", [1, (), (b"", "f", ()), (b"", "f", (), (), 1), (1, 2, 3, 4), (b"code", "f", (), ())]
)
def test_what_is_no_image_is_not_loaded(tmp_path: Path, content: object) -> None:
    data = marshal.dumps(content)
    path = tmp_path / "a.code"
    path.write_bytes(zlib.crc32(data).to_bytes(4, "little") + data)
    assert load(str(path), quotients) is None


def test_a_missing_file_or_folder_is_no_error(image: Image, tmp_path: Path) -> None:
    path = str(tmp_path / "none" / "a.code")
    assert load(path, quotients) is None
    save(image, path)
    assert not os.listdir(tmp_path)


def test_what_the_linker_does_not_find_is_an_error(image: Image) -> None:
    """Names that differ by one letter: one that is called, the entry, and a variable."""
    for wrong in (
        image._replace(code=image.code.replace(b"PyErr_Occurred", b"PyErr_Occurreb")),
        image._replace(entry="elsewhere"),
        image._replace(environments=("elsewhere",)),
        image._replace(code=image.code[: len(image.code) // 2]),
    ):
        assert wrong != image
        with pytest.raises(RuntimeError):
            callable_of(wrong, quotients)


def test_the_environment_variables_of_numba_are_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    usable = machine_code.usable.__wrapped__
    monkeypatch.setattr(machine_code, "BOUNDS_CHECK", False)
    for name in [name for name in os.environ if name.startswith("NUMBA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/anywhere")
    assert usable()
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not usable()
