"""Clients from the package registries use a broker over TCP as if it were Kafka, each in a process of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fletchlog as fl
from tests.support.waiting import until

CLIENTS = Path(__file__).parent / "clients"


def run(client, bootstrap):
    """What a client saw."""
    done = subprocess.run([sys.executable, CLIENTS / client, bootstrap], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, f"{client} failed:\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def check_order(kafka, saw, count):
    """Every record was acknowledged once, is in the log there, and was read in the log's order."""
    table = kafka.records("orders").to_pylist()
    log = {(row["partition"], row["offset"]): int(row["value"]) for row in table}
    assert len(saw["reports"]) == len({tuple(report) for report in saw["reports"]}) == count
    assert sorted(log[tuple(report)] for report in saw["reports"]) == list(range(count))
    for partition, values in saw["before"].items():
        of_partition = [value for (p, _), value in sorted(log.items()) if p == int(partition) and value >= 0]
        assert values == of_partition
    assert sum(map(len, saw["before"].values())) == count


@pytest.mark.timeout(120)
def test_confluent_kafka_administers_produces_consumes_in_groups_and_in_transactions(kafka):
    saw = run("confluent.py", kafka.bootstrap)
    check_order(kafka, saw, 100)
    assert saw["policy"] == "compact"
    assert sorted(saw["shared"][0] + saw["shared"][1]) == [0, 1, 2]
    assert saw["committed"] == {partition: len(values) for partition, values in saw["before"].items()}
    assert [value for values in saw["seen"].values() for value in values] == [1]
    assert saw["groups"] == ["committed", "readers of orders"]
    assert saw["topics"] == ["orders"]


@pytest.mark.timeout(120)
def test_kafka_python_administers_produces_consumes_in_groups_and_in_transactions(kafka):
    saw = run("kafka_python.py", kafka.bootstrap)
    check_order(kafka, saw, 100)
    assert saw["committed"] == saw["ends"] == {partition: len(values) for partition, values in saw["before"].items()}
    for partition, offset in saw["times"].items():
        values = saw["before"][partition]
        assert values[offset] >= 50 > max(values[:offset], default=0)
    assert sorted(saw["shared"][0] + saw["shared"][1]) == [0, 1, 2]
    assert [value for values in saw["seen"].values() for value in values] == [1]


@pytest.mark.timeout(120)
def test_aiokafka_administers_produces_in_transactions_and_consumes_in_a_group(kafka):
    saw = run("aiokafka_client.py", kafka.bootstrap)
    check_order(kafka, saw, 50)
    assert sorted(saw["shared"][0] + saw["shared"][1]) == [0, 1, 2]
    # The aborted record and the markers of both transactions are in the log, too.
    assert sum(saw["committed"].values()) >= 50
    assert (saw["partitions"], saw["policies"], saw["brokers"]) == (2, ["compact"], 1)
    assert (saw["groups"], saw["topics"]) == (["readers"], ["orders"])


@pytest.mark.parametrize("config", [{}, {"group.protocol": "consumer"}, {"group.instance.id": "i"}, None], ids=["classic", "consumer", "static", "share"])
def test_an_own_client_without_client_id_has_one_name_in_all_its_requests(kafka, config):
    topic = kafka.topic()
    place = f"kafka://{kafka.bootstrap}"
    with fl.Producer(place) as producer:
        producer.send(topic, b"1").result()
    with fl.Producer(place, {"transactional.id": "t"}) as producer:
        producer.init_transactions()
    if config is None:
        kafka.broker.alter_group_config("g", {"share.auto.offset.reset": "earliest"})
        reader = fl.ShareConsumer(place, {"group.id": "g"})
    else:
        reader = fl.Consumer(place, {"group.id": "g", "auto.offset.reset": "earliest"} | config)
    with reader:
        reader.subscribe([topic])
        assert until(lambda: len(reader.poll(timeout_ms=50)) == 1)
    requests = kafka.requests()
    names = {(request.connection, request.client_id) for request in requests}
    assert len(names) == len({request.connection for request in requests}), "a connection is of one client"
    first, transactional, group = dict.fromkeys(request.client_id for request in requests)
    assert re.fullmatch(r"producer-\d+", first)
    assert transactional == "producer-t"
    assert re.fullmatch(r"consumer-g-i" if config and "group.instance.id" in config else r"consumer-g-\d+", group)
