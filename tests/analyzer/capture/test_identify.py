"""Kinds of files by their first bytes: those that the programs of each kind write."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import sys
import tarfile
import zipfile

import lz4.frame
import pytest
import zstandard

from rocescope.analyzer.capture.identify import MAGIC_BYTES, compression, describe

DATA = bytes(range(256)) * 8


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("gzip", gzip.compress(DATA)),
        ("zstd", zstandard.compress(DATA)),
        ("xz", lzma.compress(DATA)),
        ("lz4", lz4.frame.compress(DATA)),
        ("zstd", b"\x53\x2a\x4d\x18\x00\x00\x00\x00" + zstandard.compress(DATA)),
        (None, bz2.compress(DATA)),
        (None, lzma.compress(DATA, lzma.FORMAT_ALONE)),
        (None, DATA),
        (None, b""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_compressions(name, data):
    assert compression(data[:MAGIC_BYTES]) == name


def tar():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as written:
        written.addfile(tarfile.TarInfo("capture.pcap"))
    return file.getvalue()


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        written.writestr("capture.pcap", DATA)
    return file.getvalue()


def database(folder):
    connection = sqlite3.connect(folder / "some.db")
    connection.execute("create table t (a)")
    connection.commit()
    connection.close()
    return (folder / "some.db").read_bytes()


def test_files_of_other_programs(tmp_path):
    with open(sys.executable, "rb") as program:
        assert describe(program.read(300)) == "a program (ELF)"
    assert describe(tar()[:300]).startswith("a tar archive")
    assert describe(zipped()[:300]).startswith("a ZIP archive")
    assert describe(bz2.compress(DATA)).startswith("bzip2 compressed")
    assert describe(gzip.compress(DATA)) == "gzip compressed a second time: decompress it once"
    assert describe(database(tmp_path)[:300]) == "a SQLite database"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (bytes(300), "only zero bytes"),
        (b"", "only zero bytes"),
        (b"\xef\xbb\xbf\n <!DOCTYPE HTML><title>Log in</title>", "an HTML page"),
        (b"<?xml version='1.0'?>", "XML text"),
        (json.dumps({"flows": []}).encode(), "JSON text"),
        (b"No.,Time,Source\n", "text"),
        ("é".encode(), "text"),
        (b"\x00\x01\x02\x03 text", "binary data of an unknown kind"),
    ],
)
def test_text_and_other_data(data, what):
    assert describe(data).startswith(what)
