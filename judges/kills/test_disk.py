"""The disk of `make power-loss` keeps what was synced before its fsync began, and nothing else for certain."""

from __future__ import annotations

import random
from pathlib import Path

from judges.kills.disk import Disk, Entry


def left(calls: list[tuple[str, int, int, str, bytes]], into: Path) -> list[dict[str, bytes]]:
    """The files of a hundred power losses after these calls; each different one once."""
    found: list[dict[str, bytes]] = []
    disk = Disk("/d")
    for call in calls:
        disk.take(Entry(*call))
    for seed in range(100):
        directory = into / str(seed)
        disk.lose_power(random.Random(seed), directory)
        files = {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
        if files not in found:
            found.append(files)
    return found


CREATED = [("c", 7, 0, "/d/a", b""), ("D", 1, 0, "/d", b""), ("e", 1, 0, "/d", b"")]


def test_what_was_not_synced_is_whole_lost_torn_or_zeros(tmp_path: Path) -> None:
    found = left([*CREATED, ("w", 7, 0, "/d/a", b"x" * 1024)], tmp_path)
    whole, lost, zeros = b"x" * 1024, b"", bytes(1024)
    torn = [b"x" * 512, bytes(512) + b"x" * 512]
    assert sorted(files["a"] for files in found) == sorted([whole, lost, zeros, *torn])


def test_an_fsync_keeps_what_was_written_before_it_began(tmp_path: Path) -> None:
    calls = [*CREATED, ("w", 7, 0, "/d/a", b"one"), ("S", 7, 1, "/d/a", b""), ("w", 7, 3, "/d/a", b"two"), ("e", 7, 1, "/d/a", b"")]
    assert sorted(files["a"] for files in left(calls, tmp_path)) == [b"one", b"one\0\0\0", b"onetwo"]


def test_an_fsync_that_has_not_ended_keeps_nothing_for_certain(tmp_path: Path) -> None:
    calls = [*CREATED, ("w", 7, 0, "/d/a", b"one"), ("S", 7, 1, "/d/a", b"")]
    assert {"a": b""} in left(calls, tmp_path)


def test_names_are_kept_by_an_fsync_of_their_directory_and_not_of_the_file(tmp_path: Path) -> None:
    synced = [("w", 7, 0, "/d/a", b"one"), ("S", 7, 1, "/d/a", b""), ("e", 7, 1, "/d/a", b"")]
    assert sorted(left([CREATED[0], *synced], tmp_path), key=str) == [{"a": b"one"}, {}]


def test_a_rename_that_was_not_synced_is_there_or_not(tmp_path: Path) -> None:
    calls = [*CREATED, ("w", 7, 0, "/d/a", b"one"), ("S", 7, 1, "/d/a", b""), ("e", 7, 1, "/d/a", b""), ("r", 0, 0, "/d/a", b"/d/b")]
    assert sorted(left(calls, tmp_path), key=str) == [{"a": b"one"}, {"b": b"one"}]


def test_a_file_goes_with_its_directory(tmp_path: Path) -> None:
    calls = [("m", 0, 0, "/d/t", b""), ("c", 7, 0, "/d/t/a", b""), ("D", 1, 0, "/d/t", b""), ("e", 1, 0, "/d/t", b"")]
    assert sorted(left(calls, tmp_path), key=str) == [{"t/a": b""}, {}]


def test_what_was_in_a_directory_that_moved_is_not_in_the_next_one_of_its_name(tmp_path: Path) -> None:
    calls = [("m", 0, 0, "/d/t", b""), ("c", 7, 0, "/d/t/old", b""), ("r", 0, 0, "/d/t", b"/d/gone"), ("m", 0, 0, "/d/t", b"")]
    synced = [("D", 1, 0, "/d", b""), ("e", 1, 0, "/d", b"")]
    assert sorted(left([*calls, *synced], tmp_path), key=str) == [{"gone/old": b""}, {}]
