"""The only place that finds and imports bcc, which is a system package and not on PyPI."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from importlib.util import find_spec
from typing import Any

from ...analyzer.errors import CaptureError

_SYSTEM_PACKAGES = "/usr/lib/python3/dist-packages"


def import_bcc() -> Any:
    """The module bcc; CaptureError if the package is not installed.

    If this Python does not see the system's packages, their folder is added to the
    end of the search path, after everything that is installed here.
    """
    try:
        return _import()
    except ImportError:
        pass
    if _SYSTEM_PACKAGES not in sys.path:
        sys.path.append(_SYSTEM_PACKAGES)
    try:
        return _import()
    except (ImportError, OSError):
        raise _missing() from None


def find_bcc() -> bytes:
    """What names the version of the installed bcc, without its libraries: 60 MB of memory.

    CaptureError if the package is not installed.
    """
    for more in ((), (_SYSTEM_PACKAGES,)):
        sys.path += [path for path in more if path not in sys.path]
        spec = find_spec("bcc")
        folders = spec.submodule_search_locations if spec else None
        for folder in folders or ():
            if os.path.exists(os.path.join(folder, "libbcc.py")):
                with open(os.path.join(folder, "version.py"), "rb") as file:
                    return file.read()
    raise _missing()


def _missing() -> CaptureError:
    return CaptureError(
        "live capture needs bcc: apt-get install python3-bpfcc (Debian, Ubuntu)"
        " or dnf install python3-bcc (Fedora, RHEL); bcc on PyPI is another package"
    )


def _import() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", SyntaxWarning
        )  # bcc has invalid escapes, a warning since Python 3.12
        module = importlib.import_module("bcc")
    if not hasattr(module, "BPF"):  # an unrelated package of the same name
        sys.modules.pop("bcc", None)
        raise ImportError("not the BPF Compiler Collection")
    return module
