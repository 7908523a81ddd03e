"""The commands that pages show for several terminals, as somebody types them; `tests/python/test_docs.py` runs those that end by themselves."""

import contextlib
import json
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import fletchlog as fl

DOCS = Path(__file__).resolve().parents[2] / "docs" / "howto"
pytestmark = pytest.mark.timeout(240)


def commands(page):
    """The words of the commands of the first block of a console."""
    text = (DOCS / page).read_text().partition("```console\n")[2].partition("```")[0].replace("\\\n", "")
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in text.splitlines()]


class Serving:
    """`fletchlog serve` with these words, at a free port."""

    def __init__(self, shell, *words):
        self.process = shell.start(*words, "--print-address", stdout=subprocess.PIPE)

    def __enter__(self):
        return json.loads(self.process.stdout.readline())["bootstrap"]

    def __exit__(self, *error):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()


@pytest.mark.slow
def test_a_server_and_the_shell_beside_it(shell):
    (shell.folder / "orders.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    serve, *others = commands("processes.md")
    with Serving(shell, *serve[1:], "--listen", "127.0.0.1:0") as address:
        produced, consumed = (shell.run(*[word.replace("127.0.0.1:9092", address) for word in words[1:]]) for words in others)
    assert produced.stderr.decode() == f"produced 2 records to orders in kafka://{address}\n"
    assert consumed.returncode == 0
    assert consumed.stdout.count(b'{"id": ') == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="the page makes a certificate with openssl")
def test_a_listener_with_a_certificate_that_signs_itself(shell):
    *make, serve = commands("tls.md")
    # the name and the addresses of this machine
    script = "\n".join(" ".join(words) for words in make).replace("kafka.example", "localhost")
    assert shell.bash(script).returncode == 0
    (shell.folder / "client.properties").write_text("security.protocol=SSL\nssl.truststore.location=ca.pem\n")
    words = [{"0.0.0.0:9093": "127.0.0.1:0", "kafka.example": "localhost"}.get(word, word) for word in serve]
    with Serving(shell, *words[1:]) as address:
        assert address.startswith("localhost:")
        done = shell.run("topics", "create", f"kafka://{address}", "t", "--command-config", "client.properties")
        assert done.stderr + done.stdout == f"created t with 1 partition in kafka://{address}\n".encode()


def test_the_commands_for_those_who_come_from_others(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = re.findall(r"^\| `(?:kcat|kafka-)[^|]*\| `fletchlog (.*?)` \|$", (DOCS.parent / "coming-from.md").read_text(), re.MULTILINE)
    assert len(rows) == 28
    with fl.Broker("data", create=True) as broker:
        for topic in ("orders", "t"):
            broker.create_topic(topic, partitions=3)
            with fl.Producer(broker) as producer:
                producer.send_many(topic, [b"v"] * 10, partition=0)
        group = fl.Consumer(broker, {"group.id": "g", "auto.offset.reset": "earliest"})
        group.subscribe(["t"])
        group.poll()
        group.commit()
        group.close()
        copier = fl.Producer(broker, {"transactional.id": "copier"})
        copier.init_transactions()
        copier.begin_transaction()
        copier.send("orders", b"open").result()
    with contextlib.suppress(fl.errors.KafkaError):
        copier.close(0)
    # what ends by itself here; a topic that is new
    ours = {"--follow": "--follow -n 1", "create data/ t ": "create data/ new ", "F.log": "data/t-0/00000000000000000000.log"}

    def check(row, place):
        for theirs, instead in ({"kafka://h:9092": place} | ours).items():
            row = row.replace(theirs, instead)
        cli(*shlex.split(row), stdin="y\n" if "delete" in row else "k:v\n")

    for row in rows:
        check(row, "data/")
    with fl.Broker("data") as broker, broker.listen() as kafka:
        for row in rows:
            if "kafka://" in row:
                check(row, f"kafka://{kafka.bootstrap}")
