"""What a row costs that `send_arrow` sends to one of 10,000 partitions, against one of 1,000: CPU time of the whole process.

Every partition gets three rows, in three rounds over all of them, so that each partition has a batch of its own and the batches of
10,000 partitions do not fit into `buffer.memory` at once. The logs are opened meanwhile, as they are by the first records.
`python benches/python/many_partitions.py`; prints microseconds per row and the ratio, which is 1 when the work is linear.
"""

from __future__ import annotations

import json
import time

import pyarrow as pa

import fletchlog as fl

FEW, MANY = 1_000, 10_000
ROWS = 3


def cost(partitions: int) -> float:
    """Microseconds of CPU per row."""
    rows = list(range(partitions)) * ROWS
    table = pa.table({"partition": pa.array(rows, pa.int32()), "value": [b"0123456789"] * len(rows)})
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=partitions)
        began = time.process_time_ns()
        with fl.Producer(broker) as producer:
            producer.send_arrow("t", table)
        return (time.process_time_ns() - began) / 1000 / len(rows)


def measure() -> dict[str, float]:
    """Microseconds per row with few and many partitions, the best of three in turn, and how much more the many cost."""
    rounds = [(cost(FEW), cost(MANY)) for _ in range(3)]
    few, many = (min(costs) for costs in zip(*rounds, strict=True))
    return {f"{FEW}_us": few, f"{MANY}_us": many, "ratio": many / few}


if __name__ == "__main__":
    print(json.dumps({name: round(value, 2) for name, value in measure().items()}))
