"""Clients say who they are before a listener serves them, with the mechanisms of Kafka, and do what ACLs allow."""

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import fletchlog as fl

CLIENTS = Path(__file__).parent / "clients"
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="b,=\\"x";'
    ),
}


def sasl(kafka, user="alice", password="alice-secret", mechanism="PLAIN"):
    """librdkafka's properties of a client."""
    return {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.fixture
def broker():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("orders")
        yield broker


def refusal(config):
    """The first error of a client, and when it came."""
    errors = []
    began = time.monotonic()
    client = AdminClient(config | {"error_cb": errors.append})
    while not errors and time.monotonic() - began < 3:
        client.poll(0.05)
    return errors[0], time.monotonic() - began


def round_trip(config):
    """What a client produces and reads."""
    producer = confluent_kafka.Producer(config)
    producer.produce("orders", b"v")
    assert producer.flush(10) == 0
    consumer = confluent_kafka.Consumer(config | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(10)
    consumer.close()
    return message.value()


@pytest.mark.parametrize(("user", "password"), [("alice", "alice-secret"), ("bob", 'b,="x')])
def test_plain_lets_in_users_who_know_the_password(broker, user, password):
    with broker.listen(config=PLAIN) as kafka:
        assert round_trip(sasl(kafka, user, password)) == b"v"


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("carol", "alice-secret")])
def test_a_wrong_password_is_the_named_error_within_a_second(broker, user, password):
    with broker.listen(config=PLAIN) as kafka:
        error, seconds = refusal(sasl(kafka, user, password))
    assert error.code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "Invalid username or password" in error.str()
    assert 0.1 <= seconds < 1, "not before connection.failed.authentication.delay.ms, and no hang"


@pytest.mark.parametrize("api", ["SaslHandshake", "SaslAuthenticate"])
def test_a_rule_lets_the_authentication_of_a_right_password_fail(broker, api):
    """Once; the client that asks again is let in."""
    errors = {"SaslHandshake": "UNSUPPORTED_SASL_MECHANISM", "SaslAuthenticate": "SASL_AUTHENTICATION_FAILED"}
    with broker.listen(config=PLAIN) as kafka:
        rule = kafka.faults.on(api=api, nth=1).error(errors[api])
        error, _ = refusal(sasl(kafka))
        assert error.code() == confluent_kafka.KafkaError._AUTHENTICATION
        assert rule.applied == 1
        assert round_trip(sasl(kafka)) == b"v"


def test_a_mechanism_that_is_not_offered_is_named(broker):
    with broker.listen(config=PLAIN) as kafka:
        error, _ = refusal(sasl(kafka, mechanism="SCRAM-SHA-256"))
    assert error.code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "mechanism" in error.str().lower()


def kafka_python(kafka, mechanism, user, password):
    """The topics that kafka-python sees, or the name of its error: in a process of its own, since it warns."""
    command = [sys.executable, CLIENTS / "kafka_python_sasl.py", kafka.bootstrap, mechanism, user, password]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


@pytest.mark.slow
def test_kafka_python_authenticates_and_is_refused(broker):
    with broker.listen(config=PLAIN) as kafka:
        assert kafka_python(kafka, "PLAIN", "alice", "alice-secret") == ["orders"]
        assert kafka_python(kafka, "PLAIN", "alice", "wrong") in {"SaslAuthenticationFailedError", "KafkaTimeoutError"}


def test_a_client_without_sasl_is_not_served(broker):
    with broker.listen(config=PLAIN) as kafka, pytest.raises(confluent_kafka.KafkaException):
        AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=2)


def test_listeners_of_a_broker_differ(broker):
    with broker.listen() as plaintext, broker.listen(config=PLAIN) as with_sasl:
        assert round_trip({"bootstrap.servers": plaintext.bootstrap}) == b"v"
        assert "orders" in AdminClient(sasl(with_sasl)).list_topics(timeout=5).topics


@pytest.mark.slow
def test_librdkafka_authenticates_again_before_its_session_ends(broker):
    """KIP-368: its connection is not closed."""
    with broker.listen(config=PLAIN | {"connections.max.reauth.ms": "4000"}) as kafka:
        closed = []
        client = AdminClient(sasl(kafka) | {"error_cb": closed.append})
        until = time.monotonic() + 9
        while time.monotonic() < until:
            assert "orders" in client.list_topics(timeout=5).topics
            client.poll(0.2)
        requests = {row["api"]: row["requests"] for row in kafka.stats().to_pyarrow().to_pylist()}
    assert requests["SaslAuthenticate"] >= 3
    assert not closed


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.enabled.mechanisms"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN"}, "plain.sasl.jaas.config"),
        (PLAIN | {"plain.sasl.jaas.config": "X required user_a=hidden1"}, "semi-colon"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI"),
        ({"num.partitions": "3"}, "not of a listener"),
    ],
)
def test_what_a_listener_lacks_is_said_without_a_secret(broker, config, text):
    with pytest.raises(fl.errors.ConfigError, match=text) as raised:
        broker.listen(config=config)
    assert "hidden1" not in str(raised.value)


def test_passwords_are_not_shown_anywhere(caplog):
    with fl.Broker.in_memory(config=PLAIN) as broker, broker.listen() as kafka:
        _error, _ = refusal(sasl(kafka, password="wrong-secret"))
        admin = AdminClient(sasl(kafka))
        resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ResourceType.BROKER, "1")
        described = next(iter(admin.describe_configs([resource]).values())).result(10)
        entry = described["plain.sasl.jaas.config"]
        assert (entry.value, entry.is_sensitive) == (None, True)
        shown = [
            broker,
            kafka,
            broker.describe_config(),
            kafka.stats(),
            kafka.last_requests().to_pyarrow().to_pylist(),
            *caplog.messages,
            *map(str, described.values()),
        ]
    assert not [one for one in shown if "secret" in repr(one)]


SCRAM = {"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_lets_in_users_who_know_the_password(broker, mechanism):
    broker.upsert_user_scram_credential("a=l,ice", "pä ss,=", mechanism)
    with broker.listen(config=SCRAM) as kafka:
        assert round_trip(sasl(kafka, "a=l,ice", "pä ss,=", mechanism)) == b"v"
        for user, password in [("a=l,ice", "wrong"), ("carol", "pä ss,=")]:
            error, seconds = refusal(sasl(kafka, user, password, mechanism))
            assert error.code() == confluent_kafka.KafkaError._AUTHENTICATION
            assert f"due to invalid credentials with SASL mechanism {mechanism}" in error.str()
            assert seconds < 1


def test_kafka_python_speaks_scram(broker):
    broker.upsert_user_scram_credential("alice", "secret")
    with broker.listen(config=SCRAM) as kafka:
        assert kafka_python(kafka, "SCRAM-SHA-256", "alice", "secret") == ["orders"]


def test_users_are_in_the_directory_and_their_passwords_are_not(tmp_path):
    with fl.Broker(tmp_path) as broker:
        broker.upsert_user_scram_credential("alice", "a-password")
        broker.upsert_user_scram_credential("alice", "another", "SCRAM-SHA-512", 8192)
        with pytest.raises(fl.errors.KafkaError) as raised:
            broker.upsert_user_scram_credential("bob", "a-password", iterations=100)
        assert raised.value.code == 93
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"a-password" in path.read_bytes()]
    with fl.Broker(tmp_path) as broker:
        assert broker.describe_user_scram_credentials() == {"alice": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192}}
        with broker.listen(config=SCRAM) as kafka:
            assert "orders" not in AdminClient(sasl(kafka, "alice", "a-password", "SCRAM-SHA-256")).list_topics(timeout=5).topics
        broker.delete_user_scram_credential("alice")
        with pytest.raises(fl.errors.KafkaError, match="does not exist"):
            broker.delete_user_scram_credential("alice")
        assert broker.describe_user_scram_credentials() == {"alice": {"SCRAM-SHA-512": 8192}}


def test_users_are_altered_and_described_over_the_wire(broker):
    info = confluent_kafka.admin.ScramCredentialInfo(confluent_kafka.admin.ScramMechanism.SCRAM_SHA_256, 5000)
    with broker.listen(config=SCRAM) as with_sasl, broker.listen() as plaintext:
        admin = AdminClient({"bootstrap.servers": plaintext.bootstrap})
        upsertion = confluent_kafka.admin.UserScramCredentialUpsertion("alice", info, b"over-the-wire")
        assert admin.alter_user_scram_credentials([upsertion])["alice"].result(10) is None
        assert round_trip(sasl(with_sasl, "alice", "over-the-wire", "SCRAM-SHA-256")) == b"v"
        described = admin.describe_user_scram_credentials(["alice"])["alice"].result(10)
        assert [(one.mechanism.name, one.iterations) for one in described.scram_credential_infos] == [("SCRAM_SHA_256", 5000)]
        deletion = confluent_kafka.admin.UserScramCredentialDeletion("bob", confluent_kafka.admin.ScramMechanism.SCRAM_SHA_256)
        with pytest.raises(confluent_kafka.KafkaException, match="does not exist"):
            admin.alter_user_scram_credentials([deletion])["bob"].result(10)


def token(claims, alg="none"):
    """A JWT without a signature."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": alg}, claims)]
    return ".".join([*parts, ""])


def oauth(kafka, claims, alg="none"):
    """librdkafka's properties of a client with a token."""
    text = token(claims, alg)
    return {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _config: (text, time.time() + 3600, "alice", {}),
    }


@pytest.mark.slow
def test_oauthbearer_lets_in_clients_that_have_a_valid_token(broker):
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.jaas.config": 'OAuthBearerLoginModule required unsecuredValidatorRequiredScope="kafka";',
    }
    now = time.time()
    with broker.listen(config=config) as kafka:
        assert round_trip(oauth(kafka, {"sub": "alice", "exp": now + 60, "scope": "kafka"})) == b"v"
        for claims, alg, status in [
            ({"sub": "alice", "exp": now - 1, "scope": "kafka"}, "none", "invalid_token"),
            ({"sub": "alice", "exp": now + 60, "scope": "kafka"}, "HS256", "invalid_token"),
            ({"sub": "alice", "exp": now + 60}, "none", "insufficient_scope"),
        ]:
            error, seconds = refusal(oauth(kafka, claims, alg))
            assert error.code() == confluent_kafka.KafkaError._AUTHENTICATION
            assert status in error.str()
            assert seconds < 2, "librdkafka takes its token once a second"


def acl(kind, name, pattern, user, operation, permission="ALLOW"):
    """An ACL of confluent-kafka."""
    admin = confluent_kafka.admin
    return admin.AclBinding(
        admin.ResourceType[kind],
        name,
        admin.ResourcePatternType[pattern],
        f"User:{user}",
        "*",
        admin.AclOperation[operation],
        admin.AclPermissionType[permission],
    )


@pytest.fixture
def guarded():
    """A listener whose users are root (a super user) and alice, and an administrator."""
    config = PLAIN | {
        "plain.sasl.jaas.config": "PlainLoginModule required user_root=r user_alice=a;",
        "authorizer.class.name": STANDARD,
        "super.users": "User:root;User:other",
    }
    with fl.Broker.in_memory(config=config) as broker:
        for topic in ("orders", "orders-2", "secret"):
            broker.create_topic(topic)
        with broker.listen() as kafka:
            yield kafka, AdminClient(sasl(kafka, "root", "r"))


def allow(admin, *bindings):
    """Creates ACLs."""
    for future in admin.create_acls(list(bindings)).values():
        future.result(10)


def delivery_error(config, topic):
    """Why a record is not delivered."""
    errors = []
    producer = confluent_kafka.Producer(config | {"message.timeout.ms": 8000})
    producer.produce(topic, b"v", on_delivery=lambda error, _message: errors.append(error))
    producer.flush(10)
    return errors[0].name() if errors[0] else None


@pytest.mark.slow
def test_a_client_sees_and_does_what_acls_allow(guarded):
    kafka, admin = guarded
    alice = sasl(kafka, "alice", "a")
    assert set(AdminClient(alice).list_topics(timeout=5).topics) == set()
    assert delivery_error(alice, "orders") == "TOPIC_AUTHORIZATION_FAILED"
    allow(admin, acl("TOPIC", "orders", "PREFIXED", "alice", "READ"), acl("TOPIC", "orders", "LITERAL", "alice", "WRITE"))
    assert set(AdminClient(alice).list_topics(timeout=5).topics) == {"orders", "orders-2"}
    assert delivery_error(alice, "orders") is None
    assert delivery_error(alice, "orders-2") == "TOPIC_AUTHORIZATION_FAILED"
    consumer = confluent_kafka.Consumer(alice | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert consumer.poll(10).error().name() == "GROUP_AUTHORIZATION_FAILED"
    allow(admin, acl("GROUP", "g", "LITERAL", "alice", "READ"))
    consumer.subscribe(["orders"])
    values = [message for _ in range(20) if (message := consumer.poll(1)) is not None and message.error() is None]
    assert values[0].value() == b"v"
    consumer.close()
    allow(admin, acl("TOPIC", "orders", "LITERAL", "alice", "ALL", "DENY"))
    assert delivery_error(alice, "orders") == "TOPIC_AUTHORIZATION_FAILED"


def test_a_reader_whose_permission_ends_reads_no_more(guarded):
    kafka, admin = guarded
    alice = sasl(kafka, "alice", "a")
    allow(admin, acl("TOPIC", "secret", "LITERAL", "alice", "READ"), acl("GROUP", "g", "LITERAL", "alice", "READ"))
    consumer = confluent_kafka.Consumer(alice | {"group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition("secret", 0, 0)])
    assert delivery_error(sasl(kafka, "root", "r"), "secret") is None
    assert consumer.poll(10).value() == b"v"
    allow(admin, acl("TOPIC", "secret", "LITERAL", "alice", "READ", "DENY"))
    assert delivery_error(sasl(kafka, "root", "r"), "secret") is None
    message = consumer.poll(10)
    assert message.error().name() == "TOPIC_AUTHORIZATION_FAILED"
    consumer.close()


def test_administration_needs_permission(guarded):
    kafka, admin = guarded
    new = confluent_kafka.admin.NewTopic
    alice = AdminClient(sasl(kafka, "alice", "a"))

    def code(futures):
        error = next(iter(futures.values())).exception(10)
        return error and error.args[0].name()

    assert code(alice.create_topics([new("made", 1)])) == "TOPIC_AUTHORIZATION_FAILED"
    assert code(alice.delete_topics(["orders"])) == "TOPIC_AUTHORIZATION_FAILED"
    assert code(alice.create_acls([acl("TOPIC", "orders", "LITERAL", "alice", "ALL")])) == "CLUSTER_AUTHORIZATION_FAILED"
    anything = confluent_kafka.admin.AclBindingFilter(
        confluent_kafka.admin.ResourceType.ANY,
        None,
        confluent_kafka.admin.ResourcePatternType.ANY,
        None,
        None,
        confluent_kafka.admin.AclOperation.ANY,
        confluent_kafka.admin.AclPermissionType.ANY,
    )
    assert alice.describe_acls(anything).result(10) == [], "confluent-kafka does not raise the error of the answer"
    allow(admin, acl("BROKER", "kafka-cluster", "LITERAL", "alice", "CREATE"), acl("TOPIC", "ord", "PREFIXED", "alice", "DELETE"))
    assert code(alice.create_topics([new("made", 1)])) is None
    assert code(alice.delete_topics(["orders"])) is None
    assert {binding.name for binding in admin.describe_acls(anything).result(10)} == {"kafka-cluster", "ord"}
    assert {binding.name for future in admin.delete_acls([anything]).values() for binding in future.result(10)} == {"kafka-cluster", "ord"}
    assert admin.describe_acls(anything).result(10) == []


def test_acls_survive_a_restart(tmp_path):
    config = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    rule = acl("TOPIC", "orders", "LITERAL", "alice", "READ")
    with fl.Broker(tmp_path, config=config) as broker, broker.listen() as kafka:
        allow(AdminClient({"bootstrap.servers": kafka.bootstrap}), rule)
    filter_ = confluent_kafka.admin.AclBindingFilter(
        confluent_kafka.admin.ResourceType.TOPIC,
        "orders",
        confluent_kafka.admin.ResourcePatternType.MATCH,
        None,
        None,
        confluent_kafka.admin.AclOperation.ANY,
        confluent_kafka.admin.AclPermissionType.ANY,
    )
    with fl.Broker(tmp_path, config=config) as broker, broker.listen() as kafka:
        assert AdminClient({"bootstrap.servers": kafka.bootstrap}).describe_acls(filter_).result(10) == [rule]


def test_the_command_line_keeps_users(tmp_path):
    def users(*words, **options):
        command = [sys.executable, "-m", "fletchlog", "users", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)
        assert "secret-1" not in done.stdout + done.stderr
        return done

    assert users("add", tmp_path / "data", "alice", input="secret-1\n").returncode == 0
    assert json.loads(users("list", tmp_path / "data", "--json").stdout) == {"alice": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}
    assert users("remove", tmp_path / "data", "bob").returncode == 1
    assert users("remove", tmp_path / "data", "alice").returncode == 0
    assert json.loads(users("list", tmp_path / "data", "--json").stdout) == {}
    assert users("add", tmp_path / "data", "alice", input="").returncode == 1
