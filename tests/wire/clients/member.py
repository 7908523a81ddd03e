"""A member of a group (`group.protocol=consumer`) through confluent-kafka, until it is killed.

`python member.py TOPIC-OR-EXPRESSION KEY=VALUE..` prints a line of JSON for what it owns, has read and has committed.
"""

import json
import sys

from confluent_kafka import Consumer, KafkaException

consumer = Consumer(
    {"group.protocol": "consumer", "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    | dict(word.split("=", 1) for word in sys.argv[2:])
)
consumer.subscribe([sys.argv[1]])
owned = None
while True:
    read = [message for message in consumer.consume(20, 0.05) if message.error() is None]
    now = sorted(tp.partition for tp in consumer.assignment())
    if now != owned:
        owned = now
        print(json.dumps({"owns": owned}), flush=True)
    if read:
        print(json.dumps({"read": [int(message.value()) for message in read]}), flush=True)
        try:
            committed = consumer.commit(asynchronous=False)
        except KafkaException:
            # the coordinator is away, or another member has the partitions: the next commit counts
            continue
        print(json.dumps({"committed": {tp.partition: tp.offset for tp in committed if tp.error is None and tp.offset >= 0}}), flush=True)
