"""Arguments of any kind: a sentence and an exit code, never a traceback, and nothing is made that was not asked for."""

import contextlib
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fletchlog as fl
from tests.support.command_line import invoke

pytestmark = pytest.mark.timeout(300)

# every command that ends, with what comes before an argument that is tried
TEXTS = [
    "topics create d", "topics describe d", "topics alter d -p 2", "topics alter d t -c", "topics alter d t -d", "topics add-partitions d", "topics delete d -y",
    "consume d", "consume d t -f", "consume d t --group", "consume d t -c", "consume d t --from", "consume d t --until",
    "produce d", "produce d t --key", "produce d t -f", "produce d t -f csv --delimiter", "produce d t -f csv --encoding", "produce d t -f jsonl --value", "produce d t -f jsonl --timestamp",
    "groups describe d", "groups lag d", "groups delete d -y", "groups reset d", "groups reset d g --to-earliest --topic", "groups reset d g --topic t --to-datetime",
    "brokers alter d -c", "brokers alter d -d", "transactions abort d", "users add d", "users remove d", "users add d u --mechanism",
    "clean d", "delete-records d t -y --before", "delete-records d", "assign -m 2 -t", "assign -m 2 -t t=2 -a", "audit d --topics", "audit d --max", "explain d -t", "explain d -t t --compare",
    "export d x --topics", "copy d x --topics", "copy d x --destination-config", "config", "serve d --listen", "serve d -c", "serve d --advertised", "",
]  # fmt: skip
PLACES = [
    "topics list", "topics describe", "topics create", "consume", "produce", "groups list", "groups describe", "brokers describe", "transactions list", "users list", "clean", "retention",
    "delete-records", "audit", "explain -t t", "verify", "dump", "export", "export d", "copy", "copy d", "consume d t -o", "produce d t", "assign -m 2 -t t --dir", "explain d -t t --save",
    "explain d -t t --html", "audit d --html", "topics list d --command-config", "serve --read-only",
]  # fmt: skip
BYTES = [b"\xff", "\xfc".encode(), b"t=\xff", b"t,\xff"]
# these lack another argument, or take none but numbers and dates
REFUSED_BEFORE = {"", "topics add-partitions d", "groups reset d", "groups reset d g --topic t --to-datetime"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with fl.Broker("d", create=True) as broker:
        broker.create_topic("t", 2)
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"v")
    return tmp_path


def run(*words):
    result = invoke([str(word) for word in words], input="x\n")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in {0, 1, 2}, (words, result.exit_code, result.stderr)
    assert "Traceback" not in result.stderr
    return result


@pytest.mark.parametrize("text", [text for text in TEXTS if not text.startswith("serve")])
def test_an_argument_that_is_no_utf8_is_named(here, text):
    for data in BYTES:
        word = os.fsdecode(data)
        result = run(*text.split(), word)
        if "\udcff" in word and text not in REFUSED_BEFORE | {"explain d -t t --compare"}:
            assert result.exit_code == 2, (text, data, result.stderr)
            assert "is no text in UTF-8" in result.stderr
            assert "\\xff" in result.stderr


@pytest.mark.parametrize("place", [place for place in PLACES if not place.startswith("serve")])
def test_a_place_may_have_any_name(here, place):
    for data in (
        b"\xff",
        b"kafka://\xff:1",
        b"s3://b/\xff",
        b"file:///\xff",
        b"kafka://",
        b"s3://",
        b"file:d",
        b"a:b",
        b"~",
        b"-",
        b"d/t-0",
        b"a" * 300,
        b"d\n\x1b[2J",
    ):
        result = run(*place.split(), os.fsdecode(data), *(["t"] if place in {"consume", "produce", "clean"} else []))
        assert "\x1b" not in result.stderr
    assert not [path.name for path in here.iterdir() if path.name.startswith(("file:", "s3:", "kafka:"))]


ODD = st.one_of(
    st.sampled_from(["", " ", "-", "--", "-1", "0", "9" * 30, "1e9", "nan", "=", "a=", "=b", "a=b=c", ",", "t,", "t,t", "t=2,t=3", "\udcff", "\xfc", "\u202e", "\n", "%", "%s%", "\\", "\\x", "{}", "[", "*",
                     "t" * 300, ".", "..", "__consumer_offsets", "now", "1h", "2024-13-01", "0001-01-01", "9999-12-31T23:59:59.999999", "-99999w", "9" * 17 + "w", "all", "kip-387", "t-0", "SCRAM-SHA-256"]),
    st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8),
    st.binary(min_size=1, max_size=6).map(lambda data: os.fsdecode(data.replace(b"\x00", b""))),
    st.integers().map(str),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(begin=st.sampled_from([text for text in TEXTS + PLACES if not text.startswith("serve")]), odd=st.lists(ODD, min_size=1, max_size=3))
def test_odd_arguments_never_end_in_a_traceback(here, begin, odd):
    if begin.startswith("consume") and "--follow" in odd:
        return
    run(*begin.split(), *odd)


@pytest.mark.slow
@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_in_a_process_of_its_own(shell, locale):
    """As the operating system hands bytes over, in UTF-8 and in a locale that knows ASCII alone."""
    assert shell.run("produce", "d", "t", "--partitions", "1", input=b"1\n").returncode == 0
    environment = {**os.environ, **locale}

    def run(*words):
        done = subprocess.run([os.fsencode(word) for word in shell.words()] + list(words), cwd=shell.folder, capture_output=True, check=False, env=environment)
        return shell.check(done)

    for words in (b"topics create d", b"consume d", b"consume d t -f", b"consume d t --group", b"serve d -c", b"serve d --listen", b"brokers describe"):
        done = run(*words.split(), b"kafka://\xff:1")
        assert (done.returncode, b"is no text in UTF-8" in done.stderr) == (2, True), (words, done.stderr)
    assert run(b"consume", b"d", b"t", b"-f", "\xfc%s".encode()).stdout == "\xfc1".encode()
    assert run(b"topics", b"create", b"d", "\xfc".encode()).returncode == 1
    assert run(b"topics", b"create", "n\xfc\xff".encode("latin-1"), b"t").returncode == 0
    assert run(b"topics", b"create", "n\xfc".encode(), b"t").returncode == 0
    with contextlib.suppress(UnicodeError):
        assert {b"d", b"n\xfc\xff", "n\xfc".encode()} <= set(os.listdir(os.fsencode(shell.folder)))  # noqa: PTH208 - names that are bytes
    assert sys.getfilesystemencoding() == "utf-8"
