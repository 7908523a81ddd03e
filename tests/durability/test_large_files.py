"""Files larger than any of a log can be: named before anything of them is read. Holes take no room, so a few bytes make them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fletchlog as fl

TEBIBYTE = 1 << 40
CLEAN = ".kafka_cleanshutdown"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "log"
    with fl.Broker(root, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"1").result(30)
    return root


def use(root: Path, read_only: bool) -> None:
    with fl.Broker(root, read_only=read_only) as broker:
        broker.describe_topic("t")
        broker.scan("t").to_pyarrow()


@pytest.mark.parametrize("bytes_", [(1 << 31) + 100, TEBIBYTE])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    ("name", "error"),
    [
        (f"t-0/{0:020}.log", fl.errors.DamagedFileError),
        (f"t-0/{0:020}.txnindex", fl.errors.StorageError),
        (f"t-0/{0:020}.index", fl.errors.StorageError),
        ("t-0/leader-epoch-checkpoint", fl.errors.StorageError),
        ("recovery-point-offset-checkpoint", fl.errors.StorageError),
        ("log-start-offset-checkpoint", fl.errors.StorageError),
    ],
)
def test_a_file_larger_than_any_of_a_log_is_named(root: Path, name: str, error: type[fl.KafkaError], bytes_: int, clean: bool, read_only: bool) -> None:
    if not clean:
        (root / CLEAN).unlink()
    (root / name).touch()
    os.truncate(root / name, bytes_)
    if name.endswith("index") and not clean and not read_only:
        use(root, read_only)  # recovery makes it anew
        assert (root / name).stat().st_size < 100
        return
    with pytest.raises(error, match=rf"{Path(name).name}.*{bytes_} bytes"):
        use(root, read_only)


def test_a_preallocated_segment_is_cut_to_its_records(root: Path) -> None:
    (root / CLEAN).unlink()
    segment = root / "t-0" / f"{0:020}.log"
    size = segment.stat().st_size
    os.truncate(segment, (1 << 31) - 1)
    use(root, read_only=True)
    use(root, read_only=False)
    assert segment.stat().st_size == size
    assert not list(segment.parent.glob("*.torn*"))
