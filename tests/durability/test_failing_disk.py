"""A broker that cannot write: which errors its producers get, how often it is logged, and that every call comes to an end.

Writes fail because the process may not make files any longer (RLIMIT_FSIZE), which needs no rights: each case runs in a process
of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

BEGIN = """
import json, logging, resource, sys
import fletchlog as fl

logged = []
class Keep(logging.Handler):
    def emit(self, record):
        logged.append(record.getMessage())
logging.getLogger("fletchlog").addHandler(Keep(logging.WARNING))

def room(there):
    # 1 byte: what has bytes already cannot grow, what is made anew stays empty
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY if there else 1, resource.RLIM_INFINITY))

def error(call):
    try:
        call()
    except fl.KafkaError as raised:
        return [type(raised).__name__, str(raised)]
    return None

def report(**facts):
    room(True)
    sys.__stdout__.write(json.dumps(facts | {"logged": logged}))

TIMES = {"request.timeout.ms": 200, "delivery.timeout.ms": 400, "max.block.ms": 400, "retry.backoff.ms": 5}
broker = fl.Broker(sys.argv[1], create=True, config={"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1})
broker.create_topic("t")
"""


def run(directory: Path, script: str) -> dict[str, Any]:
    """Runs a case; the time limit is for a call that hangs."""
    done = subprocess.run([sys.executable, "-c", BEGIN + textwrap.dedent(script), str(directory)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


@pytest.mark.parametrize("end", ["producer.flush()", "producer.close()", "with producer: pass"])
def test_records_without_a_producer_id_fail_in_time_and_every_call_ends(tmp_path: Path, end: str) -> None:
    facts = run(
        tmp_path / "data",
        f"""
        producer = fl.Producer(broker, TIMES | {{"enable.idempotence": True}})
        room(False)
        future = producer.send("t", value=b"v")
        {end}
        failed = error(future.result)
        producer.close()
        room(True)
        with fl.Producer(broker, {{"enable.idempotence": True}}) as later:
            offset = later.send("t", value=b"v").result().offset
        report(failed=failed, offset=offset)
        """,
    )
    name, text = facts["failed"]
    assert name == "KafkaTimeoutError"
    assert "fletchlog.metadata" in text
    assert "File too large" in text
    assert facts["offset"] == 0
    assert len([line for line in facts["logged"] if "producer ids" in line]) == 1, facts["logged"]


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_a_transaction_that_cannot_be_written_any_more_is_an_error_at_once_and_close_ends(tmp_path: Path, end: str) -> None:
    facts = run(
        tmp_path / "data",
        f"""
        producer = fl.Producer(broker, TIMES | {{"transactional.id": "id", "max.block.ms": 60_000}})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", value=b"v").result()
        room(False)
        failed, again = error(producer.{end}), error(producer.{end})
        producer.close()
        report(failed=failed, again=again)
        """,
    )
    for name, text in (facts["failed"], facts["again"]):
        assert name == "StorageError"
        assert "__transaction_state-0" in text
        assert "reopen" in text
    assert len([line for line in facts["logged"] if "writing the transaction" in line]) <= 2, facts["logged"]


def test_a_failing_append_is_named_by_its_future_and_logged_when_its_state_changes(tmp_path: Path) -> None:
    facts = run(
        tmp_path / "data",
        """
        producer = fl.Producer(broker, TIMES | {"acks": "all"})
        producer.send("t", value=b"v").result()
        room(False)
        failed = error(producer.send("t", value=b"w").result)
        producer.close()
        report(failed=failed)
        """,
    )
    name, text = facts["failed"]
    # in time it is tried again until the batch expires; an attempt that fails after that is the last one
    assert name in ("KafkaTimeoutError", "StorageError")
    assert "00000000000000000000.log" in text
    assert "File too large" in text
    # it fails, and then needs to be reopened
    assert 1 <= len([line for line in facts["logged"] if "append to t-0 failed" in line]) <= 2, facts["logged"]
