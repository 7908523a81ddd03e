"""Clients of a cluster with TLS and SASL on the shell: `--command-config`, as Kafka's tools have it, and `--config`."""

import json

import pytest

import fletchlog as fl
from tests.support.certificates import Authority

PASSWORD = "s3cret of alice"


@pytest.fixture
def secured(tmp_path):
    """A broker that wants TLS and a password; its address, and the file that its clients need."""
    authority = Authority(tmp_path)
    config = {
        "security.protocol": "SASL_SSL",
        "ssl.keystore.location": authority.issue("broker", ("127.0.0.1",))[0],
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'PlainLoginModule required user_alice="{PASSWORD}";',
    }
    file = tmp_path / "client.properties"
    client = {"security.protocol": "SASL_SSL", "ssl.truststore.location": authority.file, "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    # the address that is typed goes before that of the file, as in Kafka's tools
    client |= {"sasl.password": PASSWORD, "bootstrap.servers": "127.0.0.1:1"}
    file.write_text("# of a user\n" + "".join(f"{name}={value}\n" for name, value in client.items()))
    with fl.Broker.in_memory() as broker, broker.listen(config=config) as kafka:
        yield broker, f"kafka://{kafka.bootstrap}", file


def test_every_command_on_a_cluster_takes_the_properties_of_its_clients(cli, secured, tmp_path):
    broker, address, file = secured
    rows = tmp_path / "rows.txt"
    rows.write_text("".join(f"{i}\n" for i in range(10)))
    said = []

    def run(*words, stdin=None):
        result = cli(*words, "--command-config", file, stdin=stdin)
        said.extend([result.out, result.err])
        return result

    run("topics", "create", address, "numbers", "--partitions", "2", "-c", "retention.ms=-1")
    assert broker.describe_topic("numbers").config == {"retention.ms": "-1"}
    # a producer's property is none of the cluster's, and no reason to complain
    assert "acks" not in run("produce", address, "numbers", rows, "-c", "acks=all", "-c", "linger.ms=5").err
    lines = run("consume", address, "numbers", "-f", "jsonl", "--group", "g", "-c", "max.poll.records=3").lines
    assert sorted(int(line["value"]) for line in lines) == list(range(10))
    assert [row["records"] for row in run("topics", "list", address, "--json").json] == [10]
    assert len(run("topics", "describe", address, "numbers", "--json").json[0]["partitions"]) == 2
    assert [row["lag"] for row in run("groups", "list", address, "--json").json] == [0]
    assert [row["lag"] for row in run("groups", "lag", address, "g", "--json").json] == [0]
    run("groups", "reset", address, "g", "--topic", "numbers", "--to-earliest", "--execute")
    assert sum(row["lag"] for row in run("groups", "describe", address, "g", "--json").json["partitions"]) == 10
    assert "poll 1" in run("explain", address, "--topics", "numbers", "--polls", "2").out
    assert sum(p["records"] for p in run("audit", address, "--json").json["partitions"]) == 10
    run("topics", "alter", address, "numbers", "--partitions", "3")
    run("topics", "add-partitions", address, "numbers", "1")
    assert len(broker.describe_topic("numbers").partitions) == 4
    copied = cli("copy", address, tmp_path / "copy", "--topics", "numbers", "--source-command-config", file)
    assert "10 records copied" in copied.out
    back = ("copy", tmp_path / "copy", address, "--destination-command-config", file, "--destination-config", "acks=all")
    assert "no entry of this source" in cli(*back, code=1).err
    assert "10 records copied" in cli(*back, "--append").out
    run("delete-records", address, "numbers", "--before-offset", "-1", "--yes")
    assert sum(p.high_watermark - p.log_start_offset for p in broker.describe_topic("numbers").partitions) == 0
    run("groups", "delete", address, "g", "--yes")
    run("topics", "delete", address, "numbers", "--yes")
    assert broker.topics() == []
    assert "s3cret" not in "".join([*said, copied.out, copied.err])


def test_properties_may_be_given_one_by_one(cli, secured):
    broker, address, file = secured
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        producer.send("t", value=b"v").result()
    given = [f"-c{line}" for line in file.read_text().splitlines() if "=" in line and not line.startswith("bootstrap")]
    assert [line["value"] for line in cli("consume", address, "t", "-f", "jsonl", *given).lines] == ["v"]


def test_without_them_the_command_says_what_is_missing(cli, secured, tmp_path):
    _, address, file = secured
    failed = cli("consume", address, "t", code=1)
    assert "security.protocol" in failed.err
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(file.read_text().replace(PASSWORD, "s3cret of nobody"))
    failed = cli("topics", "list", address, "--command-config", wrong, code=1)
    assert "user `alice`: Authentication failed" in failed.err
    assert "s3cret" not in failed.err
    wrong.write_text("a=b\n\nsasl.password=s3cret\\u00\n")
    failed = cli("topics", "list", address, "--command-config", wrong, code=1)
    assert failed.err == f"fletchlog: {wrong}, line 3: `\\u` without four hexadecimal digits; a backslash itself is written `\\\\`\n"
    assert "cannot be read" in cli("groups", "list", address, "--command-config", tmp_path / "none", code=1).err


def test_an_audit_of_a_cluster_finds_what_records_show(cli, data):
    """The same as of the files, but for what only files show."""
    with fl.Broker(data, create=True) as broker, broker.listen() as kafka:
        broker.create_topic("orders", partitions=2)
        with fl.Producer(broker, {"transactional.id": "x"}) as producer:
            producer.init_transactions()
            for begin in (0, 50):
                with producer.transaction():
                    for i in range(begin, begin + 50):
                        late = 5000 if i % 10 == 9 else 0
                        producer.send("orders", key=b"k%d" % (i % 5), value=b"v%d" % (i % 40), timestamp_ms=1_700_000_000_000 + 10 * i - late)
        address = f"kafka://{kafka.bootstrap}"
        of_cluster = fl.audit.run(address)
        of_files = fl.audit.run(data)
        only_files = {"gaps_markers", "gaps_compaction", "gaps_unexplained", "duplicate_sequences"}
        for shown, whole in zip(map(vars, of_cluster.partitions), map(vars, of_files.partitions), strict=True):
            assert {name for name in shown if shown[name] is None} == only_files
            assert {n: v for n, v in shown.items() if n not in only_files} == {n: v for n, v in whole.items() if n not in only_files}
        assert sum(p.gaps for p in of_cluster.partitions) > 0, "markers"
        assert (of_cluster.keys, of_cluster.lateness) == (of_files.keys, of_files.lateness)
        assert of_cluster.source == address
        assert "orders-0" in cli("audit", address, "--topics", "orders").out
        assert json.loads(cli("audit", address, "--json").out)["partitions"][0]["gaps_markers"] is None
        failed = cli("audit", address, "--max", "gaps_unexplained=0", code=1)
        assert "rows alone do not tell gaps_unexplained" in failed.err
        assert "inversions is" in cli("audit", address, "--max", "timestamp_inversions=0", code=1).err
        assert "there is no topic none" in cli("audit", address, "--topics", "none", code=1).err
    assert "is a directory" in cli("audit", data, "-c", "client.id=x", code=1).err
