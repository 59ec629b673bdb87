"""Build the wheel and the source distribution: the same bytes from the same files.

    dist.py FOLDER

The tracked files are copied, with the time of the last commit (or SOURCE_DATE_EPOCH) and one mode,
and built without network by the setuptools and numba of this Python, with objects of kernels that
the checkout has. setuptools writes its own times and the user's name into the source distribution,
so that is packed again.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
OBJECTS = CHECKOUT / "build" / "kernels" / "objects"
BUILD = """
import sys
sys.path.insert(0, ".ci")
import backend
folder = sys.argv[1]  # the builds change it
backend.build_sdist(folder)
backend.build_wheel(folder)
"""


def git(*words: str) -> str:
    command = ["git", "-C", str(CHECKOUT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def copy_tracked_files(source: Path, time: int) -> None:
    """The tracked files of the package, as they are in the working tree."""
    for name in git("ls-files", "-z").rstrip("\0").split("\0"):
        unused = name.startswith(("tests/", "benchmarks/", ".")) and name != ".ci/backend.py"
        if unused or not (CHECKOUT / name).is_file():
            continue
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CHECKOUT / name, target)
        target.chmod(0o644)
        os.utime(target, (time, time))


def pack_again(archive: Path, time: int) -> None:
    """The same members, sorted, with one owner, mode and time."""
    packed = io.BytesIO()
    with (
        tarfile.open(archive) as old,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, time
            plain.mode = 0o755 if member.isdir() else 0o644
            new.addfile(plain, old.extractfile(member))
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=time))


def main(folder: Path) -> None:
    os.umask(0o022)
    time = int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct"))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        source, built = Path(work, "source"), Path(work, "built")
        copy_tracked_files(source, time)
        built.mkdir()
        subprocess.run(
            [sys.executable, "-c", BUILD, str(built)],
            cwd=source,
            env=os.environ
            | {"SOURCE_DATE_EPOCH": str(time), "ROCESCOPE_KERNEL_OBJECTS": str(OBJECTS)},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for archive in built.glob("*.tar.gz"):
            pack_again(archive, time)
        for path in sorted(built.iterdir()):
            print(shutil.move(path, folder / path.name))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
