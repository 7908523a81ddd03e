"""Produce, Fetch and ListOffsets requests that were sent to a real Kafka 4.3.1, sent to a listener: the answers are equal.

The same vectors are asked of the engine in rust/log and rust/broker, and of the public API in tests/acceptance; over the wire are also
what only a request has (acks, versions, CreateTopics with `internal.segment.bytes`) and what depends on the present: those timestamps
are moved to now.
"""

import base64
import json
import re
import struct
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.batches import batch, batch_of, crc32c, record
from tests.support.wire_client import Closed, WireClient

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def vectors(name):
    """A recording."""
    return json.loads((GOLDEN / f"{name}-vectors.json").read_text())


PRODUCE, LOOKUPS, FETCHES = (vectors(name) for name in ("produce", "list-offsets", "fetch"))

INVALID_RECORD = 87


class Client(WireClient):
    """A connection with the requests of these vectors."""

    def create(self, topic, config):
        """A topic of one partition."""
        configs = [{"Name": name, "Value": str(value)} for name, value in config.items()]
        body = {
            "Topics": [{"Name": topic, "NumPartitions": 1, "ReplicationFactor": 1, "Assignments": [], "Configs": configs}],
            "timeoutMs": 5000,
            "validateOnly": False,
        }
        (created,) = self.ask("CreateTopics", 7, body)["Topics"]
        assert created["ErrorCode"] == 0, created

    def delete_records(self, topic, offset):
        """Those in front of an offset; -1: all."""
        body = {"Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": offset}]}], "TimeoutMs": 5000}
        assert self.ask("DeleteRecords", 2, body)["Topics"][0]["Partitions"][0]["ErrorCode"] == 0

    def produce(self, topic, records, acks=-1, version=9, wait=20):
        """What the one partition of the answer says; None: there is no answer."""
        partition = {"Index": 0, "Records": None if records is None else records.hex()}
        body = {"Acks": acks, "TimeoutMs": 5000, "TopicData": [{"Name": topic, "PartitionData": [partition]}]}
        if version >= 3:
            body["TransactionalId"] = None
        answer = self.ask("Produce", version, body, wait)
        return answer and answer["Responses"][0]["PartitionResponses"][0]


@pytest.fixture
def served(kafka_cluster):
    """A broker with a listener, and a connection to it."""
    kafka = kafka_cluster(nodes=1, config={"fletchlog.request.read.timeout.ms": "600000"})
    client = Client(kafka.bootstrap)
    yield kafka, client
    client.wire.drop()


def first_time(records):
    """The timestamp of a batch's first record."""
    return struct.unpack_from(">q", records, 27)[0]


def moved(records, by_ms):
    """A batch whose times are so much later; one without a time, or with a wrong CRC, stays so."""
    end = 12 + struct.unpack_from(">i", records, 8)[0]
    crc_holds = struct.unpack_from(">I", records, 17)[0] == crc32c(records[21:end])
    moved = bytearray(records)
    struct.pack_into(">qq", moved, 27, *(t + by_ms if t > 10**12 else t for t in struct.unpack_from(">qq", records, 27)))
    if crc_holds:
        struct.pack_into(">I", moved, 17, crc32c(bytes(moved[21:end])))
    return bytes(moved)


def recorded_at(case):
    """When a case was recorded: its batches that are of that moment say so."""
    steps = [step for step in case["steps"] if isinstance(step, dict)]
    nows = (first_time(bytes.fromhex(step["recordsHex"])) for step in steps if (step.get("batch") or {}).get("ts") == "now+0")
    return next(nows, PRODUCE["T"])


def text(value):
    """An error's text without the times of the moment."""
    return value and re.sub(r"-?\d{13,}", "TIME", value)


def produced(answer, offset, time_ms):
    """An answer, or a recorded one, in one form: offsets as they were recorded, times as they are now."""
    recorded = "error" in answer
    names = ("error", "baseOffset", "logAppendTime", "logStartOffset", "recordErrors", "errorMessage")
    own = ("ErrorCode", "BaseOffset", "LogAppendTimeMs", "LogStartOffset", "RecordErrors", "ErrorMessage")
    code, base, append_time, start, errors, message = (answer.get(name) for name in (names if recorded else own))
    if not recorded:
        errors = errors and [[e["BatchIndex"], e["BatchIndexErrorMessage"]] for e in errors]
        base += offset if base >= 0 else 0
        append_time -= time_ms if append_time > 0 else 0
    return code, base, append_time, start, [[index, text(why)] for index, why in errors or []], text(message)


def topics():
    """Topics of the produce vectors in order; cases of one topic follow each other on the same partition."""
    return list(dict.fromkeys(case["topic"] for case in PRODUCE["cases"]))


@pytest.mark.parametrize("topic", topics())
def test_batches_are_answered_as_kafka_answered_them(served, topic):
    _, client = served
    cases = [case for case in PRODUCE["cases"] if case["topic"] == topic]
    client.create(topic, cases[0]["config"])
    different, compared, behind = [], 0, 0
    for case in cases:
        by_ms = int(time.time() * 1000) - recorded_at(case)
        for step in case["steps"]:
            if not isinstance(step, dict):
                # A request of two partitions, of which only the answers were recorded.
                continue
            if step["op"] == "acks0":
                # No answer says what it appended; the test below asks for it.
                behind += step["leo"][1] - step["leo"][0]
                continue
            wanted, note = step["outcome"], step.get("note")
            records = None if step["recordsHex"] is None else bytes.fromhex(step["recordsHex"])
            if records and len(records) > 61 and records[16] == 2:
                records = moved(records, by_ms)
            try:
                answer = client.produce(topic, records, step["acks"], step["produceVersion"])
            except Closed:
                answer = {"connectionClosed": True}
            compared += 1
            if wanted == {"noResponse": True}:
                # Kafka never answers a batch that is null.
                if answer["ErrorCode"] != INVALID_RECORD:
                    different.append((case["name"], note, answer, wanted))
                continue
            if case["name"] == "counts" and wanted["error"] == 0 and answer["ErrorCode"] == INVALID_RECORD:
                # Kafka stores records whose offset deltas are not 0, 1, 2, .. if they are not compressed; here they are refused.
                behind += step["leoAfter"] - step["leoBefore"]
                continue
            if "error" not in wanted or "ErrorCode" not in answer:
                if answer != wanted:
                    different.append((case["name"], note, answer, wanted))
                continue
            got, expected = produced(answer, behind, by_ms), produced(wanted, 0, 0)
            if got != expected:
                different.append((case["name"], note, got, expected))
    assert not different, "\n".join(map(str, different))
    assert compared > 0


def test_without_acknowledgement_there_is_no_answer_and_a_refusal_closes_the_connection(served):
    kafka, client = served
    client.create("t", {})
    good = batch([record(0, b"v")])
    assert client.produce("t", good, acks=0, wait=0.3) is None
    assert client.produce("t", good)["BaseOffset"] == 1
    with pytest.raises(Closed):
        client.produce("t", good[:-1] + b"\xff", acks=0)
    assert kafka.records("t").num_rows == 2


def looked_up(client, topic, lookup):
    """Error, timestamp, offset and leader epoch, as far as the version has them."""
    partition = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": lookup["target"]}
    body = {"ReplicaId": -1, "IsolationLevel": lookup["isolation"], "TimeoutMs": 5000, "Topics": [{"Name": topic, "Partitions": [partition]}]}
    (answer,) = client.ask("ListOffsets", lookup["version"], body)["Topics"][0]["Partitions"]
    found = {"error": answer["ErrorCode"], "timestamp": answer["Timestamp"], "offset": answer["Offset"], "leaderEpoch": answer.get("LeaderEpoch")}
    return {name: found[name] for name in lookup["outcome"]}


def batch_at(times):
    """A batch of a record for each time; -1: none."""
    first = times[0]
    return batch([record(i, b"v", timestamp_delta=t - first) for i, t in enumerate(times)], timestamp=first, max_timestamp=max(times))


@pytest.mark.parametrize("case", [case for case in LOOKUPS["cases"] if "lookups" in case], ids=lambda case: case["name"])
def test_lookups_by_time_are_answered_as_kafka_answered_them(served, case):
    kafka, client = served
    topic, b = case["topic"], int(LOOKUPS["b"])
    client.create(topic, {"message.timestamp.after.max.ms": 10**15, **case["config"]})
    transaction = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "open"})

    def append(times):
        assert client.produce(topic, batch_at(times))["ErrorCode"] == 0

    if isinstance(case["batches"], str):
        append([b])
        transaction.init_transactions(10)
        transaction.begin_transaction()
        transaction.produce(topic, b"v", timestamp=b + 10)
        assert transaction.flush(10) == 0
        append([b + 20])
    else:
        batches = list(case["batches"])
        late = batches[1:] if "without timestamp" in case["name"] else []
        for times in batches[: len(batches) - len(late)]:
            append(times)
    if "deleteRecords" in case:
        client.delete_records(topic, case["deleteRecords"]["low"])
    different = []
    for n, lookup in enumerate(case["lookups"]):
        if lookup == "deleteRecords(-1)":
            client.delete_records(topic, -1)
        elif lookup == "append ts b+7 at 6":
            append([b + 7])
        elif lookup == "commit":
            transaction.commit_transaction(10)
        else:
            if "without timestamp" in case["name"] and n == 4:
                append(late[0])
            got, outcome = looked_up(client, topic, lookup), dict(lookup["outcome"])
            if outcome["timestamp"] > b + 10**6:
                # The time of the marker, which was then.
                assert got["timestamp"] > b
                got["timestamp"] = outcome["timestamp"]
            if got != outcome:
                different.append((lookup, got))
    assert not different, "\n".join(map(str, different))


def grow(client, kafka, topic, end):
    """Appends the recorded batches until the log ends there."""
    log_end = kafka.broker.describe_topic(topic).partitions[0].high_watermark
    offset = 0
    for layout in FETCHES["layouts"][topic]:
        if offset >= log_end and offset < end:
            built = batch_of(layout["last"] - layout["base"] + 1, layout["size"])
            assert client.produce(topic, built)["ErrorCode"] == 0
        offset = layout["last"] + 1


def fetched(partition):
    """A partition of an answer as it was recorded."""
    records = partition["Records"] or []
    whole = [r for r in records if "partialOrOld" not in r]
    cut = sum(len(r["partialOrOld"]) // 2 for r in records if "partialOrOld" in r)
    sizes = sum(12 + r["batchLength"] for r in whole)
    return {
        "error": partition["ErrorCode"],
        "hw": partition["HighWatermark"],
        "lso": partition["LastStableOffset"],
        "logStart": partition.get("LogStartOffset"),
        "bytes": sizes + cut,
        "firstBase": whole[0]["baseOffset"] if whole else None,
        "wholeBatches": len(whole),
        "lastOffset": whole[-1]["baseOffset"] + whole[-1]["lastOffsetDelta"] if whole else None,
        "partialBytes": cut,
        "aborted": partition["AbortedTransactions"],
    }


def test_fetches_are_answered_as_kafka_answered_them(served):
    kafka, client = served
    ids, sessions, compared = {}, {0: 0}, 0
    for case in FETCHES["cases"]:
        for step in case["steps"]:
            if "op" not in step:
                continue
            if step.get("outcome") == "connection closed":
                with pytest.raises(Closed):
                    client.wire.send(struct.pack(">hhih", 1, step["version"], 1, -1))
                    client.wire.receive()
                compared += 1
                continue
            for partition in step["partitions"] + step["response"]:
                if partition["topic"] not in ids:
                    client.create(partition["topic"], {"internal.segment.bytes": 500} if partition["topic"] == "fseg-b" else {})
                    ids[partition["topic"]] = base64.urlsafe_b64decode(kafka.broker.describe_topic(partition["topic"]).topic_id + "==").hex()
                if (partition.get("hw") or -1) >= 0:
                    grow(client, kafka, partition["topic"], partition["hw"])
            args, note = step["args"], step.get("note") or ""
            epoch = {"current": 0, "too new": 9}.get(note, -1)
            last = re.match(r"lastFetchedEpoch (\d+)", note)
            asked = [
                {
                    "Topic": p["topic"],
                    "TopicId": ids[p["topic"]],
                    "Partitions": [
                        {
                            "Partition": 0,
                            "CurrentLeaderEpoch": epoch,
                            "FetchOffset": p["offset"],
                            "LastFetchedEpoch": int(last[1]) if last else -1,
                            "LogStartOffset": -1,
                            "PartitionMaxBytes": p["partitionMaxBytes"],
                        }
                    ],
                }
                for p in step["partitions"]
            ]
            body = {
                "ReplicaId": -1,
                "MaxWaitMs": 0,
                "MinBytes": 1,
                "MaxBytes": args.get("max_bytes", 52_428_800),
                "IsolationLevel": 0,
                "SessionId": sessions.get(args.get("sid", 0), 1_000_000),
                "SessionEpoch": args.get("sep", -1),
                "Topics": asked,
                "ForgottenTopicsData": [{"Topic": topic, "TopicId": ids[topic], "Partitions": [0]} for topic, *_ in args.get("forget", [])],
                "RackId": "",
            }
            answer = client.ask("Fetch", args.get("ver", 11), body)
            got = [
                {"topic": t.get("Topic") or next(n for n, i in ids.items() if i == t["TopicId"])} | fetched(p)
                for t in answer["Responses"]
                for p in t["Partitions"]
            ]
            wanted = step["response"]
            for one, other in zip(got, wanted, strict=False):
                one["logStart"] = one["logStart"] if other["logStart"] is not None else None
            assert got == wanted, (case["name"], step)
            if step["error"] is not None:
                assert answer["ErrorCode"] == step["error"], (case["name"], step)
            if step["session"] is not None:
                assert sessions.setdefault(step["session"], answer["SessionId"]) == answer["SessionId"], (case["name"], step)
            compared += 1
    assert compared == sum("op" in step for case in FETCHES["cases"] for step in case["steps"])
