"""A member of a share group through confluent-kafka, until it is killed: accepts what it is given, with one record of ten released first.

`python share_member.py TOPIC KEY=VALUE..` prints a line of JSON for what was delivered, [partition, offset, value, delivery count], and one for what the
broker has accepted, [partition, offset].
"""

import json
import sys

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

consumer = ShareConsumer({"share.acknowledgement.mode": "explicit", "log_level": 0} | dict(word.split("=", 1) for word in sys.argv[2:]))
consumer.subscribe([sys.argv[1]])
while True:
    messages = [message for message in consumer.poll(0.1) if message.error() is None]
    if not messages:
        continue
    print(json.dumps({"read": [[message.partition(), message.offset(), int(message.value()), message.delivery_count()] for message in messages]}), flush=True)
    accepted = []
    for message in messages:
        if message.offset() % 10 == 0 and message.delivery_count() == 1:
            consumer.acknowledge(message, AcknowledgeType.RELEASE)
        else:
            consumer.acknowledge(message)
            accepted.append((message.partition(), message.offset()))
    try:
        outcome = {partition.partition: error for partition, error in consumer.commit_sync(5.0).items()}
    except KafkaException:
        # the broker is away: the records come again
        continue
    print(json.dumps({"accepted": [at for at in accepted if outcome.get(at[0], "not answered") is None]}), flush=True)
