"""`fletchlog groups`: where groups go on, and how to set it."""

import contextlib
import shutil
import time

import pytest

import fletchlog as fl

HOUR = 3_600_000


@pytest.fixture
def data(tmp_path):
    """A topic of two partitions with ten records each, one an hour, of which group g has read three of the first."""
    now = time.time_ns() // 1_000_000
    with fl.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        with fl.Producer(broker) as producer:
            for number in range(20):
                producer.send("t", value=b"v", partition=number % 2, timestamp_ms=now - HOUR // 2 - (9 - number // 2) * HOUR)
        with fl.Consumer(broker, {"group.id": "g"}) as consumer:
            consumer.commit({("t", 0): 3})
    return tmp_path


def committed(cli, data):
    return {row["partition"]: row["committed"] for row in cli("groups", "describe", data, "g", "--json").json["partitions"]}


def test_groups_are_listed_and_described_with_their_lag(cli, data):
    row = {"group": "g", "type": "classic", "state": "Empty", "coordinator": 1, "members": 0, "partitions": 1, "lag": 7, "without_commit": 1}
    listed = cli("groups", "list", data, "--json")
    assert listed.json == [row]
    assert "1 partition has no committed offset and is not counted in the lag" in listed.err
    described = cli("groups", "describe", data, "g", "--json").json
    assert described["partitions"] == [{"topic": "t", "partition": 0, "committed": 3, "end": 10, "lag": 7, "member": None}]
    assert (described["state"], described["coordinator"], described["members"]) == ("Empty", 1, [])
    assert "g is Empty, its coordinator is node 1; 0 members" in cli("groups", "describe", data, "g").out
    lag = cli("groups", "lag", data, "g", "--json")
    assert lag.json == [{"topic": "t", "lag": 7, "without_commit": 1}]
    assert "1 partition has no committed offset" in lag.err
    assert "committed" in cli("groups", "describe", data, "g").out


@pytest.mark.parametrize(
    ("words", "after"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 10}),
        (["--to-offset", 5, "-p", 0], {0: 5}),
        (["--to-offset", 99], {0: 10, 1: 10}),
        (["--to-time", "2h"], {0: 8, 1: 8}),
        (["--to-time", "now"], {0: 10, 1: 10}),
        (["--shift-by", 2, "-p", 0], {0: 5}),
        (["--shift-by", -99], {0: 0, 1: 0}),
    ],
)
def test_a_group_is_reset_only_when_it_is_said_twice(cli, data, words, after):
    expected = [{"topic": "t", "partition": p, "before": {0: 3}.get(p), "after": offset} for p, offset in after.items()]
    dry = cli("groups", "reset", data, "g", "-t", "t", *words, "--json")
    assert dry.json == expected
    assert "--execute" in dry.err
    assert committed(cli, data) == {0: 3}
    assert cli("groups", "reset", data, "g", "-t", "t", *words, "--json", "--execute").json == expected
    assert committed(cli, data) == {0: 3} | after


def test_a_reset_group_goes_on_there(cli, data):
    cli("groups", "reset", data, "g", "-t", "t", "--to-latest", "--execute")
    cli("groups", "reset", data, "g", "-t", "t", "--to-offset", 5, "-p", 0, "--execute")
    with fl.Broker(data, create=True) as broker, fl.Consumer(broker, {"group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        assert [(r.partition, r.offset) for r in consumer.poll(timeout_ms=2000)] == [(0, offset) for offset in range(5, 10)]


def test_a_deleted_group_is_gone(cli, data):
    cli("groups", "delete", data, "g", "--yes")
    assert cli("groups", "list", data).out.strip().endswith("holds no group")
    assert "g" in cli("groups", "describe", data, "g", code=1).err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--to-time", "yesterday"], "--to-time yesterday is no time"),
        (["--to-offset", "0", "-p", "7"], "t has no partition 7"),
        ([], "--to-earliest, --to-latest"),
        (["--to-earliest", "--shift-by", 1], "one of --to-earliest"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(cli, data, words, text):
    assert text in cli("groups", "reset", data, "g", "--topic", "t", *words, code=1).err


def test_names_that_are_nearly_right_are_answered_with_the_right_ones(cli, data):
    cli("topics", "create", data, "orders")
    with fl.Broker(data, create=True) as broker:
        broker.alter_offsets("billing", {("orders", 0): 0})
    for words in (["groups", "describe", data, "biling"], ["groups", "lag", data, "biling"], ["groups", "delete", data, "biling", "--yes"]):
        assert "did you mean billing?" in cli(*words, code=1).err
    for words in (
        ["consume", data, "ordres"], ["produce", data, "ordres"], ["topics", "describe", data, "ordres"], ["topics", "delete", data, "ordres", "--yes"],
        ["topics", "alter", data, "ordres", "-p", 3], ["topics", "add-partitions", data, "ordres", 1], ["clean", data, "ordres"],
        ["groups", "reset", data, "g", "-t", "ordres", "--to-earliest"], ["delete-records", data, "ordres", "--before", "now"],
    ):  # fmt: skip
        said = cli(*words, code=1).err
        assert "did you mean orders?" in said
        assert "create_topic" not in said


@contextlib.contextmanager
def pending_offset(broker):
    """Group `pending` has committed 4, and an open transaction is to commit 9."""
    broker.alter_offsets("pending", {("t", 0): 4})
    producer = fl.Producer(broker, {"transactional.id": "x"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({("t", 0): 9}, fl.types.ConsumerGroupMetadata("", -1, "pending"))
    try:
        yield
    finally:
        producer.abort_transaction()
        producer.close()


def test_a_pending_offset_hides_neither_its_group_nor_the_others(cli, data):
    with fl.Broker(data, create=True) as broker, pending_offset(broker), broker.listen() as listener:
        place = f"kafka://{listener.bootstrap}"
        for at in (place, data):
            assert {row["group"]: row["lag"] for row in cli("groups", "list", at, "--json").json} == {"g": 7, "pending": 6}
            assert cli("groups", "describe", at, "pending", "--json").json["partitions"][0]["committed"] == 4
            assert cli("groups", "lag", at, "pending", "--json").json == [{"topic": "t", "lag": 6, "without_commit": 1}]
            assert cli("groups", "reset", at, "pending", "-t", "t", "-p", 0, "--to-earliest", "--json").json[0]["before"] == 4


def test_an_offset_whose_transaction_nobody_ends_holds_back_no_reader(tmp_path, cli, data):
    with fl.Broker(data, create=True) as broker, pending_offset(broker):
        broker.flush()
        copy = shutil.copytree(data, tmp_path / "copy")
    assert {row["group"]: row["lag"] for row in cli("groups", "list", copy, "--json").json} == {"g": 7, "pending": 6}
    with fl.Broker(copy, read_only=True) as broker, fl.Consumer(broker, {"group.id": "pending", "enable.auto.commit": "false"}) as consumer:
        consumer.assign([("t", 0)])
        assert [record.offset for record in consumer.poll(timeout_ms=5000)] == [4, 5, 6, 7, 8, 9]


def test_offsets_of_a_deleted_topic_have_no_end(cli, data):
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("gone")
        broker.alter_offsets("g", {("gone", 0): 0})
        with broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
            assert cluster.lag("g") == broker.lag("g") == {("gone", 0): (0, 0, 0), ("t", 0): (3, 10, 7)}
            assert cluster.group_offsets("g") == broker.group_offsets("g") == {("gone", 0): (0, "", -1), ("t", 0): (3, "", -1)}
            assert cluster.lag("no such group") == broker.lag("no such group") == {}
            broker.delete_topic("gone")
            assert cluster.lag("g") == broker.lag("g")
            assert broker.lag("g")[fl.TopicPartition("t", 0)] == (3, 10, 7)


def test_listing_groups_costs_requests_by_groups_and_not_by_topics(cli, data):
    with fl.Broker(data, create=True) as broker:
        for number in range(20):
            broker.create_topic(f"topic-{number}")
        for number in range(10):
            broker.alter_offsets(f"group-{number}", {(f"topic-{topic}", 0): 0 for topic in range(20)})
        with broker.listen() as listener:
            assert len(cli("groups", "list", f"kafka://{listener.bootstrap}", "--json").json) == 11
            requests = sum(row["requests"] for row in listener.stats().to_pyarrow().to_pylist())
    # each topic is asked for once
    assert requests < 11 * 8 + 20


def test_a_share_group_is_listed_described_and_reset(cli, data):
    with fl.Broker(data) as broker:
        broker.alter_share_group_offsets("s", {("t", 0): 3})
    (row,) = [row for row in cli("groups", "list", data, "--json").json if row["group"] == "s"]
    assert row == {"group": "s", "type": "share", "state": "Empty", "coordinator": 1, "members": 0, "partitions": 1, "lag": 7, "without_commit": 0}
    described = cli("groups", "describe", data, "s", "--json").json
    assert described["partitions"] == [{"topic": "t", "partition": 0, "committed": 3, "end": 10, "lag": 7, "done_ahead": 0, "member": None}]
    assert (described["type"], described["protocol"]) == ("share", "simple")
    assert cli("groups", "lag", data, "s", "--json").json == [{"topic": "t", "lag": 7, "without_commit": 0}]
    expected = [{"topic": "t", "partition": p, "before": {0: 3}.get(p), "after": 10} for p in (0, 1)]
    assert cli("groups", "reset", data, "s", "-t", "t", "--to-latest", "--json", "--execute").json == expected
    assert cli("groups", "lag", data, "s", "--json").json == [{"topic": "t", "lag": 0, "without_commit": 0}]
    assert "--to-offset" in cli("groups", "reset", data, "s", "-t", "t", "--shift-by", "-1", code=1).err
    cli("groups", "delete", data, "s", "--yes")
    assert [row["group"] for row in cli("groups", "list", data, "--json").json] == ["g"]


def test_a_reset_makes_a_group_of_the_type_that_is_asked_for_and_reports_it(cli, data):
    shown = cli("groups", "reset", data, "new", "--share", "-t", "t", "--to-earliest", "--json")
    assert [(row["before"], row["after"]) for row in shown.json] == [(None, 0), (None, 0)]
    assert "nothing was changed" in shown.err
    made = cli("groups", "reset", data, "new", "--share", "-t", "t", "--to-earliest", "--execute")
    assert "new did not exist: it is a share group now" in made.err
    assert "did not exist" not in cli("groups", "reset", data, "new", "-t", "t", "--to-latest", "--execute").err
    made = cli("groups", "reset", data, "other", "-t", "t", "--to-earliest", "--execute")
    assert "other did not exist: it is a consumer group now" in made.err
    assert {row["group"]: row["type"] for row in cli("groups", "list", data, "--json").json} == {"g": "classic", "new": "share", "other": "classic"}
    assert "g is no share group" in cli("groups", "reset", data, "g", "--share", "-t", "t", "--to-latest", code=1).err


def test_a_reset_reports_an_offset_that_a_partition_does_not_have(cli, data):
    done = cli("groups", "reset", data, "g", "-t", "t", "-p", "0", "--to-offset", "11", "--json")
    assert [row["after"] for row in done.json] == [10]
    assert "t-0 has no offset 11: it ends at 10" in done.err
    assert "t-0 has no offset -5: it begins at 0" in cli("groups", "reset", data, "g", "-t", "t", "-p", "0", "--shift-by", "-8").err
    assert "has no offset" not in cli("groups", "reset", data, "g", "-t", "t", "-p", "0", "--to-offset", "10").err


def test_properties_of_a_group_are_altered_and_described(cli, data):
    altered = cli("groups", "alter", data, "s", "-c", "share.auto.offset.reset=earliest", "-c", "share.delivery.count.limit=3")
    assert "altered s" in altered.out
    cli("groups", "reset", data, "s", "--share", "-t", "t", "--to-earliest", "--execute")
    assert cli("groups", "describe", data, "s", "--json").json["config"] == {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "3"}
    assert "share.auto.offset.reset=earliest, share.delivery.count.limit=3" in cli("groups", "describe", data, "s").out
    cli("groups", "alter", data, "s", "-d", "share.delivery.count.limit")
    assert cli("groups", "describe", data, "s", "--json").json["config"] == {"share.auto.offset.reset": "earliest"}
    assert cli("groups", "describe", data, "g", "--json").json["config"] == {}
    assert "give --config" in cli("groups", "alter", data, "s", code=1).err
    assert "share.nothing" in cli("groups", "alter", data, "s", "-c", "share.nothing=1", code=1).err


def test_groups_of_the_ledger_are_not_listed(cli, data, tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy") / "copy"
    cli("copy", data, copy)
    with fl.Broker(copy, read_only=True) as broker:
        assert any(listed.group_id.startswith("fletchlog-ledger-") for listed in broker.groups())
    assert cli("groups", "list", copy, "--json").json == []
    assert cli("--complete", "groups", "describe", copy, "").out == ""
