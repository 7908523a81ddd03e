"""The coordinator's assignors (KIP-848): the targets that Kafka's own classes computed, step after step."""

import json
from pathlib import Path
from uuid import UUID

import pytest

import fletchlog as fl
from fletchlog.errors import InvalidArgumentError

CASES = [json.loads(line) for line in (Path(__file__).parents[1] / "golden" / "kip-848" / "assignors.jsonl").read_text().splitlines()]


def target_of(assignor, step, before):
    members = {member["id"]: member["topics"] for member in step["members"]}
    instances = {member["id"]: member["instance"] for member in step["members"] if "instance" in member}
    if assignor == "range":
        return fl.assign.range(step["topics"], members, group_instance_ids=instances)
    ids = {topic: UUID(topic) for topic in step["topics"]}
    return fl.assign.uniform(step["topics"], members, topic_ids=ids, group_instance_ids=instances, assigned=before)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_every_step_has_the_target_of_kafkas_assignor(assignor):
    steps = 0
    for case in CASES:
        before = {}
        for step in case["steps"] if case["assignor"] == assignor else ():
            if "error" in step["target"]:
                continue
            before = target_of(assignor, step, before)
            assert {m: {t: p for t, p in topics.items() if p} for m, topics in before.items()} == step["target"], case["id"]
            steps += 1
    assert steps > 40


def test_wrong_arguments_are_named():
    a, b = UUID(int=1), UUID(int=2)
    with pytest.raises(InvalidArgumentError, match="topic t has no id; add it to topic_ids"):
        fl.assign.uniform({"t": 1}, {}, topic_ids={})
    with pytest.raises(InvalidArgumentError, match="subscribes to topic u, which is not among the topics"):
        fl.assign.uniform({"t": 1}, {"m": ["u"]}, topic_ids={"t": a})
    with pytest.raises(InvalidArgumentError, match="two topics have one id"):
        fl.assign.uniform({"t": 1, "u": 1}, {"m": ["u"]}, topic_ids={"t": a, "u": a})
    with pytest.raises(InvalidArgumentError, match="-1 partitions"):
        fl.assign.uniform({"t": -1}, {}, topic_ids={"t": b})
    assert fl.assign.uniform({}, {"m": []}, topic_ids={}) == {"m": {}}
