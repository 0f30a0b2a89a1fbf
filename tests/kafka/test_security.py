"""A secured cluster is reached by every client with one description: TLS with our own authority, SASL with a password.

The broker is real, and so are its certificates; the same `Connection` is used by confluent-kafka and by Spark.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from headrace.dev import SPARK_CONNECTOR, EmbeddedBroker, JarCache, ServerSettings
from headrace.dev.ports import free_port
from headrace.errors import BrokerError
from headrace.kafka import Connection, Consumer, Producer, Topics, TopicSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates"),
]

PASSWORD = 'pa"ss\\word; required'
TOPIC = "secret"


class Secured(NamedTuple):
    """A broker with a secured listener, and the certificates for it."""

    inside: Connection
    outside: str
    certificates: Path

    def connection(self, **changes: object) -> Connection:
        settings: dict[str, object] = {
            "bootstrap": self.outside,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": PASSWORD,
            "tls_ca": self.certificates / "ca.pem",
        }
        return Connection(**(settings | changes))  # type: ignore[arg-type]


def openssl(*arguments: str, cwd: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


def make_certificates(directory: Path) -> None:
    new_key = ("-newkey", "rsa:2048", "-nodes")
    openssl(
        "req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=ca", cwd=directory
    )
    (directory / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", cwd=directory)
        sign = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
        openssl("x509", "-req", "-in", f"{name}.csr", *sign, "-out", f"{name}.pem", cwd=directory)
    both = (directory / "server.key").read_text() + (directory / "server.pem").read_text()
    (directory / "keystore.pem").write_text(both)


def jaas(module: str, options: str = "") -> str:
    return f"org.apache.kafka.common.security.{module} required {options};"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory)
    plain, secure, controller = free_port(), free_port(), free_port()
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "keystore.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "requested",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": jaas("plain.PlainLoginModule", f'user_alice="{quoted}"'),
        "listener.name.secure.scram-sha-512.sasl.jaas.config": jaas("scram.ScramLoginModule"),
    }
    data = tmp_path_factory.mktemp("secured")
    with EmbeddedBroker(ServerSettings(data_dir=data, port=plain, properties=properties)) as broker:
        Topics(broker.connection).ensure([TopicSpec(name=TOPIC, partitions=1)])
        yield Secured(broker.connection, f"127.0.0.1:{secure}", directory)


def test_a_login_over_tls(secured: Secured) -> None:
    connection = secured.connection()
    assert connection.check() == 1
    with Producer(connection) as producer:
        producer.send(TOPIC, b"whisper")
    with Consumer(connection, [TOPIC]) as consumer:
        assert b"whisper" in [record.value for record in consumer]
    assert TOPIC in [topic.name for topic in Topics(connection).overview()]


def test_a_login_with_scram_and_a_client_certificate(secured: Secured) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    bob = UserScramCredentialUpsertion("bob", credential, b"builder")
    admin = AdminClient(secured.inside.client_config())
    for done in admin.alter_user_scram_credentials([bob]).values():
        done.result(10)
    connection = secured.connection(
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="bob",
        sasl_password="builder",
        tls_certificate=secured.certificates / "client.pem",
        tls_key=secured.certificates / "client.key",
    )
    assert connection.check() == 1


def test_a_wrong_password_is_said_without_repeating_it(secured: Secured) -> None:
    with pytest.raises(BrokerError, match="does not let user 'alice' in") as caught:
        secured.connection(sasl_password="wr0ng").check(timeout=20)
    assert "wr0ng" not in str(caught.value)
    assert "broker.sasl_password" in caught.value.hint


def test_an_unknown_authority_is_said(secured: Secured) -> None:
    with pytest.raises(BrokerError, match="No encrypted connection") as caught:
        secured.connection(tls_ca=secured.certificates / "client.pem").check(timeout=20)
    assert "broker.tls_ca" in caught.value.hint


def test_no_encryption_where_it_is_needed_is_said(secured: Secured) -> None:
    with pytest.raises(BrokerError, match="Cannot reach Kafka") as caught:
        Connection(bootstrap=secured.outside).check(timeout=2)
    assert "broker.security_protocol" in caught.value.hint


@pytest.mark.spark
@pytest.mark.slow
def test_spark_gets_in_with_the_same_description(secured: Secured) -> None:
    with Producer(secured.inside) as producer:
        producer.send(TOPIC, b"for Spark")
    connection = secured.connection(
        tls_certificate=secured.certificates / "client.pem", tls_key=secured.certificates / "client.key"
    )
    script = """
import json, sys
from pyspark.sql import SparkSession
jars, options = json.loads(sys.stdin.read())
builder = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
rows = spark.read.format("kafka").options(**options).option("subscribe", "secret").load().select("value").collect()
print([bytes(row.value) for row in rows])
spark.stop()
"""
    jars = ",".join(map(str, JarCache().get(SPARK_CONNECTOR)))
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps([jars, connection.spark_options()]),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "b'for Spark'" in done.stdout
    assert PASSWORD not in done.stderr
