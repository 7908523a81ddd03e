"""Part 36: franz-go's own tests: those of moved leaders, written for its kfake, and those of its client, while leaders and coordinators move.

The tests for kfake run against `fletchlog serve --control`. They are taken out of the module of kfake as the Go module proxy has it; `kfake/cluster.go` gives the names that they use. Those that answer requests
themselves (`ControlKey`) or add nodes are not among them: they test franz-go or kfake alone. Those of share groups are in part 40. Tests of kfake that need no event run too, where a real Kafka passes them.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fletchlog.errors import UnknownTopicOrPartitionError
from pytest_fletchlog.kafka import Kafka

from . import kafka
from .programs import PART
from .test_16_wire_languages import SOURCES, require
from .test_37_control import passed

KFAKE = "github.com/twmb/franz-go/pkg/kfake@v0.0.0-20260918054303-01f206a7e32c"
TESTS = [
    "TestMoveTopicPartitionChangesLeader",
    "TestShufflePartitionLeadersIsUsable",
    "TestCoordinatorAPIs",
    "TestOffsetForLeaderEpochCurrentEpoch",
    "TestOffsetForLeaderEpochAfterLeaderChange",
    "TestOffsetForLeaderEpochEmptyPartition",
    "TestFaultNode",
    "TestProduceLeaderHintMovesWithoutBackoff",
    "TestStreamingCompressionMigration",
]
# What kfake does as Kafka does. A real 4.4.0 fails the others that run here: TestTxnDescribeTransactions, TestElectLeaders, ..
OF_BROKER = [
    "TestApiVersionsSoftwareNameValidation",
    "TestApiVersionsSupportedFeatures",
    "TestClassicIncompatibleProtocolRejected",
    "TestClassicProtocolVoting",
    "TestConsumeRecordHeaders",
    "TestCreatePartitionsAddsPartitions",
    "TestCreatePartitionsErrorCases",
    "TestCreatePartitionsValidateOnly",
    "TestDeleteTopicDropsGroupCommits",
    "TestDeleteTopicsUnknownByName",
    "TestDescribeLogDirsReportsStorageSize",
    "TestFetchSessionUnknownID",
    "TestIncrementalAlterConfigsOperations",
    "TestIncrementalFetchEndToEnd",
    "TestIssue1330",
    "TestIssue1423",
    "TestListOffsetsEarliestLatest",
    "TestListOffsetsReadCommittedDuringTxn",
    "TestListTransactionsFindsOngoing",
    "TestTransactSessionEndNeverJoined",
]
PACKAGES = {
    "binary": "encoding/binary",
    "bytes": "bytes",
    "context": "context",
    "errors": "errors",
    "fmt": "fmt",
    "kadm": "github.com/twmb/franz-go/pkg/kadm",
    "kerr": "github.com/twmb/franz-go/pkg/kerr",
    "kgo": "github.com/twmb/franz-go/pkg/kgo",
    "kmsg": "github.com/twmb/franz-go/pkg/kmsg",
    "rand": "math/rand",
    "atomic": "sync/atomic",
    "maps": "maps",
    "slices": "slices",
    "sort": "sort",
    "strconv": "strconv",
    "strings": "strings",
    "sync": "sync",
    "testing": "testing",
    "time": "time",
}


# The client's tests that write, read in groups of both protocols, and copy exactly once
OF_CLIENT = "TestGroupETL|TestTxnEtl|TestGroupSimple|TestIssue434|TestAddRemovePartitions"
RECORDS = 5000
MOVE_SECONDS = 0.3
# A client whose JoinGroup meets one move after the other gives up after its session time-out: so a group is moved once in that time
GROUP_ROUNDS, SESSION_SECONDS = 7, 20
# What franz-go does by itself when a move comes at the wrong time, at a real Kafka too, and what its tests take for a failure: another attempt decides.
# Its position passes a marker that it skips, with the epoch of the record before; if the leader has moved between the two, it takes the marker for lost.
ITS_OWN = ("lost records; the client consumed to offset", "unable to join group session: NOT_COORDINATOR")
ATTEMPTS = 3


def functions(directory: Path, tests: Sequence[str]) -> str:
    """The tests and what they call, as one Go file."""
    source = "\n".join(path.read_text() for path in sorted(directory.glob("*_test.go")))
    declared = re.finditer(r"^(?:func|type) (?:\(\w+ \*?(\w+)\) )?(\w+)(?:[^\n]*[{(]\n.*?^}$|[^\n]*$)", source, re.MULTILINE | re.DOTALL)
    known: dict[str, list[str]] = {}
    for match in declared:
        known.setdefault(match[1] or match[2], []).append(match[0])  # methods are with their type
    wanted: dict[str, str] = {}
    left = list(tests)
    while left:
        if (name := left.pop()) not in wanted:
            wanted[name] = "\n\n".join(known[name])
            left += [used for used in re.findall(r"\w+", wanted[name]) if used in known]
    found = [wanted[name] for name in sorted(wanted)]
    # nodes count from 0 there, and no release of the client has the option
    body = "\n\n".join(found).replace("cl.Broker(int(node))", "broker(cl, int(node))").replace("kgo.StreamingCompression(),", "")
    used = [f'"{path}"' for name, path in PACKAGES.items() if re.search(rf"\b{name}\.", body)]
    return "package kfake\n\nimport (\n\t" + "\n\t".join(used) + "\n)\n\n" + body + "\n"


def run_kfake_tests(tests: Sequence[str]) -> None:
    """Runs some of kfake's tests against `fletchlog serve --control`; each has to pass."""
    target = kafka.CACHE / "kfake-tests"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(SOURCES / "kfake", target)
    module = json.loads(passed(["go", "mod", "download", "-json", KFAKE], target))
    (target / "tests_test.go").write_text(functions(Path(module["Dir"]), tests))
    printed = passed(["go", "test", "-count=1", "-v", "."], target)
    assert sorted(re.findall(r"^--- PASS: (\w+)", printed, re.MULTILINE)) == sorted(tests)


def test_franz_gos_tests_of_moved_leaders(count: Callable[..., None]) -> None:
    require("go", "Go 1.26 or newer")
    run_kfake_tests(TESTS)
    count(PART, tests_of_franz_go=len(TESTS))


def test_franz_gos_tests_of_a_broker(count: Callable[..., None]) -> None:
    require("go", "Go 1.26 or newer")
    run_kfake_tests(OF_BROKER)
    count(PART, tests_of_franz_go=len(OF_BROKER))


def move(opened: Kafka, rng: random.Random, ends: threading.Event) -> int:
    """Moves leaders and coordinators until the end; how often."""
    moves, rounds, broker = 0, 0, opened.broker
    moved: dict[str, float] = {}
    while not ends.wait(MOVE_SECONDS):
        rounds += 1
        with contextlib.suppress(UnknownTopicOrPartitionError):  # a test deletes its topics
            for topic in broker.topics():
                opened.move_leader(topic, rng.randrange(len(broker.describe_topic(topic).partitions)), to=rng.randint(1, 3))
                moves += 1
        if transactions := broker.transactions():
            opened.move_coordinator(transactional_id=rng.choice(transactions).transactional_id, to=rng.randint(1, 3))
            moves += 1
        now = time.monotonic()
        resting = [group.group_id for group in broker.groups() if now - moved.get(group.group_id, -SESSION_SECONDS) >= SESSION_SECONDS]
        if rounds % GROUP_ROUNDS == 0 and resting:
            group_id = rng.choice(resting)
            opened.move_coordinator(group_id, to=rng.randint(1, 3))
            moved[group_id] = now
            moves += 1
    return moves


@pytest.mark.timeout(600)
def test_franz_gos_tests_of_its_client_while_leaders_move(tmp_path: Path, seed: int, count: Callable[..., None]) -> None:
    require("go", "Go 1.25 or newer")
    program = kafka.CACHE / "kgo.test"
    passed(["go", "test", "-c", "-o", str(program), "github.com/twmb/franz-go/pkg/kgo"], SOURCES / "go")
    given = {"KGO_TEST_RF": "3", "KGO_TEST_RECORDS": str(RECORDS), "KGO_LOG_LEVEL": "none"}

    def attempt(number: int) -> tuple[str, int]:
        """What the tests print, and how often leaders moved meanwhile."""
        with Kafka(nodes=3, config={"num.partitions": "4", "group.min.session.timeout.ms": "100"}) as opened, ThreadPoolExecutor(1) as threads:
            ends = threading.Event()
            moves = threads.submit(move, opened, random.Random(seed + number), ends)
            try:
                printed = passed([str(program), "-test.v", "-test.run", OF_CLIENT], tmp_path, given | {"KGO_SEEDS": opened.bootstrap})
            finally:
                ends.set()
            return printed, moves.result()

    for number in range(ATTEMPTS):
        try:
            printed, moves = attempt(number)
            break
        except AssertionError as failed:
            if number + 1 == ATTEMPTS or not any(text in str(failed) for text in ITS_OWN):
                raise
    tests = re.findall(r"^--- PASS: (\w+)", printed, re.MULTILINE)
    assert sorted(tests) == sorted(OF_CLIENT.split("|"))
    count(PART, tests_of_franz_go=len(tests), moves=moves, other_attempts=number)
