"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fletchlog as fl
from fletchlog import serde
from python import test_docs

README = Path(__file__).resolve().parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = test_docs.BLOCK.findall(TEXT)
SPARK = next(number for number, (_, text) in enumerate(BLOCKS) if "pyspark" in text)


@pytest.mark.parametrize("module", [fl, fl.assign, serde])
def test_examples_of_docstrings_run(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_the_readme_runs_as_typed_up_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sum(language == "python" for language, _ in BLOCKS[:SPARK]) >= 10
    test_docs.run_blocks(BLOCKS[:SPARK], "README.md", {})


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_readme_runs_as_typed_to_its_end(tmp_path: Path) -> None:
    script = "from python import test_docs, test_documentation as here; test_docs.run_blocks(here.BLOCKS, 'README.md', {})"
    search = [str(README.parent / "tests"), *filter(None, sys.path)]
    # as in an activated environment
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(search)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with fl.Broker(tmp_path / "written", read_only=True) as broker:
        assert broker.scan("orders").to_pyarrow().num_rows == 1001  # and that of the transaction


def test_the_readme_works_outside_the_repository() -> None:
    for target in re.findall(r"\]\(([^)]*)\)", TEXT):
        assert target.startswith("https://"), target
    for name in re.findall(r"`([\w/]+\.md)`", TEXT):
        assert (README.parent / name).is_file(), name


def test_the_readmes_picture_is_what_happens() -> None:
    partitions = [(topic, partition) for topic in ("orders", "payments") for partition in range(3)]
    lines = []
    with fl.Broker.in_memory(nodes=2) as broker:
        for topic in ("orders", "payments"):
            broker.create_topic(topic, partitions=3)
        with fl.Producer(broker, {"linger.ms": 60_000, "batch.size": 1_000_000}) as producer:
            for topic, partition in partitions:
                for number in range(500):
                    producer.send(topic, b"0123456789", partition=partition)
                    if number % 100 == 99:
                        producer.flush()
        for name, rule in (("Java client 4.3", {"fletchlog.consumer.version": "4.3"}), ("KIP-387", {"fletchlog.fetch.order": "kip-387"})):
            config = {"auto.offset.reset": "earliest", "max.poll.records": 50, "max.partition.fetch.bytes": 4000}
            with fl.Consumer(broker, config | rule) as consumer:
                consumer.assign(partitions)
                polls = [{run[:2] for run in consumer.poll(timeout_ms=100).runs()} for _ in range(60)]
            lines.append(name)
            for topic, partition in partitions:
                lines.append(f"  {topic}-{partition}".ljust(14) + "".join("█" if (topic, partition) in got else "·" for got in polls))
    assert ("text", "\n".join(lines) + "\n") in BLOCKS
