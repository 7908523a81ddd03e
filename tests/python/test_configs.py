"""The typed dicts of properties: in step with the table, and a type checker finds what is misspelt."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import typed_configs

import fletchlog as fl

USE = """
from typing import Any

import fletchlog as fl

consumer: fl.configs.ConsumerConfig = {"group.id": "g", "max.poll.records": 5, "enable.auto.commit": False}
producer: fl.configs.ProducerConfig = {"acks": 1, "linger.ms": "5", "compression.type": "zstd"}
computed: dict[str, Any] = {"group.id": "g"}
with fl.Broker("data", config=fl.configs.BrokerConfig({"num.partitions": 3})) as broker:
    broker.create_topic("t", config=fl.configs.TopicConfig({"cleanup.policy": ["compact", "delete"]}))
    fl.Consumer(broker, consumer), fl.Producer(broker, producer), fl.Consumer(broker, computed), fl.Consumer(broker, {"group.id": "g"})
"""
WRONG = {
    'one: fl.configs.ConsumerConfig = {"group_id": "g"}': "group_id",
    'two: fl.configs.ProducerConfig = {"linger.ms": 1.5}': "linger.ms",
    'three = fl.configs.TopicConfig({"retention": 1})': "retention",
    'four = fl.configs.BrokerConfig({"log.retention.ms": 1, "x": 2})': '"x"',
}


def test_they_are_in_step_with_the_property_table() -> None:
    assert typed_configs.PLACE.read_text() == typed_configs.text()
    assert set(fl.configs.ConsumerConfig.__annotations__) - {"oauth_cb"} == {key.name for key in fl.admin.config_table() if key.scope == "consumer"}


def test_a_type_checker_takes_what_is_right_and_finds_what_is_misspelt(tmp_path: pathlib.Path) -> None:
    (tmp_path / "use.py").write_text(USE + "\n".join(WRONG))
    first = USE.count("\n") + 1
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", "--follow-imports=silent", "use.py"]
    done = subprocess.run(
        mypy, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(pathlib.Path(fl.__file__).parents[1])}, capture_output=True, text=True, check=False
    )
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(errors) == len(WRONG), done.stdout + done.stderr
    for number, (line, name) in enumerate(WRONG.items(), first):
        assert any(error.startswith(f"use.py:{number}:") and name in error for error in errors), (line, errors)
