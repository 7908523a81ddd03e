"""The judge of `make kills`, `make call-faults` and `make power-loss` finds what it is there to find."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import fletchlog as fl
from judges.kills.history import COMPACTED, CONFIG, GROUP, SENT, TOPICS, TRANSACTIONAL, TRANSACTIONAL_ID, Check, History, Note, damage


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Note]]:
    """A closed directory, and the notes of all that was acknowledged in it."""
    directory, notes = tmp_path_factory.mktemp("whole") / "log", []
    with fl.Broker(directory, create=True, config=CONFIG) as broker:
        for topic, (partitions, config) in TOPICS.items():
            broker.create_topic(topic, partitions, config=config)
            notes += [["create", topic], ["created", topic]]
        broker.create_topic("churned-0")
        notes.append(["created", "churned-0"])
        with fl.Producer(broker, {"enable.idempotence": True, "batch.size": 0}) as producer:
            for index in range(9):
                found = producer.send(SENT, value=f"0-0-{index}".encode(), partition=index % 3).result()
                notes.append(["sent", f"0-0-{index}", found.partition, found.offset])
            producer.send("churned-0", value=b"mark").result()
            notes.append(["marked", "churned-0", "mark"])
            for value in ("old", "new"):
                notes.append(["keep", "k", value])
                producer.send(COMPACTED, key=b"k", value=value.encode()).result()
                notes.append(["kept", "k", value])
        with fl.Producer(broker, {"transactional.id": TRANSACTIONAL_ID}) as producer:
            producer.init_transactions()
            for name, commits in (("0.0", True), ("0.1", False)):
                notes.append(["transaction", name, 2])
                producer.begin_transaction()
                for number in range(2):
                    producer.send(TRANSACTIONAL, value=f"{name}/{number}".encode(), partition=number)
                producer.commit_transaction() if commits else producer.abort_transaction()
                notes.append(["ended", name, commits])
        with fl.Consumer(broker, {"group.id": GROUP, "enable.auto.commit": False}) as consumer:
            consumer.assign([(SENT, 0)])
            for offset in (1, 2):
                notes.append(["commit", offset])
                consumer.commit({(SENT, 0): offset})
                notes.append(["committed", offset])
    return directory, notes


def wrong(directory: Path, notes: list[Note], *, gapless: bool = True) -> list[str]:
    with fl.Broker(directory, create=True, config=CONFIG) as broker:
        return Check(broker, History().take(notes), gapless=gapless).wrong


def test_a_whole_directory_is_judged_sound_and_so_is_it_by_what_the_first_check_noted(whole: tuple[Path, list[Note]], tmp_path: Path) -> None:
    directory = Path(shutil.copytree(whole[0], tmp_path / "log"))
    with fl.Broker(directory, create=True, config=CONFIG) as broker:
        check = Check(broker, History().take(whole[1]), gapless=True)
    assert check.wrong == damage(directory) == wrong(directory, whole[1] + check.notes) == []


def test_what_is_open_may_be_there_or_not(whole: tuple[Path, list[Note]], tmp_path: Path) -> None:
    directory = Path(shutil.copytree(whole[0], tmp_path / "log"))
    opened = [["transaction", "0.2", 3], ["keep", "k", "newer"], ["commit", 3], ["create", "churned-1"], ["delete", "churned-0"]]
    undone = [note for note in whole[1] if note not in (["ended", "0.0", True], ["committed", 2], ["kept", "k", "new"])]
    assert wrong(directory, whole[1] + opened) == wrong(directory, undone) == []


@pytest.mark.parametrize(
    ("note", "complaint"),
    [
        (["sent", "0-0-9", 0, 3], "0-0-9 was acknowledged at (0, 3), and is lost"),
        (["sent", "0-0-0", 0, 1], "0-0-0 was acknowledged at (0, 1), and is at (0, 0)"),
        (["ends", 1, 7], "sent-1 ends at 3, and was seen to end at 7"),
        (["transaction", "0.0", 3], "transaction 0.0 is torn: 2 of its 3 records are visible"),
        (["ended", "0.0", False], "transaction 0.0 was aborted, and its records are visible"),
        (["ended", "0.1", True], "transaction 0.1 was committed, and its records are not visible"),
        (["settled", "churned-0", False], "topic churned-0 is there again"),
        (["created", "churned-1"], "topic churned-1 is lost"),
        (["marked", "churned-0", "other"], "topic churned-0 has lost its record other"),
        (["error", "a: b"], "a thread of the workload ended: a: b"),
    ],
)
def test_what_was_acknowledged_and_is_not_there_is_named(whole: tuple[Path, list[Note]], tmp_path: Path, note: Note, complaint: str) -> None:
    directory = Path(shutil.copytree(whole[0], tmp_path / "log"))
    assert wrong(directory, [*whole[1], note]) == [complaint]


def test_a_value_and_an_offset_that_went_back_are_named(whole: tuple[Path, list[Note]], tmp_path: Path) -> None:
    directory = Path(shutil.copytree(whole[0], tmp_path / "log"))
    later = [["keep", "k", "newer"], ["kept", "k", "newer"], ["commit", 3], ["committed", 3]]
    assert wrong(directory, whole[1] + later) == ["the newest value of key k is new, not newer", "the group's offset is 2, not one of [3]"]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (["0-0-6"], "0-0-6 is there twice, at (0, 2) and (0, 3)"),
        (["1-0-6", "1-0-3"], "1-0-3 at (0, 4) comes after number 6 of its producer"),
        (["0-0-12"], "0-0-12 at (0, 3) follows number 6 of its producer: one is missing in between"),
    ],
)
def test_a_record_that_is_doubled_moved_or_left_out_is_named(whole: tuple[Path, list[Note]], tmp_path: Path, values: list[str], complaint: str) -> None:
    directory = Path(shutil.copytree(whole[0], tmp_path / "log"))
    with fl.Broker(directory, create=True, config=CONFIG) as broker, fl.Producer(broker) as producer:
        for value in values:
            producer.send(SENT, value=value.encode(), partition=0).result()
    assert complaint in wrong(directory, whole[1])


def test_a_log_without_its_last_batch_is_damaged(whole: tuple[Path, list[Note]], tmp_path: Path) -> None:
    directory = Path(shutil.copytree(whole[0], tmp_path / "log"))
    segment = max((directory / f"{SENT}-0").glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-1])
    assert damage(directory) != []
    with pytest.raises(fl.errors.CorruptRecordError, match="below offset 3, up to which everything was on disk"):
        wrong(directory, whole[1])
