"""`fletchlog copy`: what it says, and its options; what is copied is in `tests/remote`."""

import pytest

import fletchlog as fl
from tests.support.reading import numbers_of


@pytest.fixture
def places(tmp_path):
    """A directory with records 0 to 4 in topic `t`, and one that has the first three of them, from elsewhere."""
    for name, count in (("source", 5), ("destination", 3)):
        with fl.Broker(tmp_path / name, create=True) as broker:
            broker.create_topic("t")
            with fl.Producer(broker) as producer:
                for number in range(count):
                    producer.send("t", value=b"%d" % number)
    return tmp_path / "source", tmp_path / "destination"


@pytest.mark.parametrize("text", ["t", "t:0", "t:0=", "t:0=x", ":0=1", "t:-1=1", "t=1"])
def test_an_offset_to_start_at_has_a_form(cli, places, text):
    assert f"--start-offset wants TOPIC:PARTITION=OFFSET, got {text}" in cli("copy", *places, "--start-offset", text, code=1).err


def test_records_without_an_entry_are_named_with_what_to_do(cli, places):
    said = cli("copy", *places, code=1).err
    assert "topic t: the destination has records, and no entry of this source" in said
    assert ": --append; to continue" in said
    assert "source: --start-offset t:0=OFFSET" in said
    assert numbers_of(places[1]) == [0, 1, 2]
    assert "2 records copied" in cli("copy", *places, "--start-offset", "t:0=3").out
    assert "0 records copied" in cli("copy", *places).out
    assert numbers_of(places[1]) == [0, 1, 2, 3, 4]


def test_a_copy_is_made_where_nothing_is_and_the_ledger_is_not_listed(cli, places, tmp_path):
    assert "5 records copied" in cli("copy", places[0], tmp_path / "new").out
    assert "ledger" not in cli("topics", "list", tmp_path / "new").out
    assert numbers_of(tmp_path / "new") == [0, 1, 2, 3, 4]
    assert "does not exist" in cli("copy", tmp_path / "nothing", tmp_path / "new", code=1).err


def test_appending_is_asked_for_by_name(cli, places):
    assert cli("copy", *places, "--append", "--json").json == [{"topic": "t", "records": 5, "skipped": []}]
    assert numbers_of(places[1]) == [0, 1, 2, 0, 1, 2, 3, 4]
    assert cli("copy", *places, "--append", "--json").json == [{"topic": "t", "records": 0, "skipped": []}]
