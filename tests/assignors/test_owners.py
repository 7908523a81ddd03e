"""Who idles and why, and what moves."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog.explain import owners_picture
from fletchlog.explain.owners import ASSIGNORS, ownership
from fletchlog.explain.shapes import Bar, Text, to_svg
from tests.support.command_line import invoke


def run(*words, code=0):
    result = invoke(["assign", *words])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_the_name_of_an_assignor_is_one_line():
    lines = run("-t", "t=4", "-m", "3").splitlines()
    assert {"range", "cooperative-sticky"} <= {line.strip() for line in lines}


groups = st.tuples(
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 6), min_size=1),
    st.integers(1, 5),
    st.sampled_from(["join", "leave"]),
)


@given(groups, st.sampled_from(ASSIGNORS))
def test_what_moved_and_who_idles_is_what_the_assignor_says(group, assignor):
    topics, count, change = group
    members = {f"c{i}": list(topics) for i in range(count + 1)}
    fewer = {member: names for member, names in members.items() if member != f"c{count}"}
    first, then = (fewer, members) if change == "join" else (members, fewer)
    before = ownership(assignor, topics, first)
    after = ownership(assignor, topics, then, before=before)
    owner = {(t, p): m for m, owned in before.owners.items() for t, ps in owned.items() for p in ps}
    now = {(t, p): m for m, owned in after.owners.items() for t, ps in owned.items() for p in ps}
    assert set(now) == {(t, p) for t, n in topics.items() for p in range(n)}
    assert after.moved == sorted(tp for tp in now if now[tp] != owner[tp])
    assert set(after.idle) == set(after.owners) - set(now.values())
    if "sticky" in assignor and change == "leave":
        assert all(owner[tp] == f"c{count}" for tp in after.moved)


def test_a_cooperative_move_takes_two_rebalances():
    before = ownership("cooperative-sticky", {"t": 6}, {"a": ["t"], "b": ["t"]})
    after = ownership("cooperative-sticky", {"t": 6}, {"a": ["t"], "b": ["t"], "c": ["t"]}, before=before)
    assert (before.rounds, after.rounds, len(after.moved)) == (1, 2, 2)


def test_reasons_name_the_numbers():
    found = ownership("range", {"t": 2}, {m: ["t"] for m in "abc"})
    assert found.idle == {"c": "each topic is dealt on its own, the first members in order get one more: t has 2, for 3 members"}
    assert ownership("roundrobin", {"t": 2}, {m: ["t"] for m in "abc"}).idle == {"c": "2 partitions for 3 members"}
    found = ownership("legacy-range", {"my-topic": 6}, {"c1": ["my-topic"], "c2": ["my-topic"]}, streams=6)
    assert len(found.idle) == 6
    assert all("6, for 12 threads" in why for why in found.idle.values())
    with pytest.raises(fl.errors.InvalidArgumentError, match="no assignor best"):
        ownership("best", {"t": 1}, {"a": ["t"]})


def test_the_picture_has_a_cell_for_every_partition():
    before = ownership("sticky", {"t": 4, "u": 2}, {"a": ["t", "u"], "b": ["t", "u"]})
    after = ownership("sticky", {"t": 4, "u": 2}, {m: ["t", "u"] for m in "abc"}, before=before)
    drawing = owners_picture.draw([("before", [before]), ("after c joined", [after])])
    numbers = [shape for shape in drawing.shapes if isinstance(shape, Text) and shape.bold and shape.text.isdigit()]
    assert len(numbers) == 12
    marks = [shape for shape in drawing.shapes if isinstance(shape, Bar) and shape.h == 3]
    assert len(marks) == len(after.moved) + 1
    assert "after c joined" in to_svg(drawing)


def test_the_command_shows_before_and_after(tmp_path):
    said = run("-t", "orders=6", "-m", "3", "--join", "c4", "--svg", str(tmp_path / "a.svg"))
    for name in ("range", "roundrobin", "sticky", "cooperative-sticky"):
        assert name in said
    assert "after c4 joined" in said
    assert "1 of 6 partitions has another owner, in 2 rebalances" in said
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    found = json.loads(run("-t", "orders=2", "-m", "a,b,c", "--leave", "a", "-a", "range", "--json"))
    assert [stage["stage"] for stage in found] == ["before", "after a left"]
    assert found[0]["assignments"][0]["owners"] == {"a": {"orders": [0]}, "b": {"orders": [1]}, "c": {}}
    assert "idles: each topic" in run("-t", "orders=2", "-m", "a,b,c", "-a", "range")


def test_a_directory_knows_the_partitions(tmp_path):
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("orders", partitions=5)
    found = json.loads(run("-t", "orders", "-m", "1", "-a", "range", "--dir", str(tmp_path / "data"), "--json"))
    assert found[0]["assignments"][0]["owners"] == {"c1": {"orders": [0, 1, 2, 3, 4]}}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-t", "orders", "-m", "2"], "NAME=PARTITIONS"),
        (["-t", ",", "-m", "2"], "names no topic"),
        (["-t", "o=1", "-m", ","], "names nobody"),
        (["-t", "o=1", "-m", "2", "--leave", "c9"], "no such member"),
        (["-t", "o=1", "-m", "2", "--join", "c1"], "member already"),
        (["-t", "o=1", "-m", "1", "--leave", "c1"], "nobody is left"),
        (["-t", "o=1", "-m", "2", "--subscribe", "c9=o"], "no member"),
        (["-t", "o=1", "-m", "2", "--subscribe", "c1=p"], "has no p"),
        (["-t", "o=1", "-m", "2", "-a", "best"], "no assignor best"),
    ],
)
def test_mistakes_are_one_sentence(words, text):
    assert text in run(*words, code=1)
