"""Folders of partitions that somebody has copied out of a broker's directory are read; a writer, and who names one partition's folder, is told what to do."""

import shutil

import pytest

import fletchlog as fl


@pytest.fixture
def bare(cli, data, tmp_path):
    """As `cp -r data/orders-* bare/` makes it; nothing was written to partition 0, so it has no segment."""
    cli("topics", "create", data, "orders", "-p", 2)
    with fl.Broker(data) as broker, fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", str(number).encode(), partition=1)
    for number in (0, 1):
        shutil.copytree(data / f"orders-{number}", tmp_path / "bare" / f"orders-{number}")
    return tmp_path / "bare"


def test_folders_of_partitions_are_read(cli, data, bare):
    assert [(row["topic"], row["partitions"], row["records"]) for row in cli("topics", "list", bare, "--json").json] == [("orders", 2, 10)]
    assert cli("consume", bare, "orders", "-f", "jsonl").out == cli("consume", data, "orders", "-f", "jsonl").out
    assert sum(partition["records"] for partition in cli("audit", bare, "--json").json["partitions"]) == 10
    cli("explain", bare, "-t", "orders", "--polls", 2)
    assert "2 of 2 partitions are sound" in cli("verify", bare).out
    with fl.Broker(bare, read_only=True) as broker:
        assert len(broker.scan("orders").to_pyarrow()) == 10
    assert {path.name for path in bare.iterdir()} == {"orders-0", "orders-1"}
    cli("copy", bare, bare.parent / "copy")
    assert len(cli("consume", bare.parent / "copy", "orders", "-f", "jsonl").lines) == 10


def test_they_are_not_written(cli, bare):
    for words in (["topics", "create", bare, "t"], ["produce", bare, "orders"], ["retention", bare]):
        said = cli(*words, stdin="1\n", code=1).err
        assert "holds folders of partitions without the files that a broker keeps beside them" in said
    assert {path.name for path in bare.iterdir()} == {"orders-0", "orders-1"}


def test_the_folder_of_one_partition_is_called_so(cli, bare):
    for folder in (bare / "orders-0", bare / "orders-1"):
        for words in (["topics", "list"], ["topics", "create"], ["audit"], ["groups", "list"]):
            said = cli(*words, folder, *(["t"] if "create" in words else []), code=1).err
            assert "is the folder of one partition; open the directory that it is in, or read its files with `fletchlog verify` and `fletchlog dump`" in said
        assert "sound" in cli("verify", folder).out


def test_a_folder_without_segments_is_an_empty_partition(cli, bare):
    shutil.rmtree(bare / "orders-1")
    assert [(row["topic"], row["partitions"], row["records"]) for row in cli("topics", "list", bare, "--json").json] == [("orders", 1, 0)]
    assert cli("consume", bare, "orders", "-f", "jsonl").out == ""


def test_other_directories_are_still_none(cli, tmp_path):
    (tmp_path / "other" / "photos-1").mkdir(parents=True)
    (tmp_path / "other" / "photos-1" / "a.jpg").write_bytes(b"x")
    assert "so it is no broker's directory" in cli("topics", "list", tmp_path / "other", code=1).err
