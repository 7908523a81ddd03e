"""`fletchlog brokers`."""

import fletchlog as fl

RETENTION = "log.retention.ms"


def test_nodes_are_altered_and_described(cli, data):
    cli("topics", "create", data, "t", "--nodes", 2)
    cli("brokers", "alter", data, "-c", f"{RETENTION}=5000000")
    cli("brokers", "alter", data, "--node", 2, "-c", f"{RETENTION}=6000000")
    of = lambda *node: next(row for row in cli("brokers", "describe", data, *node, "--json").json if row["property"] == RETENTION)  # noqa: E731
    assert (of()["value"], of()["source"]) == ("5000000", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    assert (of("--node", 2)["value"], of("--node", 2)["source"]) == ("6000000", "DYNAMIC_BROKER_CONFIG")
    assert "log.segment.bytes" not in cli("brokers", "describe", data).out
    assert "log.segment.bytes" in cli("brokers", "describe", data, "--all").out
    cli("brokers", "alter", data, "-d", RETENTION)
    assert RETENTION not in cli("brokers", "describe", data).out


def test_what_cannot_be_altered_is_refused(cli, data):
    cli("topics", "create", data, "t")
    assert "Cannot update these configs dynamically: [num.partitions]" in cli("brokers", "alter", data, "-c", "num.partitions=3", code=1).err
    assert "nothing to alter" in cli("brokers", "alter", data, code=1).err
    assert "no node 9" in cli("brokers", "describe", data, "--node", 9, code=1).err


def test_the_nodes_of_a_cluster(cli):
    with fl.Broker.in_memory() as broker, broker.listen() as listener:
        place = f"kafka://{listener.bootstrap}"
        cli("brokers", "alter", place, "--node", 1, "-c", f"{RETENTION}=7000000")
        assert "7000000" in cli("brokers", "describe", place, "--node", 1).out
