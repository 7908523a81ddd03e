"""Files that may not be read or written, links, and the modes of what is created (rows C19, N4, N6 of docs/reliability.md)."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fletchlog as fl

NOBODY = 65534


@pytest.fixture
def log() -> Iterator[Path]:
    """A directory with three records, written and closed. Not in pytest's own, which each session that begins closes to other users."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        with fl.Broker(path, create=True) as broker:
            broker.create_topic("t", partitions=1)
            with fl.Producer(broker) as producer:
                for i in range(3):
                    producer.send("t", value=b"%d" % i)
        yield path


def as_a_user_without_rights(code: str, path: Path) -> list[str]:
    """Runs code in a process that is not root (root may read and write everything); returns what it printed as JSON."""
    program = f"""
import json, os, sys
import pyarrow
import fletchlog as fl
path = sys.argv[1]
if os.geteuid() == 0:
    os.setgroups([])
    os.setegid({NOBODY})
    os.seteuid({NOBODY})
said = []
{code}
print(json.dumps(said))
"""
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said: list[str] = json.loads(done.stdout)
    return said


def allow(path: Path, directories: int, files: int) -> None:
    """Modes of a tree, and a way in for everybody."""
    for parent in path.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    for place in [path, *path.rglob("*")]:
        place.chmod(directories if place.is_dir() else files)


TRY_BOTH = """
try:
    fl.Broker(path).close()
except fl.errors.KafkaError as error:
    said.append(type(error).__name__ + ": " + str(error))
with fl.Broker(path, read_only=True) as broker:
    said.append(str(broker.scan("t").to_pyarrow().column("value").to_pylist()))
"""


def test_a_user_who_may_only_read_is_refused_as_a_writer_and_reads_without_a_trace(log: Path) -> None:
    allow(log, 0o555, 0o444)
    before = {place: place.stat().st_mtime_ns for place in [log, *log.rglob("*")]}
    refused, values = as_a_user_without_rights(TRY_BOTH, log)
    assert str(log) in refused
    assert "Permission denied" in refused or "permission" in refused.lower()
    assert values == "[b'0', b'1', b'2']"
    assert {place: place.stat().st_mtime_ns for place in [log, *log.rglob("*")]} == before


def test_a_segment_that_may_not_be_read_is_an_error_that_names_it(log: Path) -> None:
    allow(log, 0o755, 0o644)
    segment = log / "t-0" / "00000000000000000000.log"
    segment.chmod(0)
    code = """
try:
    with fl.Broker(path, read_only=True) as broker:
        said.append(str(broker.scan("t").to_pyarrow().num_rows))
except fl.errors.KafkaError as error:
    said.append(type(error).__name__ + ": " + str(error))
"""
    (refused,) = as_a_user_without_rights(code, log)
    assert str(segment) in refused
    assert "StorageError" in refused


def test_a_link_to_a_log_directory_is_that_directory(log: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(log)
    with fl.Broker(link, create=True) as broker:
        with pytest.raises(fl.errors.DirectoryLockedError):
            fl.Broker(log, create=True)
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"3")
    with fl.Broker(log) as broker:
        assert broker.scan("t").to_pyarrow().num_rows == 4
    assert link.is_symlink()


def test_what_is_created_is_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = tmp_path / "log"
        with fl.Broker(path, create=True) as broker:
            broker.create_topic("t", partitions=1)
            with fl.Producer(broker) as producer:
                producer.send("t", value=b"v").result()
    finally:
        os.umask(before)
    open_to_others = [place.name for place in [path, *path.rglob("*")] if stat.S_IMODE(place.stat().st_mode) & 0o027]
    assert open_to_others == []
