"""`fletchlog consume --share-group`: what was written is accepted, the rest is released."""

import json
import subprocess
import sys

import pytest

import fletchlog as fl
from fletchlog.cli import share
from tests.support.command_line import invoke

GROUP = "billing"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with ten records, and a group that begins at the beginning."""
    monkeypatch.setattr(share, "IDLE_MS", 1)
    monkeypatch.setattr(share, "POLL_MS", 300)
    with fl.Broker(tmp_path / "data", create=True) as broker, fl.Producer(broker) as producer:
        broker.create_topic("t")
        broker.alter_group_config(GROUP, {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": 0})
        for number in range(10):
            producer.send("t", value=b"%d" % number)
    return tmp_path / "data"


def rows(*words):
    done = invoke(["consume", *words, "t", "--share-group", GROUP, "-f", "jsonl"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_records_that_were_written_are_accepted(place):
    first = rows(place, "-n", "3")
    assert [row["value"] for row in first] == ["0", "1", "2"]
    rest = rows(place)
    assert [row["value"] for row in rest] == [str(number) for number in range(3, 10)]
    assert rows(place) == []


@pytest.mark.parametrize("words", [["--group", "g"], ["-p", "0"], ["--from", "latest"], ["--from", "earliest"], ["--tail", "3"], ["--offset", "1"]])
def test_what_a_share_group_does_not_have_is_refused(place, words):
    done = invoke(["consume", place, "t", "--share-group", GROUP, *words])
    assert done.exit_code != 0
    assert "do not go together: a share group has no positions" in done.stderr


def test_a_new_group_that_gets_nothing_names_the_command_that_sets_it_back(place):
    done = invoke(["consume", place, "t", "--share-group", "new", "-f", "jsonl"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "begins at the end" in done.stderr
    (listed,) = [row for row in json.loads(invoke(["groups", "list", place, "--json"]).stdout) if row["group"] == "new"]
    assert listed["lag"] is None


def test_a_group_of_another_type_is_named_without_advice_that_contradicts_it(place):
    assert invoke(["groups", "reset", place, "classic", "-t", "t", "--to-earliest", "--execute"]).exit_code == 0
    done = invoke(["consume", place, "t", "--share-group", "classic"])
    assert done.exit_code != 0
    assert "another type" in done.stderr
    assert "groups list" not in done.stderr


def test_a_topic_that_does_not_exist_is_an_error_and_leaves_no_group(place):
    done = invoke(["consume", place, "nosuch", "--share-group", "new"])
    assert done.exit_code != 0
    assert "nosuch" in done.stderr
    assert "new" not in {row["group"] for row in json.loads(invoke(["groups", "list", place, "--json"]).stdout or "[]")}


def test_a_property_of_the_group_names_the_command_that_sets_it(place):
    done = invoke(["consume", place, "t", "--share-group", GROUP, "-c", "share.auto.offset.reset=earliest"])
    assert done.exit_code != 0
    assert "fletchlog groups alter" in done.stderr


def test_what_a_pipe_held_when_its_reader_ended_comes_again(place):
    command = [sys.executable, "-m", "fletchlog", "consume", place, "t", "--share-group", GROUP, "-f", "jsonl", "-c", "max.poll.records=5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as member:
        assert member.stdout is not None
        assert member.stdout.read(1)
        member.stdout.close()
        member.wait(60)
    assert [row["value"] for row in rows(place)] == [str(number) for number in range(10)]
