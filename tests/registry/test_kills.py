"""What a registry has answered is there after `kill -9` of `fletchlog serve`, and ids go on behind it."""

import signal
from contextlib import closing

import pytest

from fletchlog import serde
from fletchlog.errors import SchemaRegistryUnavailableError
from tests.registry.conftest import Caller, record
from tests.wire.test_serve import end, start

KILLS = 6


@pytest.mark.slow
def test_every_schema_that_was_answered_survives(tmp_path):
    import threading

    answered = {}
    for number in range(KILLS):
        process, line = start(tmp_path / "data", "--schema-registry", "127.0.0.1:0")
        with closing(Caller(line["schema_registry"])) as call:
            found = {(one["subject"], one["schema"]): one["id"] for one in call("GET", "/schemas")[1]}
            assert found.items() >= answered.items()
            assert len(set(found.values())) == len(found)
        killer = threading.Timer(0.2 + 0.05 * number, lambda process=process: process.send_signal(signal.SIGKILL))
        killer.start()
        with serde.Registry(line["schema_registry"], retries=0) as client, pytest.raises(SchemaRegistryUnavailableError):
            for count in range(100_000):
                text = str(record(f"f{count}", name=f"R{number}")).replace("'", '"').replace(": ", ":").replace(", ", ",")
                answered[f"s{number}-{count}", text] = client.register(f"s{number}-{count}", text)
        killer.join()
        end(process)
    assert len(answered) > KILLS
