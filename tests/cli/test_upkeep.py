"""`fletchlog delete-records`, `clean`, `retention`, `transactions` and `topics add-partitions`."""

import pytest

import fletchlog as fl


@pytest.fixture
def data(tmp_path):
    """Two partitions of ten records, a second apart since 1970."""
    with fl.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        with fl.Producer(broker) as producer:
            for number in range(20):
                producer.send("t", b"v", partition=number % 2, timestamp_ms=number // 2 * 1000)
    return tmp_path


def starts(data):
    with fl.Broker(data, read_only=True) as broker:
        return [p.log_start_offset for p in broker.describe_topic("t").partitions]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-p", 1, "--before-offset", 4], [0, 4]),
        (["--before-offset", -1], [10, 10]),
        (["--before", "1970-01-01T00:00:03"], [3, 3]),
        (["--before", 3001, "-p", 0], [4, 0]),
        (["--before", "now"], [10, 10]),
    ],
)
def test_the_oldest_records_are_deleted(cli, data, words, expected):
    assert "nothing was deleted" in cli("delete-records", data, "t", *words, stdin="n\n", code=1).err
    assert starts(data) == [0, 0]
    rows = cli("delete-records", data, "t", *words, "--yes", "--json").json
    assert starts(data) == expected
    assert {row["partition"]: row["after"] for row in rows} == {row["partition"]: expected[row["partition"]] for row in rows}
    assert all(row["before"] == 0 for row in rows)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "one of --before-offset, --before"),
        (["--before-offset", 1], "give --partition"),
        (["--before-offset", 11, "-p", 0], "t-0 ends at 10"),
        (["--before-offset", -2], "or -1 for all"),
        (["--before", "soon"], "--before soon is no time"),
        (["--before", "now", "-p", 2], "t has no partition 2"),
    ],
)
def test_what_cannot_be_deleted_is_refused(cli, data, words, text):
    assert text in cli("delete-records", data, "t", *words, "--yes", code=1).err
    assert starts(data) == [0, 0]


def test_records_that_are_gone_are_not_brought_back(cli, data):
    cli("delete-records", data, "t", "-p", 0, "--before-offset", 5, "--yes")
    cli("delete-records", data, "t", "-p", 0, "--before-offset", 2, "--yes")
    assert starts(data) == [5, 0]


def test_a_topic_is_compacted(cli, data):
    cli("topics", "create", data, "c", "-c", "cleanup.policy=compact")
    cli("produce", data, "c", "--key", ":", stdin="a:1\na:2\nb:1\n")
    (row,) = cli("clean", data, "c", "--force", "--json").json
    assert (row["messages_read"], row["messages_written"]) == (3, 2)
    assert "not due" in cli("clean", data, "c").out
    assert [line["value"] for line in cli("consume", data, "c", "-f", "jsonl").lines] == ["2", "1"]
    assert "cleanup.policy" in cli("clean", data, "t", code=1).err


def test_retention_is_applied_now(cli, data):
    cli("topics", "create", data, "r", "-c", "retention.ms=1000")
    with fl.Broker(data, create=True) as broker, fl.Producer(broker) as producer:
        producer.send("r", b"old", timestamp_ms=1)
    # the records of t are from 1970, too, and go after the default seven days
    assert "deleted 3 segments" in cli("retention", data).out
    assert starts(data) == [10, 10]
    assert "deleted 0 segments" in cli("retention", data).out


def test_an_open_transaction_is_listed_and_aborted(cli, data):
    assert "no transactional id" in cli("transactions", "list", data).out
    producers = []  # one that is dropped aborts what it left open
    with fl.Broker(data, create=True) as broker:
        for name in ("open", "done"):
            producer = fl.Producer(broker, {"transactional.id": name})
            producers.append(producer)
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"1", partition=0).result(5)
            if name == "done":
                producer.commit_transaction()
    states = {row["transactional id"]: row["state"] for row in cli("transactions", "list", data, "--json").json}
    assert states == {"open": "Ongoing", "done": "CompleteCommit"}
    assert "CompleteCommit" in cli("transactions", "abort", data, "done", code=1).err
    assert "no transactional id opne" in cli("transactions", "abort", data, "opne", code=1).err
    cli("transactions", "abort", data, "open")
    states = {row["transactional id"]: row["state"] for row in cli("transactions", "list", data, "--json").json}
    assert states["open"] in {"CompleteAbort", "Empty"}
    read = cli("consume", data, "t", "-p", 0, "-f", "%s\n", "-c", "isolation.level=read_committed").out.split()
    assert read.count("1") == 1


def test_transactions_of_a_cluster_are_listed_and_aborted(cli):
    with fl.Broker.in_memory(nodes=2) as broker, broker.listen() as kafka, fl.Cluster(f"kafka://{kafka.bootstrap}") as cluster:
        address = f"kafka://{kafka.bootstrap}"
        broker.create_topic("t")
        assert cluster.transactions() == []
        assert f"{address} knows no transactional id" in cli("transactions", "list", address).out
        names = [f"copier-{number}" for number in range(4)]  # coordinators on both nodes
        producers = [fl.Producer(broker, {"transactional.id": name}) for name in names]
        for producer in producers:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"1", partition=0).result(5)
        producers[0].commit_transaction()
        assert cluster.transactions() == broker.transactions()
        assert len({known.coordinator for known in cluster.transactions()}) == 2
        rows = cli("transactions", "list", address, "--json").json
        assert [(row["transactional id"], row["state"]) for row in rows] == [(names[0], "CompleteCommit"), *((name, "Ongoing") for name in names[1:])]
        assert rows[1]["partitions"] == ["t-0"]
        assert "CompleteCommit" in cli("transactions", "abort", address, names[0], code=1).err
        assert f"`fletchlog transactions list {address}`" in cli("transactions", "abort", address, "opne", code=1).err
        cli("transactions", "abort", address, names[1])
        assert {known.transactional_id: known.state for known in broker.transactions()}[names[1]] in {"CompleteAbort", "Empty"}
        with pytest.raises(fl.errors.ProducerFencedError):
            producers[1].commit_transaction()


def test_partitions_are_added(cli, data):
    assert "t has 5 partitions" in cli("topics", "add-partitions", data, "t", 3).out
    assert len(cli("topics", "describe", data, "t", "--json").json[0]["partitions"]) == 5
    assert "at least 1" in cli("topics", "add-partitions", data, "t", 0, code=1).err


def test_narrow_terminals_get_a_line_a_field(shell, data):
    said, code = shell.terminal("topics", "list", data, columns=50)
    assert code == 0
    assert [line.split() for line in said.decode().splitlines()][:2] == [["topic", "t"], ["partitions", "2"]]
