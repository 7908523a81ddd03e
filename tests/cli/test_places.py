"""What a place is: a directory, a URI of this machine, an object store, a cluster; the same for the command line and for Python."""

import os

import pytest

import fletchlog as fl
from fletchlog._place import CLUSTER, DIRECTORY, STORE, Place
from fletchlog.transfer import export

PLACES = {
    "data": (DIRECTORY, "data"),
    "a:b": (DIRECTORY, "a:b"),
    "C:/x": (DIRECTORY, "C:/x"),
    "./s3:/x": (DIRECTORY, "./s3:/x"),
    "12:00/x": (DIRECTORY, "12:00/x"),
    "file:///a%20b/%C3%BC": (DIRECTORY, "/a b/\xfc"),
    "file:/a#b?c": (DIRECTORY, "/a#b?c"),
    "FILE://localhost/a//b": (DIRECTORY, "/a//b"),
    "s3://b/p/hash#x/what?/100%/a b/\xfc": (STORE, "s3://b/p/hash#x/what?/100%/a b/\xfc"),
    "S3A://b": (STORE, "s3a://b"),
    "s3n://b//p": (STORE, "s3n://b//p"),
    "hdfs:///x": (STORE, "hdfs:///x"),
    "s3://b/\udcc3\udcbc": (STORE, "s3://b/\xfc"),
    "kafka://h1:9092,h2:9092": (CLUSTER, "kafka://h1:9092,h2:9092"),
    "kafka:": (CLUSTER, "kafka://"),
}
NONE = {
    "": "the name of a place is empty",
    "file:data": "a URI file: has the whole path",
    "file:": "a URI file: has the whole path",
    "file://host/data": "a URI file: names no other machine",
    "s3://": "s3://: it names no bucket; give s3://BUCKET/PREFIX",
    "s3:///x": "s3:///x: it names no bucket",
    "gs://?a=b": "gs://: it names no bucket",
    "abfs:///x": "it names no container; give abfs://CONTAINER/PREFIX",
    "s3://user:secret@/x": "s3:///x: it names no bucket",
    "s3:/b/p": "the URI of a store begins with s3:// and is no pathlib.Path",
    "s3://b/\udcff": "a URI is UTF-8",
}


@pytest.mark.parametrize("text", PLACES)
def test_what_is_named(text):
    place = Place(text)
    assert (place.kind, place.name) == PLACES[text]
    assert os.fspath(place) == place.name


@pytest.mark.parametrize("text", NONE)
def test_what_begins_as_a_uri_and_is_none(text):
    with pytest.raises(fl.errors.InvalidArgumentError) as refused:
        Place(text)
    assert NONE[text] in str(refused.value)
    assert "secret" not in str(refused.value)
    with pytest.raises(fl.errors.InvalidArgumentError):
        fl.Broker(text, read_only=True)


def names_in(folder):
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def filled(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli("produce", "d \xfc#?%", "t", "--partitions", 1, stdin="1\n2\n")
    return tmp_path / "d \xfc#?%"


def uris(path):
    return [path.as_uri(), "file:" + path.as_uri().removeprefix("file://"), "FILE://localhost" + path.as_uri().removeprefix("file://")]


def test_every_command_takes_a_uri_of_this_machine(cli, filled, tmp_path):
    before = names_in(tmp_path)
    for number, uri in enumerate(uris(filled)):
        assert [row["records"] for row in cli("topics", "list", uri, "--json").json if row["topic"] == "t"] == [2]
        assert [line["value"] for line in cli("consume", uri, "t", "-f", "jsonl").lines] == ["1", "2"]
        for words in [["topics", "describe", uri], ["groups", "list", uri], ["verify", uri], ["audit", uri], ["explain", uri, "-t", "t", "--polls", 2], ["users", "list", uri],
                      ["retention", uri], ["brokers", "describe", uri], ["assign", "-m", 2, "-t", "t", "--dir", uri], ["dump", f"{filled.as_uri()}/t-0/{0:020}.log"]]:  # fmt: skip
            cli(*words)
        cli("topics", "create", uri, f"u{number}")
        cli("topics", "create", (tmp_path / f"new{number}").as_uri(), "t")
        cli("topics", "create", (tmp_path / f"copy{number}").as_uri(), "u")
        cli("copy", uri, (tmp_path / f"copy{number}").as_uri(), "--topics", "t")
        cli("export", uri, (tmp_path / f"export{number}").as_uri())
        cli("consume", uri, "t", "-f", "jsonl", "-o", (tmp_path / f"out{number}").as_uri())
        cli("produce", uri, f"u{number}", (tmp_path / f"out{number}").as_uri(), "-f", "jsonl")
    made = {f"{name}{number}" for name in ("new", "copy", "export", "out") for number in range(3)}
    assert names_in(tmp_path) == before | made


def test_python_takes_a_uri_of_this_machine(filled, tmp_path):
    before = names_in(tmp_path)
    for uri in uris(filled):
        with fl.Broker(uri) as broker:
            assert broker.topics() == ["t"]
        assert fl.audit.run(uri).partitions[0].records == 2
    export(uris(filled)[1], "file:" + str(tmp_path / "export"))
    assert names_in(tmp_path) == before | {"export"}


@pytest.mark.parametrize("text", [text for text in NONE if "\udcff" not in text and text != "s3:/b/p"])
def test_the_command_line_makes_nothing_of_what_is_no_uri(cli, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    for words in [["topics", "list", text], ["topics", "create", text, "t"], ["verify", text], ["users", "list", text], ["export", "d", text], ["audit", text]]:
        assert NONE[text] in cli(*words, code=1).err
    for words in [
        ["consume", text, "t"],
        ["groups", "list", text],
        ["copy", text, "d"],
        ["copy", "d", text],
        ["explain", text, "-t", "t"],
    ]:
        cli(*words, code=1)
    assert names_in(tmp_path) == set()


def test_what_is_no_uri_is_not_served(shell):
    for text in ("file:data", "s3://", "kafka://h:1"):
        done = shell.run("serve", text)
        assert (done.returncode, done.stderr.count(b"fletchlog: ")) == (1, 1), done.stderr
    assert names_in(shell.folder) == set()


def test_a_directory_of_kafka_is_not_served_by_its_uri_either(shell, filled):
    (filled / "fletchlog.metadata").unlink()  # what is left is a log.dir of Kafka
    done = shell.run("serve", filled.as_uri())
    assert (done.returncode, f"`fletchlog take-over {filled}` lets fletchlog write to it" in done.stderr.decode()) == (1, True), done.stderr


def test_stores_and_clusters_are_refused_by_what_works_on_files(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for uri in ("s3://b/p", "S3://b/p", "s3n://b/p", "gs://b", "kafka://h:1", "KAFKA://h:1"):
        for words in (["verify", uri], ["users", "list", uri], ["retention", uri], ["clean", uri, "t"], ["export", uri, "x"]):
            assert "this command works on a directory" in cli(*words, code=1).err
    for words in (["topics", "create", "s3n://b/p", "t"], ["produce", "S3://b/p", "t"]):
        assert "object stores are read-only" in cli(*words, stdin="1\n", code=1).err
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize(
    "words",
    [
        "consume d t -o d/o.jsonl",
        "consume d t -f raw --follow -o d/t-0/00000000000000000000.log",
        "consume link t -o d/t-0/o.csv",
        "consume d t -o link/o.csv",
        "audit d --html d/a.html",
        "explain d -t t --html d/e.html",
        "explain d -t t --save d/e.arrow",
        "explain trace.arrow --save trace.arrow",
        "explain d -t t --svg link/e.svg",
        "assign --dir d -t t -m 2 --svg d/a.svg",
        "copy d d/sub",
        "copy d link",
        "export d link/sub",
        "land d t d/lake",
    ],
)
def test_nothing_is_written_into_what_is_read(cli, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    with fl.Broker("d", create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", b"v")
    (tmp_path / "link").symlink_to("d")
    cli("explain", "d", "-t", "t", "--save", "trace.arrow")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = cli(*words.split(), code=1).err
    assert "; give another " in said or "source and destination are the same" in said
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
