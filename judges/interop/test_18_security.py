"""Part 18: users and ACLs: Kafka's own tools print the same against a real broker and against our listener with the same configuration."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, NewTopic, ResourcePatternType, ResourceType

import fletchlog as fl

from . import kafka
from .kraft import Kraft, format_directory

PART = "18 users and ACLs"
RELEASE = kafka.NEWEST
SECURITY = "org.apache.kafka.common.security"
PLAIN_USERS = 'user_admin="admin-secret" user_alice="alice-secret" user_mallory="mallory-secret"'
CONFIG = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{SECURITY}.plain.PlainLoginModule required username="admin" password="admin-secret" {PLAIN_USERS};'
    ),
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}
# what only a real broker needs: it is its own client
REAL = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;",
}
TOOLS = "org.apache.kafka.tools"
CLASSES = {
    "acls": f"{TOOLS}.AclCommand",
    "configs": f"{TOOLS}.ConfigCommand",
    "consume": f"{TOOLS}.consumer.ConsoleConsumer",
    "delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "elect": f"{TOOLS}.LeaderElectionCommand",
    "groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "log-dirs": f"{TOOLS}.LogDirsCommand",
    "offsets": f"{TOOLS}.GetOffsetShell",
    "produce": f"{TOOLS}.ConsoleProducer",
    "reassign": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "topics": f"{TOOLS}.TopicCommand",
    "transactions": f"{TOOLS}.TransactionsCommand",
}
CONFIG_FLAG = {"elect": "--admin.config", "consume": "--consumer.config", "produce": "--producer.config"}


class Step(NamedTuple):
    """A user, a tool, its arguments, its input, and what both brokers let it print at least."""

    user: str
    tool: str
    arguments: str
    wanted: str
    stdin: str = ""


ALICE = "--allow-principal User:alice"
USERS = [
    Step("admin", "topics", "--create --topic orders --partitions 1 --replication-factor 1", r"Created topic orders"),
    Step("admin", "configs", "--alter --entity-type users --entity-name sam --add-config SCRAM-SHA-256=[iterations=8192,password=sam-secret]", r"Completed"),
    Step("admin", "configs", "--alter --entity-type users --entity-name sam --add-config SCRAM-SHA-512=[password=sam-secret]", r"Completed"),
    Step("admin", "configs", "--describe --entity-type users --entity-name sam", r"SCRAM-SHA-256=iterations=8192"),
    Step("admin", "configs", "--describe --entity-type users", r"SCRAM credential configs for user-principal 'sam'"),
    Step("admin", "configs", "--alter --entity-type users --entity-name sam --add-config SCRAM-SHA-256=[iterations=100,password=x]", r"(?i)iterations|error"),
    Step("admin", "configs", "--alter --entity-type users --entity-name nobody --delete-config SCRAM-SHA-256", r"(?i)not exist|does not"),
    Step("admin", "acls", "--add --allow-principal User:sam --operation All --topic * --group *", r"Adding ACLs"),
    Step("sam256", "produce", "--topic orders", r"", stdin="one\ntwo\n"),
    Step("sam512", "consume", "--topic orders --from-beginning --max-messages 2", r"two"),
    Step("oauth", "topics", "--list", r""),
    Step("wrong", "topics", "--list", r"Invalid username or password"),
    Step("wrong256", "topics", "--list", r"due to invalid credentials with SASL mechanism SCRAM-SHA-256"),
    Step("nobody256", "topics", "--list", r"due to invalid credentials with SASL mechanism SCRAM-SHA-256"),
    Step("sam256", "configs", "--describe --entity-type users", r"ClusterAuthorizationException"),
]
ACLS = [
    Step("admin", "topics", "--create --topic orders --partitions 1 --replication-factor 1", r"Created topic orders"),
    Step("admin", "topics", "--create --topic hidden --partitions 1 --replication-factor 1", r"Created topic hidden"),
    Step("alice", "topics", "--list", r"^\s*$"),
    Step("alice", "topics", "--describe --topic orders", r"(?i)not authorized|does not exist"),
    Step("alice", "topics", "--create --topic mine --partitions 1 --replication-factor 1", r"Authorization failed"),
    Step("alice", "topics", "--alter --topic orders --partitions 3", r"(?i)authoriz|does not exist"),
    Step("alice", "topics", "--delete --topic orders", r"(?i)authoriz|does not exist"),
    Step("alice", "produce", "--topic orders", r"TopicAuthorizationException", stdin="x\n"),
    Step("alice", "consume", "--topic orders --group g --timeout-ms 8000", r"(Group|Topic)AuthorizationException"),
    Step("alice", "groups", "--list", r"^\s*$"),
    Step("alice", "groups", "--describe --group g", r"GroupAuthorizationException"),
    Step("alice", "offsets", "--topic orders", r"(?i)authoriz|match"),
    Step("alice", "configs", "--describe --entity-type topics --entity-name orders", r"doesn't exist"),
    Step("alice", "configs", "--describe --entity-type brokers --entity-name 1", r"ClusterAuthorizationException"),
    Step("alice", "configs", "--alter --entity-type topics --entity-name orders --add-config retention.ms=1000", r"(?i)authoriz|doesn't exist"),
    Step("alice", "delete-records", "--offset-json-file {scratch}/delete.json", r"TopicAuthorizationException"),
    Step("alice", "elect", "--election-type preferred --topic orders --partition 0", r"Not authorized"),
    Step("alice", "reassign", "--list", r"ClusterAuthorizationException"),
    Step("alice", "groups", "--delete --group g", r"GroupAuthorizationException"),
    Step("alice", "groups", "--delete-offsets --group g --topic orders", r"AuthorizationException"),
    Step("alice", "groups", "--reset-offsets --to-earliest --group g --topic orders --execute", r"AuthorizationException"),
    Step("alice", "transactions", "describe --transactional-id t", r"authorization failure"),
    Step("alice", "transactions", "describe-producers --topic orders --partition 0", r"TopicAuthorizationException"),
    Step("alice", "log-dirs", "--describe", r"(?i)authoriz"),
    Step("alice", "transactions", "list", r"TransactionalId"),
    Step("alice", "acls", "--list", r"ClusterAuthorizationException"),
    Step("alice", "acls", f"--add {ALICE} --operation All --topic orders", r"ClusterAuthorizationException"),
    Step("admin", "acls", f"--add {ALICE} --operation Read --operation Describe --topic ord --resource-pattern-type prefixed", r"Adding ACLs"),
    Step("admin", "acls", f"--add {ALICE} --producer --topic orders", r"Adding ACLs"),
    Step("admin", "acls", f"--add {ALICE} --operation Read --group g", r"Adding ACLs"),
    Step("admin", "acls", "--add --deny-principal User:mallory --deny-host 127.0.0.1 --operation All --topic *", r"Adding ACLs"),
    Step("admin", "acls", "--add --allow-principal User:mallory --operation All --topic orders", r"Adding ACLs"),
    Step("admin", "acls", "--list", r"name=\*, patternType=LITERAL"),
    Step("admin", "acls", "--list --topic orders --resource-pattern-type match", r"name=ord, patternType=PREFIXED"),
    Step("admin", "acls", "--list --principal User:alice", r"User:alice"),
    Step("alice", "topics", "--list", r"^orders$"),
    Step("alice", "produce", "--topic orders", r"", stdin="one\n"),
    Step("alice", "consume", "--topic orders --group g --from-beginning --max-messages 1", r"^one$"),
    Step("alice", "groups", "--list", r"^g$"),
    Step("alice", "topics", "--delete --topic orders", r"TopicAuthorizationException"),
    Step("mallory", "produce", "--topic orders", r"TopicAuthorizationException", stdin="x\n"),
    Step("admin", "acls", "--remove --force --topic *", r"(?s).*"),
    Step("admin", "acls", "--list --topic *", r"(?s).*"),
    Step("mallory", "produce", "--topic orders", r"", stdin="two\n"),
]


def properties(user: str) -> str:
    """The client's configuration of a user; the name may say the mechanism."""
    name = re.sub(r"(256|512)$", "", user)
    mechanism = {"256": "SCRAM-SHA-256", "512": "SCRAM-SHA-512"}.get(user[-3:], "OAUTHBEARER" if user == "oauth" else "PLAIN")
    login = {"wrong": ("alice", "no-secret"), "wrong256": ("sam", "no-secret")}.get(user, (name, f"{name}-secret"))
    lines = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}"]
    if mechanism == "OAUTHBEARER":
        module = f'{SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="sam"'
    else:
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        module = f'{SECURITY}.{kind}LoginModule required username="{login[0]}" password="{login[1]}"'
    return "\n".join([*lines, f"sasl.jaas.config={module};", "request.timeout.ms=10000", "default.api.timeout.ms=15000", "max.block.ms=15000", ""])


def run(step: Step, address: str, scratch: Path) -> str:
    """What the tool prints, without what differs between two runs."""
    file = scratch / f"{step.user}.properties"
    file.write_text(properties(step.user))
    (scratch / "delete.json").write_text('{"partitions": [{"topic": "orders", "partition": 0, "offset": 0}], "version": 1}')
    classes = ":".join(f"{kafka.jars(*artifact)}/*" for artifact in [("kafka_2.13", RELEASE), ("kafka-tools", RELEASE), kafka.LOGGING])
    flags = ["--bootstrap-server", address, CONFIG_FLAG.get(step.tool, "--command-config"), str(file)]
    command = [*kafka.JVM, "-Xmx256m", "-cp", classes, CLASSES[step.tool], *flags, *step.arguments.format(scratch=scratch).split()]
    ended = subprocess.run(command, input=step.stdin, capture_output=True, text=True, timeout=120, check=False)
    return normal(ended.stdout + ended.stderr)


def normal(printed: str) -> str:
    """Lines without places in Java's code, warnings, times and names of clients; sorted, since sets have no order.

    A Java producer that is closed soon after a refusal complains, or not, about a transaction that it does not have.
    """
    lines = [
        line
        for line in printed.splitlines()
        if not re.match(
            r"\s+at |SLF4J|\s*\.\.\. \d+ more|.*(WARN|INFO) |WARNING|Option --|.*aborting transaction when during closing|.*Transactional method invoked on a non-tr",
            line,
        )
    ]
    text = "\n".join(sorted(line.strip() for line in lines if line.strip()))
    text = re.sub(
        r"\[\d{4}-[^\]]*\]|\(clientId[^)]*\)|\[(Admin|Consumer|Producer)[^\]]*\]|127\.0\.0\.1:\d+|TopicId: \S+|java\.util\.concurrent\.ExecutionException: ",
        "",
        text,
    )
    # Kafka's text shows an object of its broker
    text = re.sub(r"Request Request\(.*?\) needs \w+ permission\.", "Cluster authorization failed.", text)
    # Kafka keeps a user's mechanisms in a map by the identity of an enum: their order changes from run to run
    mechanisms = r"SCRAM-SHA-\d+=iterations=\d+"
    text = re.sub(rf"{mechanisms}(, {mechanisms})+", lambda found: ", ".join(sorted(found[0].split(", "))), text)
    return re.sub(r"ERROR \S+ ?", "ERROR ", text)


@pytest.mark.parametrize("part", ["users", "acls"])
@pytest.mark.timeout(1200)
def test_tools_print_the_same_against_a_real_broker(part: str, scratch: Path, count: Callable[..., None]) -> None:
    steps = {"users": USERS, "acls": ACLS}[part]
    directory = format_directory(scratch / "data")
    with (
        Kraft(RELEASE, directory, scratch, config=CONFIG | REAL, protocol="SASL_PLAINTEXT") as real,
        fl.Broker.in_memory(config=CONFIG | {"group.initial.rebalance.delay.ms": "0"}) as broker,
        broker.listen(config={"security.protocol": "SASL_PLAINTEXT"}) as ours,
    ):
        differ = []
        for step in steps:
            expected, printed = run(step, real.address, scratch), run(step, ours.bootstrap, scratch)
            if printed != expected or not re.search(step.wanted, expected, re.MULTILINE):
                differ.append(f"{step.user}: {step.tool} {step.arguments}\n--- real\n{expected[:900]}\n--- ours\n{printed[:900]}")
        assert not differ, f"{len(differ)} of {len(steps)} differ:\n" + "\n\n".join(differ)
    count(PART, tools_compared=len(steps))


GROUP_CONFIG = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}


def matched(address: str, scratch: Path) -> list[set[str]]:
    """The topics that an expression of a consumer group has, as members with different permissions have it resolved."""
    scratch.mkdir()

    def of(user: str, **more: object) -> dict[str, object]:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": f"{user}-secret"}
        return {"bootstrap.servers": address, "log_level": 0, **login, **more}

    def member(user: str) -> Consumer:
        consumer = Consumer(of(user, **{"group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest"}))
        consumer.subscribe(["^ord-.*"])
        return consumer

    def assigned(wanted: set[str], *members: Consumer) -> set[str]:
        """What they have together, when it is as wanted, or in the end. A client does not tell of a topic that it may not describe; the coordinator does."""
        end = time.monotonic() + 60
        described = Step("admin", "groups", "--describe --group g --members --verbose", "")
        while True:
            printed = run(described, address, scratch)
            found = set(re.findall(r"ord-[a-d]", printed))
            if time.monotonic() > end or (found == wanted and len(re.findall(r"^g ", printed, re.MULTILINE)) == len(members)):
                return found
            for consumer in members:
                consumer.poll(0.1)

    def create(*topics: str) -> None:
        for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            made.result(30)

    admin = AdminClient(of("admin"))
    create("ord-a", "ord-b", "ord-c")
    allowed = [(ResourceType.GROUP, user, "g") for user in ("alice", "mallory")]
    allowed += [(ResourceType.TOPIC, user, f"ord-{letter}") for user, letters in (("alice", "ab"), ("mallory", "bc")) for letter in letters]
    for kind, user, name in allowed:
        acl = AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.READ, AclPermissionType.ALLOW)
        for made in admin.create_acls([acl]).values():
            made.result(30)
    alice = member("alice")
    found = [assigned({"ord-a", "ord-b"}, alice)]
    # for a new member too it has what the first one may see
    mallory = member("mallory")
    found.append(assigned({"ord-a", "ord-b"}, alice, mallory))
    alice.close()
    found.append(assigned({"ord-a", "ord-b"}, mallory))
    # more than ten seconds later a new topic has it resolved again, for the member that is left
    time.sleep(11)
    create("ord-d")
    found.append(assigned({"ord-b", "ord-c"}, mallory))
    mallory.close()
    return found


@pytest.mark.timeout(600)
def test_an_expression_matches_what_members_may_see_as_on_a_real_broker(scratch: Path, count: Callable[..., None]) -> None:
    directory = format_directory(scratch / "data")
    with (
        Kraft(RELEASE, directory, scratch, config=CONFIG | REAL | GROUP_CONFIG, protocol="SASL_PLAINTEXT") as real,
        fl.Broker.in_memory(config=CONFIG | GROUP_CONFIG) as broker,
        broker.listen(config={"security.protocol": "SASL_PLAINTEXT"}) as ours,
        ThreadPoolExecutor() as pool,
    ):
        expected, found = pool.map(matched, [real.address, ours.bootstrap], [scratch / "real", scratch / "ours"])
    assert found == expected == [{"ord-a", "ord-b"}, {"ord-a", "ord-b"}, {"ord-a", "ord-b"}, {"ord-b", "ord-c"}]
    count(PART, expressions=1)
