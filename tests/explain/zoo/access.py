"""Programs that may not do what they do."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

import fletchlog as fl
from tests.explain.zoo import program
from tests.explain.zoo.clients import asked, consumer, polled, producer, read

if TYPE_CHECKING:
    from pytest_fletchlog.kafka import Kafka

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@program("not-authorized", authorizer_class_name=AUTHORIZER)
def may_not_write(kafka: Kafka, at: str, sick: bool) -> None:
    """The user of a new service has no ACL of the topic."""
    topic = kafka.topic(name="orders")
    rights = ["DESCRIBE"] if sick else ["DESCRIBE", "WRITE"]
    kafka.broker.create_acls([fl.admin.AclBinding("TOPIC", topic, "User:ANONYMOUS", right) for right in rights])
    writer = producer(at, message_timeout_ms=3000)
    writer.produce(topic, "1")
    writer.flush(10)


@program("not-authorized", authorizer_class_name=AUTHORIZER)
def may_not_join_the_group(kafka: Kafka, at: str, sick: bool) -> None:
    """A group.id that the user's ACLs do not cover."""
    topic = kafka.topic(name="orders")
    acls = [fl.admin.AclBinding("TOPIC", topic, "User:ANONYMOUS", right) for right in ("DESCRIBE", "READ", "WRITE")]
    acls.append(fl.admin.AclBinding("GROUP", "other" if sick else "shop", "User:ANONYMOUS", "READ"))
    kafka.broker.create_acls(acls)
    kafka.produce(topic, ["1"] * 12)
    with consumer(at, [topic]) as reader, contextlib.suppress(KafkaException):
        read(reader, 0 if sick else 12)
        polled(lambda: not sick or asked(kafka, "FindCoordinator") > 1, reader)
