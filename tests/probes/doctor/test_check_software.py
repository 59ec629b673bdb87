"""Software that is missing or broken."""

from __future__ import annotations

from rocescope.analyzer.errors import CaptureError
from rocescope.probes.doctor import check_software, doctor


def test_no_bcc(monkeypatch):
    def absent():
        raise CaptureError("live capture needs bcc: install it")

    monkeypatch.setattr(check_software, "import_bcc", absent)
    monkeypatch.setattr("rocescope.probes.program.compile.import_bcc", absent)
    bcc, compiling = check_software.bcc(), check_software.compiling()
    assert (bcc.state, bcc.needed) == ("missing", True) and "python3-bpfcc" in bcc.remedy
    assert (compiling.state, compiling.found) == ("missing", "bcc is missing")
    assert doctor.diagnose().live_capture_works is False


def test_no_libibverbs(monkeypatch):
    monkeypatch.setattr(check_software, "all_libraries", list)
    assert check_software.libibverbs().found == "not installed"


def test_a_broken_library(monkeypatch, tmp_path):
    broken = tmp_path / "libibverbs.so.1"
    broken.write_bytes(b"junk")
    monkeypatch.setattr(check_software, "all_libraries", lambda: [str(broken)])
    check = check_software.libibverbs()
    assert check.state == "limited" and "not an ELF file" in check.found
