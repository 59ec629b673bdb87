"""Builds wheels that hold the libraries of kernels (PEP 517); setuptools does all the rest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import build_editable as build_editable
from setuptools.build_meta import build_sdist as build_sdist
from setuptools.build_meta import get_requires_for_build_editable as get_requires_for_build_editable
from setuptools.build_meta import get_requires_for_build_sdist as get_requires_for_build_sdist
from setuptools.build_meta import (
    prepare_metadata_for_build_editable as prepare_metadata_for_build_editable,
)
from setuptools.build_meta import (
    prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel,
)

_CODE = """
import sys
from rocescope.kernels.build import build, levels
from rocescope.kernels.libraries import ROOMS
for level in levels():
    for room in ROOMS:
        build(room, sys.argv[1], level, strict=True)
"""


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What compiles the kernels, and what their modules import."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    needed = [*project["optional-dependencies"]["build"], "msgspec", "numpy", "pyyaml"]
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        needed.append("ziglang")  # links the libraries
    return [*build_meta.get_requires_for_build_wheel(config_settings), *needed]


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """A wheel for any Python on machines of this kind."""
    libraries = Path("kernels", "compiled").absolute()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rocescope").symlink_to(Path.cwd())
        made = Path(folder, "made")
        paths = (folder, os.environ.get("PYTHONPATH"))  # pip's path holds what builds
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        subprocess.run(
            [sys.executable, "-c", _CODE, str(made)], check=True, env=environment, cwd=folder
        )
        options = ["--plat-name", _platform(made)]
        try:  # only now: from here on this folder looks as if it was installed
            shutil.copytree(made, libraries)
            settings = {**(config_settings or {}), "--build-option": options}
            return build_meta.build_wheel(wheel_directory, settings, metadata_directory)
        finally:
            shutil.rmtree(libraries, ignore_errors=True)


def _platform(folder: Path) -> str:
    """The tag of systems whose C library has what these libraries call."""
    found = {
        int(minor)
        for path in folder.glob("*.so")
        for minor in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes())
    }
    return f"manylinux_2_{max(found)}_{os.uname().machine}"
