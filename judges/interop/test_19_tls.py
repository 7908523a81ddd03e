"""Part 19: TLS and SASL between our clients and real brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

import fletchlog as fl
from fletchlog.errors import SaslAuthenticationError, SslAuthenticationError
from tests.support.certificates import Authority

from . import kafka
from .kraft import Kraft, format_directory
from .rows import text

PART = "19 TLS and SASL of real brokers"
PASSWORD = "s3cret of alice"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
# a listener whose certificate has expired
EXPIRED = "EXPIRED"
# how soon an error has to be there, in one of so many tries: another may meet a busy machine
SECONDS, TRIES = 1.0, 5


class Secured:
    """A running broker, its authorities, and what a client needs."""

    def __init__(self, broker: Kraft, authority: Authority) -> None:
        self.broker = broker
        self.authority = authority
        self.alice = authority.issue("alice")[0]
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("t", num_partitions=3, replication_factor=1)])["t"].result(30)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([change])["alice"].result(30)

    def tls(self, **more: str) -> dict[str, Any]:
        """A client with a certificate."""
        config = {"bootstrap.servers": self.broker.address_of("SSL"), "security.protocol": "SSL"}
        config |= {"ssl.truststore.location": self.authority.file, "ssl.keystore.location": self.alice}
        return config | {name.replace("_", "."): value for name, value in more.items()}

    def sasl(self, protocol: str, mechanism: str) -> dict[str, Any]:
        """A client with a user."""
        config = {"bootstrap.servers": self.broker.address_of(protocol), "security.protocol": protocol, "sasl.mechanism": mechanism}
        if protocol == "SASL_SSL":
            config["ssl.truststore.location"] = self.authority.file
        if mechanism == "OAUTHBEARER":
            return config | {"sasl.jaas.config": f'{OAUTH} required unsecuredLoginStringClaim_sub="alice";'}
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        return config | {"sasl.jaas.config": f'{module} required username="alice" password="{PASSWORD}";'}


def broker_config(authority: Authority) -> dict[str, str]:
    """Of a broker with every protocol and every mechanism."""
    config = {
        "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", *(f"{p}:{p}" for p in PROTOCOLS), f"{EXPIRED}:SSL"]),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("broker", ("127.0.0.1", "localhost"))[0],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.file,
        "listener.name.expired.ssl.keystore.location": authority.issue("old-broker", ("127.0.0.1", "localhost"), not_before=-9, not_after=-1)[0],
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    }
    for protocol in ("sasl_plaintext", "sasl_ssl"):
        of = f"listener.name.{protocol}"
        config[f"{of}.plain.sasl.jaas.config"] = f'{PLAIN} required user_alice="{PASSWORD}";'
        config[f"{of}.scram-sha-256.sasl.jaas.config"] = f"{SCRAM} required;"
        config[f"{of}.scram-sha-512.sasl.jaas.config"] = f"{SCRAM} required;"
        config[f"{of}.oauthbearer.sasl.jaas.config"] = f'{OAUTH} required unsecuredLoginStringClaim_sub="broker";'
    return config | {"connections.max.reauth.ms": "3000"}


@pytest.fixture(scope="module", params=kafka.SERVERS)
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker of each release."""
    scratch: Path = tmp_path_factory.mktemp("secured")
    authority = Authority(scratch)
    with Kraft(request.param, format_directory(scratch / "data"), scratch, config=broker_config(authority), secure=(*PROTOCOLS, EXPIRED)) as broker:
        yield Secured(broker, authority)


def round_trip(config: dict[str, Any], group: str) -> None:
    """A producer, a member of a group and a cluster's question, all with this configuration."""
    with fl.Producer(config) as producer:
        sent = {(group.encode(), b"%d" % i + b"x" * 5000) for i in range(300)}
        for key, value in sent:
            producer.send("t", key=key, value=value)
        producer.flush()
    with fl.Consumer(config | {"group.id": group, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["t"])
        read: set[tuple[bytes, bytes]] = set()
        end = time.monotonic() + 60
        while not sent <= read:
            assert time.monotonic() < end, f"{len(read)} records"
            read |= {(record.key, record.value) for record in consumer.poll(timeout_ms=1000)}
        consumer.commit()
    with fl.Cluster(config) as cluster:
        assert "t" in cluster.topics()


def fails(config: dict[str, Any], wanted: type[Exception], seconds: float = SECONDS) -> str:
    """What a poll fails with, and that it does so at once."""
    took = []
    while True:
        with fl.Consumer(config) as consumer:
            consumer.assign([fl.TopicPartition("t", 0)])
            begun = time.monotonic()
            with pytest.raises(wanted) as caught:
                consumer.poll(timeout_ms=30_000)
            took.append(time.monotonic() - begun)
        assert "s3cret" not in str(caught.value)
        if took[-1] < seconds:
            return str(caught.value)
        assert len(took) < TRIES, f"{caught.value} after {took} s"


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_with_a_certificate_reads_and_writes(secured: Secured, version: str, count: Callable[..., None]) -> None:
    round_trip(secured.tls(ssl_enabled_protocols=version), f"tls-{version}")
    count(PART, clients_over_tls=1)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_reads_and_writes(secured: Secured, protocol: str, mechanism: str, count: Callable[..., None]) -> None:
    round_trip(secured.sasl(protocol, mechanism), f"{protocol}-{mechanism}")
    count(PART, clients_of_sasl=1)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_session_is_renewed_before_it_ends(secured: Secured, mechanism: str, count: Callable[..., None]) -> None:
    """The broker closes the connection of a client that does not authenticate again within 3 s."""
    config = secured.sasl("SASL_SSL", mechanism)
    with fl.Producer(config) as producer:
        end = time.monotonic() + 8
        while time.monotonic() < end:
            producer.send("t", value=b"v").result()
            time.sleep(0.05)
    count(PART, sessions_renewed=1)


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password_is_the_same_error_at_once(secured: Secured, mechanism: str, count: Callable[..., None]) -> None:
    config = secured.sasl("SASL_SSL", mechanism)
    config["sasl.jaas.config"] = config["sasl.jaas.config"].replace(PASSWORD, "s3cret of nobody")
    text = fails(config, SaslAuthenticationError)
    assert f"SASL {mechanism}, user `alice`: Authentication failed" in text
    count(PART, named_errors=1)


def test_what_does_not_fit_is_named_at_once(secured: Secured, tmp_path: Path, count: Callable[..., None]) -> None:
    foreign = Authority(tmp_path, "foreign")
    tls = secured.tls()
    assert "give ssl.keystore.location" in fails({k: v for k, v in tls.items() if k != "ssl.keystore.location"}, SslAuthenticationError)
    assert "does not accept the certificate" in fails(tls | {"ssl.keystore.location": foreign.issue("mallory")[0]}, SslAuthenticationError)
    assert "not trusted" in fails(tls | {"ssl.truststore.location": foreign.file}, SslAuthenticationError)
    assert "the broker speaks TLS" in fails({"bootstrap.servers": tls["bootstrap.servers"]}, SslAuthenticationError)
    assert "may not speak TLS" in fails(tls | {"bootstrap.servers": secured.broker.address}, SslAuthenticationError)
    # a broker that closes a connection may only be starting: it is asked again, five times with the back-off, before it is named,
    # and a broker of 3.9 takes 0.4 s to close each
    assert "may expect SASL" in fails({"bootstrap.servers": secured.broker.address_of("SASL_PLAINTEXT")}, SaslAuthenticationError, 3 * SECONDS)
    sasl = secured.sasl("SASL_PLAINTEXT", "PLAIN")
    assert "does not use SASL on this port" in fails(sasl | {"bootstrap.servers": secured.broker.address}, SaslAuthenticationError)
    count(PART, named_errors=7)


def test_a_certificate_that_has_expired_is_named_at_once(secured: Secured, count: Callable[..., None]) -> None:
    tls = secured.tls()
    assert "has expired" in fails(tls | {"bootstrap.servers": secured.broker.address_of(EXPIRED)}, SslAuthenticationError)
    old = secured.authority.issue("old-alice", not_before=-9, not_after=-1)[0]
    assert "does not accept the certificate" in fails(tls | {"ssl.keystore.location": old}, SslAuthenticationError)
    count(PART, named_errors=2)


@pytest.mark.parametrize("client", kafka.SERVERS)
@pytest.mark.parametrize(("protocol", "mechanism"), [("SSL", ""), *(("SASL_SSL", mechanism) for mechanism in MECHANISMS)])
def test_a_java_client_writes_and_reads_over_our_listener(client: str, protocol: str, mechanism: str, tmp_path: Path, count: Callable[..., None]) -> None:
    authority = Authority(tmp_path)
    java = {"security.protocol": protocol, "ssl.truststore.type": "PEM", "ssl.truststore.location": authority.file}
    config = {"ssl.keystore.location": authority.issue("broker", ("127.0.0.1", "localhost"))[0], "ssl.truststore.location": authority.file}
    if mechanism:
        module = {"PLAIN": PLAIN, "OAUTHBEARER": OAUTH}.get(mechanism, SCRAM)
        login = f'username="alice" password="{PASSWORD}"' if module != OAUTH else 'unsecuredLoginStringClaim_sub="alice"'
        java |= {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {login};"}
        config |= {"sasl.enabled.mechanisms": mechanism, "plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";'}
        config["oauthbearer.sasl.jaas.config"] = f"{OAUTH} required;"
    else:
        config["ssl.client.auth"] = "required"
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": authority.issue("alice")[0]}
    values = [b"%d" % number * 500 for number in range(200)]
    lines = ["topic t 3", "producer p acks=all", *(f"send p t {i % 3} -1 - x{value.hex()}" for i, value in enumerate(values)), "close p"]
    properties = [f"{name}={value}" for name, value in java.items()]
    artifacts = kafka.server(client)  # the clients alone have no JSON, which OAUTHBEARER needs
    with fl.Broker.in_memory(config=config) as broker:
        if mechanism.startswith("SCRAM"):
            broker.upsert_user_scram_credential("alice", PASSWORD, mechanism)
        with broker.listen(config={"security.protocol": protocol}) as listener:
            written = kafka.run("clients", artifacts, "Write", listener.bootstrap, *properties, stdin="\n".join(lines) + "\n")
            assert written.splitlines() == [f"t {i % 3} {i // 3}" for i in range(200)]
            read = kafka.run("clients", artifacts, "ReadAll", f"bootstrap.servers={listener.bootstrap}", *properties)
            rows = [line.split(" ") for line in read.splitlines() if line.startswith("record ")]
            assert sorted((int(p), int(offset), value) for _, _, p, offset, _, _, _, value, _ in rows) == sorted(
                (i % 3, i // 3, text(value)) for i, value in enumerate(values)
            )
    count(PART, java_clients_on_our_listener=1)


def test_librdkafka_and_our_clients_read_the_same(secured: Secured, count: Callable[..., None]) -> None:
    """The same properties, librdkafka's names."""
    config = {
        "bootstrap.servers": secured.broker.address_of("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": secured.authority.file,
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    with fl.Producer(config) as producer:
        at = producer.send("t", value=b"same", partition=2).result().offset
    theirs = ck.Consumer(config | {"group.id": "theirs"})
    theirs.assign([ck.TopicPartition("t", 2, at)])
    message = theirs.poll(30)
    assert message is not None
    assert message.value() == b"same"
    theirs.close()
    count(PART, clients_of_sasl=1)
