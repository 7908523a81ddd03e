"""Kafka's 0.8 high-level consumer: a group whose partitions are dealt to streams, each read by a thread of its own.

```python
consumer = fl.legacy.LegacyConsumer(broker, {"group.id": "g"})
streams = consumer.create_message_streams({"orders": 2})["orders"]
```
"""

from fletchlog._core import LegacyConsumer, LegacyStream

__all__ = ["LegacyConsumer", "LegacyStream"]
