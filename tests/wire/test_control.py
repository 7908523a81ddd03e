"""The control interface of `fletchlog serve`: faults, requests and time over HTTP."""

import http.client
import json
import threading
import time
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer

import fletchlog as fl
from tests.wire.test_serve import FLETCHLOG, end, serve

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def served():
    """The process, its bootstrap servers and its control interface."""
    process, bootstrap = serve("--memory", "--auto-create", 1, "--nodes", 2, "--control", "127.0.0.1:0")
    for line in process.stderr:
        if "controlled at" in line:
            url = line.partition("controlled at ")[2].partition(";")[0]
            break
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)) as control:
        yield bootstrap, control
    assert end(process) == 0


def call(control, method, path, body=None, headers=JSON):
    """Status and body of an answer."""
    control.request(method, path, None if body is None else json.dumps(body), headers)
    response = control.getresponse()
    return response.status, json.loads(response.read())


def sent(bootstrap, value):
    """The errors of one record that is sent."""
    errors = []
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "writer", "retry.backoff.ms": 5})
    producer.produce("orders", value, partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    return errors


def test_a_test_in_any_language_scripts_faults_and_sees_the_requests(served):
    bootstrap, control = served
    assert call(control, "GET", "/v1") == (200, {"version": 1, "bootstrap": bootstrap, "nodes": [1, 2]})
    plan = {"rules": [{"api": "Produce", "nth": 1, "error": "NOT_ENOUGH_REPLICAS", "name": "first"}, {"api": "Produce", "nth": 3, "hold": True}]}
    assert call(control, "POST", "/v1/faults", plan) == (200, {"rules": [1, 2]})
    assert sent(bootstrap, b"1") == [None]
    held = threading.Thread(target=sent, args=(bootstrap, b"2"))
    held.start()
    assert call(control, "POST", "/v1/faults/2/wait", {"timeout": 15}) == (200, {})
    _, report = call(control, "GET", "/v1/faults")
    assert [(rule["number"], rule["matched"], rule["applied"], rule["held"]) for rule in report["rules"]] == [(1, 3, 1, 0), (2, 3, 1, 1)]
    assert call(control, "POST", "/v1/faults/2/release") == (200, {})
    held.join()
    _, found = call(control, "GET", "/v1/requests?api=Produce&client_id=wri*&topic=orders&partition=0")
    assert [(row["outcome"], row["errors"], row["fault"] and row["fault"][:5]) for row in found["requests"]] == [
        ("answered", ["NOT_ENOUGH_REPLICAS"], "first"),
        ("answered", [], None),
        ("answered", [], '{"api'),
    ]
    _, found = call(control, "GET", "/v1/requests?api=Produce&api=Metadata")
    assert {row["api"] for row in found["requests"]} == {"Produce", "Metadata"}
    assert call(control, "GET", "/v1/requests?api=Produce&topic=") == (200, {"requests": []})
    assert call(control, "DELETE", "/v1/faults") == (200, {})
    assert call(control, "DELETE", "/v1/requests") == (200, {})
    assert call(control, "GET", "/v1/requests") == (200, {"requests": []})


def test_time_is_set(served):
    _, control = served
    assert call(control, "POST", "/v1/clock/freeze") == (200, {})
    _, before = call(control, "GET", "/v1/clock")
    assert call(control, "POST", "/v1/clock/advance", {"seconds": 45, "minutes": 2}) == (200, {})
    assert call(control, "GET", "/v1/clock") == (200, {"now_ms": before["now_ms"] + 165_000, "is_frozen": True})
    assert call(control, "POST", "/v1/clock/resume") == (200, {})
    assert call(control, "GET", "/v1/clock")[1]["is_frozen"] is False


def test_leaders_and_coordinators_move_and_nodes_stop(served):
    bootstrap, control = served
    assert sent(bootstrap, b"3") == [None]

    def leader():
        return Producer({"bootstrap.servers": bootstrap}).list_topics("orders", timeout=10).topics["orders"].partitions[0].leader

    to = leader() % 2 + 1
    assert call(control, "POST", "/v1/leaders/move", {"topic": "orders", "partition": 0, "to": to}) == (200, {})
    assert leader() == to
    assert call(control, "POST", "/v1/coordinators/move", {"group_id": "billing", "to": to}) == (200, {})
    assert call(control, "POST", f"/v1/nodes/{to}/kill") == (200, {})
    assert call(control, "POST", f"/v1/nodes/{to}/stop") == (200, {})
    assert leader() == -1, "its one replica is there"
    assert call(control, "POST", f"/v1/nodes/{to}/start") == (200, {})
    assert leader() == to


def test_what_is_wrong_is_said_and_the_connection_goes_on(served):
    _, control = served
    began = time.monotonic()
    rules = [{"api": "DeleteTopics", "error": "INVALID_REQUEST"}, {"api": "DeleteGroups", "hold": True}]
    gate = call(control, "POST", "/v1/faults", {"rules": rules})[1]["rules"][-1]
    for method, path, body, status, part in [
        ("GET", "/", None, 404, "paths begin with /v1"),
        ("GET", "/v2/faults", None, 404, "paths begin with /v1"),
        ("POST", "/v2/faults", {"rules": []}, 404, "paths begin with /v1"),
        ("PUT", "/v1/faults", {"rules": []}, 404, "PUT /v1/faults is unknown"),
        ("GET", "/v1/nothing", None, 404, "docs/reference/control.md"),
        ("POST", "/v1/nodes/3/stop", None, 404, "there is no node 3; there are 1, 2"),
        ("POST", "/v1/leaders/move", {"topic": "orders", "partition": 0, "to": 9}, 400, "the broker has no node 9"),
        ("POST", "/v1/faults/99/release", None, 404, "there is no rule 99"),
        ("DELETE", "/v1/faults/x", None, 404, "there is no rule x"),
        ("POST", "/v1/faults", {"rules": [{"api": "Produze", "hold": True}]}, 400, "no API `Produze`"),
        ("POST", "/v1/faults", {"rule": []}, 400, "`rule` is unknown"),
        ("POST", "/v1/faults", [], 400, "must be a JSON object"),
        ("POST", "/v1/clock/advance", {}, 400, "one of seconds, milliseconds, minutes, hours, days is missing"),
        ("POST", "/v1/clock/advance", {"seconds": -1}, 400, "-1"),
        ("POST", "/v1/clock/advance", {"seconds": "45"}, 400, '`seconds` must be a number, not "45"'),
        ("POST", "/v1/leaders/move", {"topic": "orders", "partition": 0.5, "to": 1}, 400, "`partition` must be a whole number, not 0.5"),
        ("POST", "/v1/faults", None, 400, "there is no body"),
        ("POST", "/v1/faults", {}, 400, "a plan has `rules`, `random` or both"),
        ("POST", f"/v1/faults/{gate}/wait", {"timeout": -1}, 400, "`timeout` must be from 0 to 86400 seconds, not -1"),
        ("POST", f"/v1/faults/{gate}/wait", {"timeout": float("nan")}, 400, "`timeout` must be from 0 to 86400 seconds, not NaN"),
        ("POST", f"/v1/faults/{gate - 1}/wait", {"timeout": 1}, 400, "only a rule with `hold` does"),
        ("POST", f"/v1/faults/{gate - 1}/release", None, 400, "only a rule with `hold` does"),
        ("PUT", "/v1/faults", None, 404, "PUT /v1/faults is unknown"),
        ("OPTIONS", "/v1/faults", None, 501, "Unsupported method ('OPTIONS')"),
        ("GET", "/v1/requests?topic=a&topic=b", None, 400, "`topic` is given twice"),
        ("POST", "/v1/clock/advance", {"weeks": 1}, 400, "`weeks` is unknown; known are seconds"),
        ("GET", "/v1/requests?partition=x", None, 400, "`partition` must be a number, not 'x'"),
        ("GET", "/v1/requests?id=x", None, 400, "`id` is unknown; known are api, client_id"),
    ]:
        found, answer = call(control, method, path, body)
        assert (found, part in answer["message"]) == (status, True), (path, answer)
    assert call(control, "POST", "/v1/clock/freeze", {}, {"Content-Type": "text/plain"})[0] == 400
    control.request("POST", "/v1/faults", "[", JSON)
    assert json.loads(control.getresponse().read()) == {
        "error": "InvalidArgumentError",
        "message": "the body is no JSON: Expecting value: line 1 column 2 (char 1)",
    }
    assert call(control, "POST", f"/v1/faults/{gate}/wait", {"timeout": 0.05})[0] == 408
    assert time.monotonic() - began < 20


def test_the_body_of_a_request_that_has_none_is_left_out(served):
    _, control = served
    for method, path in [("GET", "/v1/faults"), ("DELETE", "/v1/faults"), ("GET", "/v1")] * 2:
        control.request(method, path, "null")
        response = control.getresponse()
        assert (response.status, bool(json.loads(response.read()).get("error"))) == (200, False)


def test_an_address_that_is_taken_is_named(served):
    import subprocess

    _, control = served
    command = [*FLETCHLOG, "serve", "--memory", "--listen", "127.0.0.1:0", "--control", f"127.0.0.1:{control.port}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, f"--control 127.0.0.1:{control.port}: Address already in use" in done.stderr) == (1, True), done.stderr


def test_what_a_share_group_has_in_flight_is_seen(served):
    bootstrap, control = served
    with fl.Cluster(f"kafka://{bootstrap}") as cluster:
        cluster.create_topic("queue")
        cluster.alter_group_config("billing", {"share.auto.offset.reset": "earliest"})
    with fl.Producer(f"kafka://{bootstrap}") as producer:
        producer.send("queue", value=b"v")
    with fl.ShareConsumer(f"kafka://{bootstrap}", group="billing", topics=["queue"]) as consumer:
        assert len(consumer.poll(10_000)) == 1
        status, found = call(control, "GET", "/v1/share-groups/billing/queue")
        assert status == 200
        (record,) = found["records"]
        assert (record["first_offset"], record["last_offset"], record["state"], record["delivery_count"]) == (0, 0, "Acquired", 1)
        consumer.commit()
    assert call(control, "GET", "/v1/share-groups/billing/queue") == (200, {"records": []})
    assert call(control, "GET", "/v1/share-groups/billing/nowhere")[0] == 409
