"""Copies of libibverbs that processes use."""

from __future__ import annotations

import os

from rocescope.probes.owners.libraries import all_libraries, file_key, mapped_libraries

MAPS = """\
7f0000000000-7f0000001000 r--p 00000000 08:01 11   /usr/lib/libc.so.6
7f0000001000-7f0000002000 r-xp 00000000 08:01 12   /opt/rdma/libibverbs.so.1.14
7f0000002000-7f0000003000 -w-p 00000000 08:01 13   /opt/other/libibverbs.so.1
7f0000003000-7f0000004000 r--p 00000000 08:01 12   /opt/rdma/libibverbs.so.1.14
"""


def process(proc, number, maps, *files):
    folder = proc / str(number)
    (folder / "root").mkdir(parents=True)
    (folder / "maps").write_text(maps)
    for file in files:
        place = folder / "root" / file.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x")
    return folder / "root"


def test_containers_have_their_own_files(tmp_path):
    own = "/opt/rdma/libibverbs.so.1.14"
    roots = [process(tmp_path, number, MAPS, own) for number in (7, 8)]
    (tmp_path / "self").mkdir()
    assert sorted(mapped_libraries(str(tmp_path))) == [f"{root}{own}" for root in roots]


def test_one_file_under_two_names_counts_once(tmp_path):
    own = "/opt/rdma/libibverbs.so.1.14"
    first = process(tmp_path, 7, MAPS, own)
    second = process(tmp_path, 8, MAPS)
    place = second / own.lstrip("/")
    place.parent.mkdir(parents=True)
    os.link(f"{first}{own}", place)
    assert len(mapped_libraries(str(tmp_path))) == 1
    assert file_key(f"{first}{own}") == file_key(str(place))


def test_processes_that_end_and_files_that_are_gone(tmp_path):
    process(tmp_path, 7, MAPS)
    (tmp_path / "8").mkdir()
    assert mapped_libraries(str(tmp_path)) == []
    assert file_key(str(tmp_path / "none")) is None


def test_at_most_four_copies_of_a_process(tmp_path):
    many = [f"/opt/{i}/libibverbs.so.1" for i in range(9)]
    maps = "".join(f"7f0-7f1 r--p 0 08:01 {i}   {path}\n" for i, path in enumerate(many))
    process(tmp_path, 7, maps, *many)
    assert len(mapped_libraries(str(tmp_path))) == 4
    assert len(all_libraries(str(tmp_path))) >= 4
