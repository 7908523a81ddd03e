"""What others wrote (keys, values, paths) is shown and not obeyed; pipes, full disks and Ctrl-C end a command in order."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

import fletchlog as fl
from fletchlog.cli.text import note_log

# many processes, each of which starts an interpreter
pytestmark = pytest.mark.timeout(180)

NASTY = b"[/x] [red]r[/red] [link=file:///]l[/link] :smile: \x1b]0;title\x07 \x1b[2J \xc2\x9b31m \r \x7f \xe2\x80\xae"
# what we send to a terminal: colours and bold, a bar that comes and goes, the cursor
OURS = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\x1b\[2K|\x1b\[1A|\r")


@pytest.fixture
def nasty(tmp_path):
    """A directory whose name and records want to be more than text."""
    path = tmp_path / os.fsdecode(b"d[/x]\xff")
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t", 2)
        with fl.Producer(broker) as producer:
            for partition in (0, 1):
                for step in range(2):
                    producer.send("t", key=NASTY, value=NASTY, partition=partition, timestamp_ms=1000 - step, headers=[("[/h]\x1b", NASTY)])
    return path


COMMANDS = [
    ["audit", "{d}"],
    ["audit", "{d}", "--json"],
    ["audit", "{d}", "--html", "audit.html"],
    ["audit", "{d}", "--max", "duplicate_keys=0"],
    ["dump", "{d}/t-0/00000000000000000000.log"],
    ["dump", "{d}/t-0/00000000000000000000.log", "--records"],
    ["dump", "{d}/t-0/00000000000000000000.log", "--records", "--json"],
    ["consume", "{d}", "t"],
    ["consume", "{d}", "t", "-f", "jsonl"],
    *(["consume", "{d}", "t", "-f", form] for form in ("json", "csv", "raw", "%t %k %h %s")),
    ["consume", "{d}", "t", "-f", "jsonl", "-o", "o.jsonl"],
    ["consume", "{d}", "t", "-f", "parquet", "-o", "o.parquet"],
    ["consume", "{d}", "t[/x]\x1b"],
    ["explain", "{d}", "--topics", "t"],
    ["explain", "{d}", "--topics", "t", "--html", "e.html", "--save", "e.arrow", "--svg", "e.svg", "--json", "e.json"],
    ["explain", "{d}", "--topics", "t", "--compare", "all", "--polls", "3"],
    ["topics", "create", "{d}", "u"],
    ["topics", "create", "{d}", "[/x]"],
    ["topics", "list", "{d}"],
    ["topics", "describe", "{d}"],
    ["topics", "delete", "{d}", "u[/x]", "--yes"],
    ["groups", "list", "{d}"],
    ["groups", "reset", "{d}", "g[/x]\x1b", "--topic", "t", "--to-earliest", "--execute"],
    ["groups", "describe", "{d}", "g[/x]\x1b"],
    ["groups", "delete", "{d}", "g[/x]\x1b", "--yes"],
    ["verify", "{d}"],
    ["verify", "{d}", "--json"],
    ["assign", "-t", "a[/x]=3", "-m", "m[/x]\x1b,[red]n", "--join", "[/z]", "--svg", "a.svg"],
    ["produce", "{d}", "t", "/dev/null"],
    ["config", "[/x]\x1b"],
]


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words).encode("unicode_escape").decode())
def test_what_others_wrote_is_neither_markup_nor_an_escape_sequence(shell, nasty, words):
    words = [word.replace("{d}", str(nasty)) for word in words]
    done = shell.run(*words)
    assert done.returncode in {0, 1}, done.stderr.decode()
    said, code = shell.terminal(*words)
    assert code in {0, done.returncode} | ({1} if "create" in words else set())
    left = OURS.sub(b"", said).decode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", left), left


def test_keys_values_and_headers_are_shown_as_they_are(shell, nasty):
    shown = shell.run("consume", nasty, "t", "-n", 1, "-f", "jsonl").stdout
    row = json.loads(shown)
    assert (row["key"].encode(), row["value"].encode()) == (NASTY, NASTY)
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2\x9b|\xe2\x80\xae", shown)
    for words in (["consume", nasty, "t"], ["dump", nasty / "t-0/00000000000000000000.log", "--records"], ["audit", nasty]):
        said = shell.run(*words).stdout.decode()
        assert all(part in said for part in ("[/x]", "[red]r[/red]"))
        assert words[0] == "audit" or re.search(r"\\x1b|\\x07|\\u202e", said)
    assert (
        r"d[/x]\xff holds no topic"
        in shell.bash(r"""mkdir x; cd x; d=$'d[/x]\xff'; fletchlog topics create "$d" t; fletchlog topics delete "$d" t --yes
        fletchlog topics list "$d" """).stdout.decode()
    )
    for name, made in (("audit.html", ["audit", nasty]), ("explain.html", ["explain", nasty, "-t", "t"])):
        shell.run(*made, "--html", name)
        text = (shell.folder / name).read_text()
        assert re.search(r"d\[/x\]\\+xff", text)


@pytest.fixture
def many(shell):
    shell.bash("seq 5000 | fletchlog produce d t --partitions 1")
    return shell


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_every_command_quietly(many):
    commands = [
        "config", "--help", "consume --help", "config --json", "consume d t -n 5000", "consume d t -f jsonl", "consume d t -f jsonl -o /dev/stdout",
        "explain d -t t --full", "verify d --json", "audit d", "topics list d", "dump d/t-0/00000000000000000000.log -r -n 0 --json", "--version",
    ]  # fmt: skip
    for words in commands:
        done = many.bash(f"fletchlog {words} | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}; fletchlog {words} | true; echo ${{PIPESTATUS[0]}}")
        assert (words, done.stdout, done.stderr) == (words, b"0\n0\n", b"")
    assert many.bash("fletchlog topics list nowhere | true; exit ${PIPESTATUS[0]}").returncode == 1


def test_standard_streams_that_are_full_or_closed_are_named(many):
    for words in ("topics list d", "config --json", "consume d t", "consume d t -f jsonl", "verify d --json", "explain d -t t", "--help", "--version"):
        full = many.bash(f"fletchlog {words} >/dev/full")
        assert (words, full.returncode) == (words, 1)
        assert full.stderr == b"fletchlog: standard output: No space left on device\n"
        closed = many.bash(f"fletchlog {words} >&-")
        assert (words, closed.returncode) == (words, 1)
        assert b"standard output is closed" in closed.stderr
    assert b"standard input is closed" in many.bash("fletchlog produce d t <&-").stderr
    assert many.bash("fletchlog topics list d 2>&- && fletchlog topics list nowhere 2>&-").returncode == 1
    # no file of the broker got the number of the closed stream
    assert many.bash("echo 1 | fletchlog produce d t 2>&- && fletchlog verify d").returncode == 0


def test_a_line_of_the_log_that_comes_again_and_again_is_counted(capsys):
    for line in ["a"] * 101 + ["b", "a"]:
        note_log(line)
    assert capsys.readouterr().err.splitlines() == ["fletchlog: a", "fletchlog: a (10 times)", "fletchlog: a (100 times)", "fletchlog: b", "fletchlog: a"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_control_c_is_quiet_whenever_it_comes(many):
    """From the first import on; what the interpreter does before that is its own."""
    for words in (["audit", "d"], ["consume", "d", "t", "--follow", "-f", "jsonl"]):
        for wait in [step / 12 for step in range(1, 15)]:
            process = many.start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            started(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
            assert said in {b"", b"interrupted\n"}, (wait, said.decode())
            # an interpreter that ends gives SIGINT back to the system, which a shell shows as 130, too
            assert process.returncode in {0, 130, -signal.SIGINT}, wait


def started(process):
    """Waits until the process has taken SIGINT over."""
    caught = re.compile(r"^SigCgt:\s*([0-9a-f]+)$", re.MULTILINE)
    while process.poll() is None:
        with contextlib.suppress(OSError):
            mask = int(caught.search(Path(f"/proc/{process.pid}/status").read_text())[1], 16)
            # SIGALRM is taken after SIGINT, and by nobody else
            if mask >> (signal.SIGALRM - 1) & 1:
                return
        time.sleep(0.001)


def test_a_job_in_the_background_of_a_script_ignores_control_c(many):
    script = "trap '' INT; fletchlog consume d t -f jsonl | { read -r line; echo \"$line\"; kill -INT 0; cat; } | wc -l"
    assert many.bash(script, start_new_session=True).stdout == b"5000\n"
