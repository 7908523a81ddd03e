"""Part 36: franz-go's own tests of moved leaders and coordinators, written for its kfake, against `fletchlog serve --control`.

The tests are taken out of the module of kfake as the Go module proxy has it; `kfake/cluster.go` gives the names that they use. Those that answer requests
themselves (`ControlKey`), need share groups or add nodes are not among them: they test franz-go or kfake alone.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

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
HELPERS = ["newCluster", "newPlainClient", "newCoverCluster", "produceSync", "waitCh", "proseWorkload", "faultReq", "listOffsetsReq", "listOffsetsCode"]
PACKAGES = {
    "bytes": "bytes",
    "context": "context",
    "fmt": "fmt",
    "kadm": "github.com/twmb/franz-go/pkg/kadm",
    "kerr": "github.com/twmb/franz-go/pkg/kerr",
    "kgo": "github.com/twmb/franz-go/pkg/kgo",
    "kmsg": "github.com/twmb/franz-go/pkg/kmsg",
    "rand": "math/rand",
    "atomic": "sync/atomic",
    "sync": "sync",
    "testing": "testing",
    "time": "time",
}


def functions(directory: Path) -> str:
    """The tests and what they call, as one Go file."""
    source = "\n".join(path.read_text() for path in sorted(directory.glob("*_test.go")))
    found = []
    for name in [*HELPERS, *TESTS]:
        match = re.search(rf"^func {name}[\[(].*?^}}$", source, re.MULTILINE | re.DOTALL)
        assert match, f"{name} is not in {directory}"
        found.append(match.group())
    # nodes count from 0 there, and no release of the client has the option
    body = "\n\n".join(found).replace("cl.Broker(int(node))", "broker(cl, int(node))").replace("kgo.StreamingCompression(),", "")
    used = [f'"{path}"' for name, path in PACKAGES.items() if re.search(rf"\b{name}\.", body)]
    return "package kfake\n\nimport (\n\t" + "\n\t".join(used) + "\n)\n\n" + body + "\n"


def test_franz_gos_tests_of_moved_leaders(count: Callable[..., None]) -> None:
    require("go", "Go 1.26 or newer")
    target = kafka.CACHE / "kfake-tests"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(SOURCES / "kfake", target)
    module = json.loads(passed(["go", "mod", "download", "-json", KFAKE], target))
    (target / "moved_test.go").write_text(functions(Path(module["Dir"])))
    printed = passed(["go", "test", "-count=1", "-v", "."], target)
    assert sorted(re.findall(r"^--- PASS: (\w+)", printed, re.MULTILINE)) == sorted(TESTS)
    count(PART, tests_of_franz_go=len(TESTS))
