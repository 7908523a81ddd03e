"""`fletchlog topics`."""

import re
import shutil
import subprocess
import sys

import pytest

import fletchlog as fl
from fletchlog.cli.app import commands


def test_a_topic_is_created_listed_described_and_deleted(cli, data):
    cli("topics", "create", data, "orders", "-p", 3, "-c", "retention.ms=1000", "--nodes", 2)
    cli("topics", "create", data, "clicks")
    assert cli("topics", "list", data, "--json").json == [
        {"topic": "clicks", "partitions": 1, "records": 0, "bytes": 0},
        {"topic": "orders", "partitions": 3, "records": 0, "bytes": 0},
    ]
    described = cli("topics", "describe", data, "orders", "--json").json
    assert described[0]["config"] == {"retention.ms": "1000"}
    assert sorted({p["leader"] for p in described[0]["partitions"]}) == [1, 2]
    assert "orders" in cli("topics", "describe", data).out
    cli("topics", "delete", data, "orders", "--yes")
    assert [row["topic"] for row in cli("topics", "list", data, "--json").json] == ["clicks"]
    assert "clicks" in cli("topics", "list", data).out


def test_a_topic_that_exists_is_left_as_it_is_if_asked(cli, data):
    assert cli("topics", "create", data, "t", "-p", 3, "--if-not-exists").out == f"created t with 3 partitions in {data}\n"
    assert "Topic 't' already exists; --if-not-exists accepts that" in cli("topics", "create", data, "t", "-p", 3, code=1).err
    for words in ([], ["-p", 5, "-c", "retention.ms=1"]):
        assert cli("topics", "create", data, "t", "--if-not-exists", *words).out == f"found t with 3 partitions in {data}\n"
    assert cli("topics", "describe", data, "t", "--json").json[0]["config"] == {}


def test_a_topic_is_altered(cli, data):
    cli("topics", "create", data, "orders", "-c", "retention.ms=1000", "-c", "segment.bytes=5000")
    cli("topics", "alter", data, "orders", "--partitions", 3, "-c", "retention.ms=2000", "-d", "segment.bytes")
    (described,) = cli("topics", "describe", data, "orders", "--json").json
    assert (len(described["partitions"]), described["config"]) == (3, {"retention.ms": "2000"})
    assert "would not be an increase" in cli("topics", "alter", data, "orders", "-p", 2, code=1).err
    assert "nothing to alter" in cli("topics", "alter", data, "orders", code=1).err
    assert "resets it" in cli("topics", "alter", data, "orders", "-c", "retention.ms=1", "-d", "retention.ms", code=1).err
    # A bad property keeps the partitions from becoming more.
    assert "retention.mss" in cli("topics", "alter", data, "orders", "-p", 9, "-c", "retention.mss=1", code=1).err
    assert len(cli("topics", "describe", data, "orders", "--json").json[0]["partitions"]) == 3


def test_deleting_asks_first(cli, data):
    cli("topics", "create", data, "orders")
    assert "nothing was deleted" in cli("topics", "delete", data, "orders", stdin="n\n", code=1).err
    cli("topics", "delete", data, "orders", stdin="y\n")


def test_mistakes_are_one_sentence(cli, data, tmp_path):
    assert str(data) in cli("topics", "list", data, code=1).err
    cli("topics", "create", data, "orders")
    assert "orders" in cli("topics", "create", data, "orders", code=1).err
    assert "'a/b' contains" in cli("topics", "create", data, "a/b", code=1).err
    assert "retention.ms" in cli("topics", "create", data, "x", "-c", "retention.mss=1", code=1).err
    assert "NAME=VALUE" in cli("topics", "create", data, "x", "-c", "retention.ms", code=1).err
    assert "payments" in cli("topics", "describe", data, "payments", code=1).err
    file = tmp_path / "file"
    file.write_text("x")
    assert "file" in cli("topics", "list", file, code=1).err


def test_every_command_teaches_with_examples(cli):
    for words in (["topics", "create"], ["topics", "alter"], ["produce"], ["consume"], ["explain"], ["dump"], ["verify"], ["config"]):
        text = cli(*words, "--help").out
        assert f"fletchlog {' '.join(words)}" in text.replace("\n", " ")
    assert "fletchlog" in cli("--version").out


def test_examples_and_paragraphs_fit_a_terminal_of_80_columns(cli):
    for words, command in commands():
        shown = cli(*words.split(), "--help").out.splitlines()
        examples = [line.strip() for line in command.__doc__.splitlines() if re.match("    (  )?fletchlog ", line)]
        assert examples, words
        assert set(examples) <= {line.strip() for line in shown}, words
        assert max(len(line) for line in shown if "fletchlog " not in line) < 80, words


def test_the_package_runs_as_a_module(data):
    words = [sys.executable, "-m", "fletchlog", "topics", "create", str(data), "orders", "-x"]
    refused = subprocess.run(words, check=False, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "python -m fletchlog" in refused.stderr
    assert "__main__" not in refused.stderr
    subprocess.run(words[:-1], check=True)
    listed = subprocess.run([*words[:4], "list", str(data), "--json"], capture_output=True, text=True, check=True)
    assert '"orders"' in listed.stdout


def test_a_partition_that_was_added_and_never_used_is_empty_to_every_reader(cli, data):
    cli("topics", "create", data, "t")
    cli("produce", data, "t", stdin="1\n2\n3\n")
    cli("topics", "alter", data, "t", "--partitions", 2)
    assert (data / "t-1" / "partition.metadata").is_file()
    for made in (True, False):
        if not made:  # as a version has left it that made directories when they were first used
            shutil.rmtree(data / "t-1")
        assert len(cli("consume", data, "t", "-f", "jsonl").lines) == 3
        assert "reads 2 partitions of t" in cli("explain", data, "-t", "t").out
    with fl.Broker(data, create=True) as broker, fl.Producer(broker) as producer:
        producer.send("t", b"4", partition=1)
    assert len(cli("consume", data, "t", "-f", "jsonl").lines) == 4


@pytest.mark.parametrize(
    "words",
    [
        ["produce", "DIR", "t"],
        ["topics", "delete", "DIR", "t", "--yes"],
        ["topics", "alter", "DIR", "t", "-p", 2],
        ["groups", "reset", "DIR", "g", "-t", "t", "--to-earliest", "--execute"],
        ["groups", "delete", "DIR", "g", "--yes"],
        ["consume", "DIR", "t", "--group", "g"],
        ["delete-records", "DIR", "t", "--before", "now", "--yes"],
        ["clean", "DIR", "t"],
        ["retention", "DIR"],
        ["users", "remove", "DIR", "alice"],
        ["brokers", "alter", "DIR", "-c", "log.retention.ms=1"],
        ["take-over", "DIR"],
    ],
)
def test_a_mistyped_path_makes_no_directory(cli, tmp_path, words):
    typo = tmp_path / "typo"
    assert "does not exist" in cli(*(typo if word == "DIR" else word for word in words), stdin="1", code=1).err
    assert not typo.exists()


def test_a_directory_of_kafka_is_taken_over_by_a_command_of_its_own(cli, shell, data):
    cli("topics", "create", data, "t")
    (data / "fletchlog.metadata").unlink()  # what is left is a log.dir of Kafka
    for words in (["topics", "create", data, "u"], ["users", "add", data, "alice"]):
        assert f"`fletchlog take-over {data}` lets fletchlog write to it" in cli(*words, stdin="secret", code=1).err
    # A process of its own: serve takes over the log of its process.
    assert f"`fletchlog take-over {data}` lets fletchlog write to it".encode() in shell.run("serve", data).stderr
    assert cli("take-over", data, "--json").json == {"topics": ["t"]}
    cli("topics", "create", data, "u")
    assert cli("topics", "list", data, "--json").json
