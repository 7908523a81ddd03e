"""`fletchlog explain` of a recorded session, and of a cluster without topics."""

import json
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from pytest_fletchlog.kafka import Kafka


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A producer with acks=0."""
    path = tmp_path_factory.mktemp("sessions") / "session.fltrace"
    with Kafka(record=path) as kafka:
        topic = kafka.topic(name="orders")
        writer = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": "writer", "acks": "0"})
        writer.produce(topic, "1")
        writer.flush(10)
    return path


def test_it_prints_findings_first(cli, session):
    out = cli("explain", session).out
    assert "requests of 1 client" in out.splitlines()[0]
    assert "1. WARNING acks-0: writer sends 1 record to orders with acks=0" in out
    assert "acks=0, enable.idempotence=false" in out


@pytest.mark.parametrize(("level", "code"), [("error", 0), ("warning", 1), ("never", 0)])
def test_the_exit_code_is_by_the_level(cli, session, level, code):
    result = cli("explain", session, "--fail-on", level, code=code)
    assert ("1 finding: acks-0" in result.err) == bool(code)


def test_it_writes_a_page_and_json(cli, session, tmp_path):
    cli("explain", session, "--html", tmp_path / "s.html", "--json", tmp_path / "s.json")
    assert "<!doctype html>" in (tmp_path / "s.html").read_text()
    assert json.loads((tmp_path / "s.json").read_text())["findings"][0]["code"] == "acks-0"


def test_follow_prints_findings_and_ends_with_the_recording(cli, session):
    assert "acks-0" in cli("explain", session, "--follow").out


@pytest.mark.slow
def test_follow_reads_a_session_that_is_being_recorded(tmp_path):
    path = tmp_path / "session.fltrace"
    with Kafka(record=path) as kafka:
        topic = kafka.topic(name="orders")
        writer = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": "writer", "acks": "0"})
        with subprocess.Popen([sys.executable, "-m", "fletchlog", "explain", path, "--follow"], stdout=subprocess.PIPE, text=True) as command:
            writer.produce(topic, "1")
            writer.flush(10)
            assert command.stdout is not None
            # the finding appears while clients are at work
            assert "acks-0" in command.stdout.readline()
            kafka.close()
            assert command.wait(20) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fail-on", "note"], "--fail-on note: give error, warning or never"),
        (["--topics", "orders"], "it takes --text, --html, --json, --follow, --fail-on and --max-poll-records"),
        (["other"], "which is explained alone: leave out other"),
    ],
)
def test_what_a_session_does_not_take_is_refused(cli, session, words, said):
    assert said in cli("explain", session, *words, code=1).err


def test_a_cluster_without_topics_shows_its_groups(cli, kafka):
    out = cli("explain", f"kafka://{kafka.bootstrap}").out
    assert "No findings" in out
    assert "A recording adds why" in out


def test_max_poll_records_is_a_positive_number(cli, session):
    assert "Polls" not in cli("explain", session, "--max-poll-records", "100").out, "no Java consumer is in it"
