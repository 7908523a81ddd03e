"""The JSON Schema of plans, for editors, says what `FaultPlan.load` takes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import fletchlog as fl
from fletchlog.errors import InvalidArgumentError

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "fault-plan.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
RULES: list[dict[str, Any]] = [
    {"api": "Produce", "error": "NOT_ENOUGH_REPLICAS", "nth": 3, "topic": "orders"},
    {"api": ["Fetch", "ListOffsets"], "error": 6, "handled": True, "partition": 2, "times": 4, "version": 3},
    {"api": "Produce", "delay_ms": 5, "error": "UNKNOWN_PRODUCER_ID", "log_start_offset": 7},
    {"client_id": "billing-*", "close": "before", "version": [3, 7]},
    {"connection": 2, "lose_response": True, "name": "lost", "optional": True},
    {"black_hole": "after", "group": "g"},
    {"delay_ms": 5, "transactional_id": "t*"},
    {"delay_ms": 5, "hold": False},
    {"delay_response_ms": 5, "node": 0},
    {"hold": True, "delay_ms": 0},
    {"throttle_time_ms": 100},
    {"cut_after_bytes": 0},
    {"wrong_correlation_id": True, "lose_response": False},
    {"slow_bytes_per_second": 10},
    {"refuse_connection": True},
    {"connection": 1, "tls_failure": True},
]
MISTAKES: list[dict[str, Any]] = [
    {},
    {"nht": 3, "hold": True},
    {"api": "produce", "hold": True},
    {"api": [], "hold": True},
    {"api": "Fetch", "error": "NOT_LEADER"},
    {"api": "Fetch", "error": 0},
    {"error": 6},
    {"api": "Fetch", "error": 6, "log_start_offset": 1},
    {"hold": True, "handled": True},
    {"hold": True, "throttle_time_ms": 1},
    {"hold": True, "delay_ms": 1},
    {"hold": False},
    {"hold": True, "nth": 0},
    {"delay_ms": -1},
    {"delay_ms": "5"},
    {"close": True},
    {"version": [3], "hold": True},
    {"refuse_connection": True, "client_id": "a"},
    {"tls_failure": True, "delay_ms": 1},
]


@pytest.fixture(scope="module")
def faults() -> Iterator[fl.testing.FaultPlan]:
    """Of a listener, which takes every action."""
    with fl.Broker.in_memory() as broker, broker.listen() as listener:
        yield listener.faults


def loads(faults: fl.testing.FaultPlan, plan: dict[str, Any]) -> bool:
    try:
        faults.load(plan)
    except InvalidArgumentError:
        return False
    finally:
        faults.clear()
    return True


def agrees(faults: fl.testing.FaultPlan, plan: dict[str, Any], *, right: bool) -> bool:
    return loads(faults, plan) == VALIDATOR.is_valid(plan) == right


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("rule", RULES)
def test_a_right_rule_is_valid(faults: fl.testing.FaultPlan, rule: dict[str, Any]) -> None:
    assert agrees(faults, {"rules": [rule]}, right=True)


@pytest.mark.parametrize("rule", MISTAKES)
def test_a_wrong_rule_is_not(faults: fl.testing.FaultPlan, rule: dict[str, Any]) -> None:
    assert agrees(faults, {"rules": [rule]}, right=False)


def test_so_are_random_faults_and_a_plan_as_a_whole(faults: fl.testing.FaultPlan) -> None:
    for right in ({}, {"rules": []}, {"random": {"seed": 7, "rate": 0.5, "kinds": ["error"], "api": "Produce"}}):
        assert agrees(faults, right, right=True), right
    wrong = [{"rule": []}, {"rules": {}}]
    wrong += [
        {"random": random} for random in ({"seed": 1}, {"rate": 0.5}, {"seed": 1, "rate": 2}, {"seed": -1, "rate": 1}, {"seed": 1, "rate": 1, "kinds": ["x"]})
    ]
    for plan in wrong:
        assert agrees(faults, plan, right=False), plan


def test_every_key_api_and_error_is_in_it(faults: fl.testing.FaultPlan) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        faults.load({"rules": [{"no such key": 1, "hold": True}]})
    known = str(refused.value).partition("known are")[2]
    keys = set(re.findall(r"[a-z_]+", re.sub(r"\(also .*?\)|and the actions|\bwith\b|\band\b", "", known)))
    assert keys == set(SCHEMA["$defs"]["rule"]["properties"])
    messages = json.loads((ROOT / "tests" / "golden" / "wire" / "vectors" / "schemas-4.4.json").read_text())
    names = {re.sub("(Request|Response)$", "", message["name"]) for message in messages} | set(SCHEMA["$defs"]["api"]["enum"])
    assert {name for name in names if loads(faults, {"rules": [{"api": name, "hold": True}]})} == set(SCHEMA["$defs"]["api"]["enum"])
    errors = set()
    for code in range(-1, 200):
        rule = {"api": "Fetch", "error": code}
        if loads(faults, {"rules": [rule]}):
            errors.add(faults.load({"rules": [rule]})[0].rule["error"])
    faults.clear()
    assert errors == set(SCHEMA["$defs"]["error"]["enum"])
