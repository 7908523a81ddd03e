"""What a person meets on the shell: JSON of every command that changes something, topics that are meant, members, paths, narrow screens."""

import sys

import pytest

import fletchlog as fl
from fletchlog.cli import terminal


@pytest.fixture
def topic(cli, data):
    cli("topics", "create", data, "orders", "--partitions", 2)
    return data


def test_every_command_that_changes_something_has_json(cli, topic):
    assert cli("topics", "create", topic, "t", "--json").json == {"topic": "t", "partitions": 1}
    altered = cli("topics", "alter", topic, "t", "-p", 2, "-c", "retention.ms=5000", "--json").json
    assert altered == {"topic": "t", "partitions": 2, "config": {"retention.ms": "5000"}}
    assert cli("topics", "add-partitions", topic, "t", 1, "--json").json == {"topic": "t", "partitions": 3}
    assert cli("topics", "delete", topic, "t", "--yes", "--json").json == {"topic": "t"}
    assert cli("retention", topic, "--json").json == {"segments": 0}
    cli("produce", topic, "orders", stdin="a\n")
    cli("consume", topic, "orders", "--group", "g")
    assert cli("groups", "delete", topic, "g", "--yes", "--json").json == {"group": "g"}
    with fl.Broker(topic, create=True) as broker:
        producer = fl.Producer(broker, {"transactional.id": "copier"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", value=b"x")
        producer.flush()
    assert cli("transactions", "abort", topic, "copier", "--json").json == {"transactional_id": "copier"}
    assert cli("users", "add", topic, "alice", "--json", stdin="p\n").json == {"user": "alice", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
    assert cli("users", "remove", topic, "alice", "--mechanism", "SCRAM-SHA-512", "--json").json == {"user": "alice", "mechanisms": ["SCRAM-SHA-512"]}
    assert cli("copy", topic, topic.with_name("other"), "--json").json == [{"topic": "orders", "records": 1, "skipped": []}]


@pytest.mark.parametrize("words", [["explain", "{d}", "-t"], ["audit", "{d}", "-t"], ["copy", "{d}", "other", "-t"]])
def test_a_topic_that_is_meant_is_named(cli, topic, words):
    words = [word.replace("{d}", str(topic)) for word in words]
    assert "there is no topic ordres; did you mean orders?" in cli(*words, "orders,ordres", code=1).err


@pytest.mark.parametrize("command", ["explain", "audit", "copy"])
def test_the_last_topic_of_a_list_is_completed(shell, topic, command):
    words = f"{command} data {'other ' if command == 'copy' else ''}-t orders,or"
    assert shell.run("--complete", *words.split()).stdout.split() == [b"orders,orders"]


def test_members_without_commits_and_the_directories_of_partitions_are_shown(cli, topic):
    rows = cli("topics", "describe", topic, "orders", "--json").json[0]["partitions"]
    assert [row["directory"] for row in rows] == [str(topic / "orders-0"), str(topic / "orders-1")]
    assert "orders-0" in cli("topics", "describe", topic, "orders").out
    with fl.Broker.in_memory() as broker, broker.listen() as kafka, fl.Consumer(broker, {"group.id": "g", "client.id": "me"}) as member:
        broker.create_topic("t", partitions=2)
        member.subscribe(["t"])
        while not member.assignment():
            member.poll(timeout_ms=100)
        address = f"kafka://{kafka.bootstrap}"
        # a cluster does not say how large a log is, and where
        assert [row["size_bytes"] for row in cli("topics", "describe", address, "t", "--json").json[0]["partitions"]] == [None, None]
        assert " -1 " not in (said := cli("topics", "describe", address, "t").out)
        assert "bytes" not in said
        described = cli("groups", "describe", address, "g", "--json").json
        assert (described["state"], [one["client"] for one in described["members"]]) == ("Stable", ["me"])
        assert [(row["partition"], row["committed"], row["member"] is None) for row in described["partitions"]] == [(0, None, False), (1, None, False)]
        assert "g is Stable" in cli("groups", "describe", address, "g").out
        assert [row["members"] for row in cli("groups", "list", address, "--json").json] == [1]


def test_cleaning_a_topic_that_is_not_compacted_fails_and_says_how_to_make_it_so(cli, topic):
    assert f"`fletchlog topics alter {topic} orders -c cleanup.policy=compact` makes it so" in cli("clean", topic, "orders", code=1).err
    cli("topics", "alter", topic, "orders", "-c", "cleanup.policy=compact")
    cli("clean", topic, "orders")


def test_a_narrow_screen_gets_a_line_for_each_field(cli, topic, monkeypatch):
    cli("produce", topic, "orders", stdin="a\n")
    (segment,) = [path for path in topic.glob("orders-*/*.log") if path.stat().st_size]
    monkeypatch.setattr("fletchlog.cli.tables.out", lambda: terminal._screen(file=sys.stdout, width=50))
    for words in (
        ["verify", topic], ["config", "linger.ms"], ["dump", segment], ["dump", segment, "-r"], ["assign", "-t", "orders=2", "-m", "1"],
        ["explain", topic, "-t", "orders", "--compare", "kip-387"], ["audit", topic],
    ):  # fmt: skip
        lines = cli(*words).out.splitlines()
        assert not [line for line in lines if "\u2503" in line or "\u2026" in line], words


@pytest.mark.parametrize("words", [["topics", "create", "{place}", "t"], ["topics", "list", "{place}"], ["produce", "{place}", "t", "--partitions", "1"]])
def test_an_address_without_a_host_makes_no_directory(cli, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    assert "it names no server" in cli(*[word.replace("{place}", "kafka://") for word in words], code=1).err
    assert "it names no bucket; give s3://BUCKET/PREFIX" in cli(*[word.replace("{place}", "s3://") for word in words], code=1).err
    if words[1] != "list":
        assert "object stores are read-only" in cli(*[word.replace("{place}", "s3://b") for word in words], code=1).err
    assert list(tmp_path.iterdir()) == []


def test_no_name_of_a_partition_is_cut_off(cli, data):
    name = "a-topic-with-a-rather-long-name-as-they-are"
    cli("topics", "create", data, name, "--partitions", 2)
    for words in (["verify", data], ["audit", data], ["topics", "list", data]):
        said = cli(*words).out
        assert name in said, words
        assert "\u2026" not in said, words


def test_a_cluster_that_is_away_is_named_by_its_address(cli, monkeypatch):
    monkeypatch.setattr("fletchlog.cli.common.CLUSTER_MS", 100)
    said = cli("topics", "list", "kafka://127.0.0.1:1", code=1).err
    assert "127.0.0.1:1" in said
    assert "node -1" not in said.splitlines()[-1]
