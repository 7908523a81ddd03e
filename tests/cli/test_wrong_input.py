"""Whatever is given to a command, it answers with a sentence and a code, never with a traceback (the fixture `cli` raises those)."""

import json
import os
import re
import shutil

import pytest

import fletchlog as fl
from fletchlog.cli.common import CommandError, in_words_of_the_shell

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a broker's directory `d`, damaged copies of it, and what is none."""
    monkeypatch.chdir(tmp_path)
    with fl.Broker("d", create=True) as broker:
        broker.create_topic("t", 2)
        with fl.Producer(broker) as producer:
            for number in range(10):
                producer.send("t", value=b"v", partition=number % 2)
    for number, (name, content) in enumerate(
        {
            "t-0/00000000000000000000.log": b"\xff" * 100,
            "meta.properties": b"version=x\n",
            "recovery-point-offset-checkpoint": b"\xff\x00",
            "cleaner-offset-checkpoint": b"0\n1\nt 0 \xff\n",
        }.items()
    ):
        shutil.copytree("d", f"bad{number}")
        (tmp_path / f"bad{number}" / name).write_bytes(content)
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "junk.log").write_bytes(os.urandom(500))
    (tmp_path / "dir.log").mkdir()
    (tmp_path / "junk.arrow").write_bytes(b"ARROW1\0\0" + os.urandom(300))
    return tmp_path


DIRECTORIES = ["nowhere", "file", "empty", "loop", "bad0", "bad1", "bad2", "bad3", "/dev/null", "", "d/t-0", "d\n", "a" * 300, "\udcff"]


def test_advice_names_the_place_that_was_given(cli, here):
    shutil.copytree("d", "a b")
    assert "there is no topic u; `fletchlog topics create 'a b' u` makes it" in cli("consume", "a b", "u", code=1).err
    assert "there is no group g; `fletchlog groups list d` lists" in cli("groups", "describe", "d", "g", code=1).err
    assert "nowhere: does not exist; check the name" in cli("export", "nowhere", "copy", code=1).err
    with fl.Broker("d"):
        assert "to write too, let it `fletchlog serve d`, and use kafka://HOST:PORT" in cli("produce", "d", "t", stdin="v", code=1).err


@pytest.mark.parametrize("typed", ["127.0.0.1:9092", "h1:9092,h2:9092", "kafka:/h1:9092", "kafka:h1:9092"])
def test_an_address_without_its_beginning_is_no_directory(cli, here, typed):
    address = f"kafka://{typed.removeprefix('kafka:').removeprefix('/')}"
    for words in (["consume", typed, "t"], ["topics", "create", typed, "t"], ["groups", "list", typed]):
        assert f"{typed} is no directory; the address of a cluster is {address}, a directory of this name is ./{typed}" in cli(*words, code=1).err
    with pytest.raises(fl.errors.InvalidArgumentError, match=f"the address of a cluster is {address}"):
        fl.scan(typed, "t")
    assert not (here / typed).exists()
    cli("topics", "create", "./12:30", "t")
    cli("topics", "create", "12:30", "u")
    assert fl.scan("12:30", "t").to_pyarrow().num_rows == 0
    with pytest.raises(fl.errors.DirectoryError, match="nowhere: does not exist; check the name"):
        fl.scan("nowhere", "t")


# Damage that these commands do not read, and names of files that can be written. The log of bad0 is damaged below its recovery point.
READABLE = {"bad1", "bad3"}
WRITABLE = {"nowhere", "file", "/dev/null", "d\n", "\udcff"}


@pytest.mark.slow
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_directories_that_are_none_are_not_read(cli, here, directory):
    for readable, words in [
        *((READABLE | {"bad0"}, ["topics", name, directory]) for name in ("list", "describe")),
        *((READABLE, ["consume", directory, "t", "-f", form]) for form in ("table", "jsonl")),
        (READABLE, ["explain", directory, "-t", "t"]),
        (READABLE | {"bad0"}, ["assign", "-t", "t", "-m", 2, "--dir", directory]),
        (READABLE - {"bad3"}, ["audit", directory]),
        (READABLE | {"d/t-0"}, ["verify", directory]),
        (set(), ["explain", directory]),
        (set(), ["dump", directory]),
        ({"file", "/dev/null"}, ["produce", "d", "t", directory, "-f", "csv"]),
    ]:
        cli(*words, code=0 if directory in readable else 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIRECTORIES)
def test_files_are_written_where_there_is_no_directory(cli, here, name):
    for words in [
        *(["consume", "d", "t", "-f", form, "-o", name] for form in ("table", "jsonl", "parquet")),
        *(["explain", "d", "-t", "t", "--polls", 2, option, name] for option in ("--html", "--svg", "--json", "--save")),
        ["audit", "d", "--html", name],
        ["assign", "-t", "t=2", "-m", 2, "--svg", name],
    ]:
        cli(*words, code=0 if name in WRITABLE else 1)


@pytest.mark.parametrize("number", ["-1", "0", "x", "99999999999999999999", "1.5", ""])
def test_numbers_that_are_none(cli, here, number):
    for taken, words in [
        (set(), ["consume", "d", "t", "-n", number]),
        (set(), ["consume", "d", "t", "-c", f"max.poll.records={number}"]),
        (set(), ["consume", "d", "t", "-c", f"fletchlog.consumer.version={number}"]),
        ({"-1", "0"}, ["consume", "d", "t", "--from", number]),
        (set(), ["topics", "create", "d", "u", "-p", number]),
        (set(), ["topics", "create", f"new{number}", "u", "--nodes", number]),
        ({"99999999999999999999"}, ["explain", "d", "-t", "t", "--polls", number]),
        ({"0", "99999999999999999999"}, ["audit", "d", "--keys", number]),
        ({"0", "99999999999999999999", "1.5"}, ["audit", "d", "--max", f"gaps={number}"]),
        ({"0"}, ["dump", "d/t-0/00000000000000000000.log", "-n", number]),
        ({"0"}, ["assign", "-t", f"t={number}", "-m", 2]),
        (set(), ["assign", "-t", "t=3", "-m", 2, "-a", "legacy-range", "--streams", number]),
        (set(), ["produce", "d", "v", "--partitions", number]),
        ({"0"}, ["produce", "d", "t", "-c", f"linger.ms={number}"]),
    ]:
        cli(*words, stdin="1\n", code=0 if number in taken else {1, 2})
    # nothing was made by a command that was refused
    (left,) = cli("topics", "list", "d", "--json").json
    assert (left["topic"], left["partitions"], left["records"]) == ("t", 2, 11 if number == "0" else 10)


def test_files_that_are_no_segments_or_traces(cli, here):
    for words in [
        *(["dump", name, *more] for name in ("junk.log", "dir.log", "bad0/t-0/00000000000000000000.log") for more in ([], ["-r"], ["--json"])),
        ["explain", "junk.arrow"],
        ["explain", "--compare", "junk.arrow", "junk.arrow"],
        ["explain", "--producer", "junk.arrow", "--html", "x.html"],
    ]:
        cli(*words, code=1)
    assert "cleaner-offset-checkpoint is damaged" in cli("audit", "bad3", code=1).err


def test_a_time_beyond_the_year_9999_is_a_number(cli, here):
    with fl.Broker("d") as broker:
        broker.create_topic("far", config={"message.timestamp.after.max.ms": str(2**63 - 1)})
        with fl.Producer(broker) as producer:
            for time in (253402300800000, 0):
                producer.send("far", value=b"v", timestamp_ms=time)
    lines = cli("consume", "d", "far", "-f", "jsonl").lines
    assert [line["timestamp"] for line in lines] == [253402300800000, "1970-01-01T00:00:00+00:00"]
    assert "253402300800000 ms" in cli("consume", "d", "far").out
    segment = "d/far-0/00000000000000000000.log"
    assert "1970-01-01 00:00:00.000" in cli("dump", segment, "-r").out
    assert json.loads(cli("dump", segment, "-r", "--json", "-n", 1).out)["timestamp"] == 253402300800000


# words of Python that no command says
OF_PYTHON = re.compile(r"=True|=False|read_only|take_over|\w\(\)|start_offsets")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("topics list EMPTY", "EMPTY: is empty, there is nothing to read; `fletchlog topics create EMPTY TOPIC` begins a log in it"),
        ("consume EMPTY t", "`fletchlog topics create EMPTY TOPIC` begins a log in it"),
        ("take-over nowhere", "nowhere: does not exist; check the name"),
        ("consume d t -c group.id=g", "group.id is given as --group g, or --share-group"),
        ("produce d t -c transactional.id=x", "this command writes without transactions: leave out transactional.id"),
        ("land d t lake --flatten", "--flatten makes columns of decoded values: give --value or --key"),
        ("land d t lake --start-offset x:0=1", "--start-offset has topic 'x'"),
        ("topics describe d __consumer_offsets", "there is no topic __consumer_offsets yet: it is internal, and made by the first commit of a group"),
        ("consume d __transaction_state", "internal, and made by the first transaction"),
        ("produce d __share_group_state", "internal, and made by the first share group"),
        ("audit d -t __fletchlog_ledger", "internal, and made by the first copy into this place"),
        ("audit d -t ,", "--topics names no topic"),
        ("copy d d2 -t @", "--topics is empty"),
        ("consume d @", "TOPIC is empty"),
        ("produce d @", "TOPIC is empty"),
        ("topics describe d @", "TOPIC is empty"),
        ("groups describe d @", "GROUP is empty"),
        ("consume d t --group @", "--group is empty"),
        ("land d @ lake", "the name of a topic is empty"),
    ],
)
def test_messages_have_words_of_the_shell(cli, here, words, said):
    (here / "EMPTY").mkdir()
    error = cli(*("" if word == "@" else word for word in words.split()), stdin="1\n", code={1, 2}).err
    assert said in error
    assert not OF_PYTHON.search(error)
    assert "topics create d __" not in error


def test_advice_that_the_shell_does_not_have_is_left_out():
    for text, shown in [
        ("x is missing; check the name, or give create=True to make it", "x is missing; check the name"),
        ("x; open it with read_only=True", "x; commands that only read work on it"),
        (
            "to append: append=True (--append); else start_offsets={('t', 0): OFFSET} (--start-offset t:0=OFFSET)",
            "to append: --append; else --start-offset t:0=OFFSET",
        ),
        ("x; exist_ok=True accepts that", "x"),
        ("x is 7, not 8; give 8", "x is 7, not 8; give 8"),
    ]:
        assert in_words_of_the_shell(CommandError(text)) == shown


def test_what_is_not_cleaned_is_not_counted(cli, here):
    cli("topics", "create", "d", "k", "-c", "cleanup.policy=compact")
    cli("produce", "d", "k", "--key", ":", stdin="a:1\na:2\n")
    done = cli("clean", "d", "k")
    assert "1 partition is not due" in done.err
    assert "--force compacts" in done.err
    assert not re.search(r"not due[ │]*0", done.out)
    assert "--force" not in cli("clean", "d", "k", "--force").err


def test_no_value_is_cut_where_there_is_no_terminal(cli, here):
    value = "x" * 1000
    cli("produce", "d", "t", "--key", ":", stdin=f"key{value}:{value}\n")
    cli("consume", "d", "t", "--tail", 1, "-o", "o.txt", "-f", "table")
    for text in (cli("consume", "d", "t", "--tail", 1).out, (here / "o.txt").read_text()):
        assert f" {value} " in text
        assert f" key{value} " in text
        assert "…" not in text
