"""Create, list, describe, grow and delete topics."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topics(["a", "b"])
    broker.create_topic("c", partitions=2, config={"retention.ms": 3_600_000})
    print(broker.topics())
    broker.create_partitions("c", 4)
    described = broker.describe_topic("c")
    print(len(described.partitions), described.config["retention.ms"])
    broker.alter_topic_config("c", {"retention.ms": None})
    broker.delete_topic("a")
    print(broker.topics(), "retention.ms" in broker.describe_topic("c").config)
# -> ['a', 'b', 'c']
# -> 4 3600000
# -> ['b', 'c'] False
