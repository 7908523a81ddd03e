"""Produce and lookup answers of a real broker, asked of ours through the public API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from tests.support.batches import batch, record

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
PRODUCE = json.loads((GOLDEN / "produce-vectors.json").read_text())


def topics() -> list[str]:
    """Topics of the produce vectors in order; cases of one topic follow each other on the same partition."""
    return list(dict.fromkeys(case["topic"] for case in PRODUCE["cases"]))


# Where ours answers differently on purpose (spec 2.2 "ours:", 2.1): a defect of Kafka's request handler.
OURS = {-1: 87}


# Cases whose answer depends on the recording's clock, which the public API does not set (they are tested in rust/log).
CLOCK = {"timestamp limits before.max=100000 after.max=50000", "default timestamp limits on 4.3.1"}


@pytest.mark.parametrize("topic", topics())
def test_append_batches_answers_what_a_real_broker_answered(topic: str) -> None:
    cases = [case for case in PRODUCE["cases"] if case["topic"] == topic]
    differences: list[Any] = []
    asked = refused = skipped = 0
    with fl.Broker.in_memory() as broker:
        broker.create_topic(topic, partitions=1, config=cases[0]["config"])
        for case in cases:
            for number, step in enumerate(case["steps"]):
                if not isinstance(step, dict):  # two partitions in one request
                    continue
                wanted = step.get("outcome")
                plain = step["op"] == "produce" and step.get("acks") in (-1, 1) and isinstance(wanted, dict)
                old_version = step.get("note", "").startswith("zstd with produce v")
                if not plain or "error" not in wanted or case["name"] in CLOCK or old_version:
                    # Not asked here; what the recorded broker appended for it is missing from our log.
                    skipped += step["leoAfter"] - step["leoBefore"] if "leoAfter" in step else len(step.get("leo", [0])) - 1
                    continue
                asked += 1
                try:
                    base, _, _ = broker.append_batches(topic, 0, bytes.fromhex(step["recordsHex"] or ""))
                    got = (0, base)
                except fl.errors.KafkaError as error:
                    got = (error.code, -1)
                expected = (wanted["error"], wanted["baseOffset"] - refused - skipped if wanted["error"] == 0 else -1)
                if case["name"] == "counts" and wanted["error"] == 0 and got == (87, -1):
                    # Kafka stores uncompressed offset deltas other than 0, 1, 2, ..; ours refuses them (spec 2.2).
                    refused += step["leoAfter"] - step["leoBefore"]
                    continue
                if got != expected and not (expected[0] in OURS and got == (OURS[expected[0]], -1)):
                    differences.append((case["name"], number, step.get("note"), got, expected))
    assert not differences
    assert refused <= 8
    assert asked > 0 or all(case["name"] in CLOCK for case in cases)


LOOKUPS = json.loads((GOLDEN / "list-offsets-vectors.json").read_text())


def of_plain_timestamps(case: dict[str, Any]) -> bool:
    """Whether the layout is a list of batches, each a list of timestamps (rust/log replays the others)."""
    batches = case.get("batches")
    return bool(batches) and all(isinstance(b, list) and all(isinstance(t, int) for t in b) for b in batches)


@pytest.mark.parametrize("case", list(filter(of_plain_timestamps, LOOKUPS["cases"])), ids=lambda case: case["name"])
def test_offsets_for_times_answers_what_a_real_broker_answered(case: dict[str, Any]) -> None:
    batches = case["batches"]
    config = {name.removeprefix("internal."): value for name, value in case.get("config", {}).items()}
    with fl.Broker.in_memory() as broker:
        broker.create_topic(case["topic"], partitions=1, config=config)
        for times in batches:
            built = batch(
                [record(i, b"v", timestamp_delta=t - times[0]) for i, t in enumerate(times)],
                timestamp=times[0],
                max_timestamp=max(times),
            )
            broker.append_batches(case["topic"], 0, built)
        tp = fl.TopicPartition(case["topic"], 0)
        if "deleteRecords" in case:
            broker.delete_records(case["topic"], 0, case["deleteRecords"]["low"])
        consumer = fl.Consumer(broker, {})
        differences = []
        # The first four of this case were asked before its second batch came; rust/log replays them in that order.
        first = 4 if "without timestamp" in case["name"] else 0
        for lookup in case["lookups"][first:]:
            if isinstance(lookup, str):  # a second deletion, up to the end: what follows is replayed in rust/log
                break
            outcome = lookup["outcome"]
            if lookup["target"] < 0 or lookup["isolation"] != 0 or outcome.get("error"):
                continue
            found = consumer.offsets_for_times({tp: lookup["target"]})[tp]
            got = (-1, -1) if found is None else (found.offset, found.timestamp)
            if got != (outcome["offset"], outcome["timestamp"]):
                differences.append((lookup["target"], got, outcome))
        assert not differences
