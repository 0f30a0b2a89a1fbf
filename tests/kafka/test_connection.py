"""One description of a connection fits every client, and its secrets stay inside."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dev.ports import free_port
from headrace.errors import BrokerError, ConfigError, ExitCode
from headrace.kafka.connection import Connection, _jaas_quote

SASL: dict[str, Any] = {
    "bootstrap": "kafka.example:9093",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "alice",
    "sasl_password": "s3cret",
}


def test_a_plain_connection() -> None:
    connection = Connection(bootstrap="one:9092,two:9092")
    assert connection.client_config(client_id="me", group_id=None)["client.id"] == "me"
    assert "group.id" not in connection.client_config(group_id=None)
    assert connection.spark_options() == {
        "kafka.bootstrap.servers": "one:9092,two:9092",
        "kafka.security.protocol": "PLAINTEXT",
    }


def test_a_login_is_spelled_for_each_client() -> None:
    connection = Connection(**SASL)
    config = connection.client_config()
    assert (config["sasl.mechanism"], config["sasl.username"], config["sasl.password"]) == (
        "SCRAM-SHA-512",
        "alice",
        "s3cret",
    )
    options = connection.spark_options()
    assert options["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert options["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="s3cret";'
    )


def test_secrets_are_in_no_text() -> None:
    connection = Connection(**SASL, tls_key_password="k3y")
    for text in (repr(connection), str(connection), f"{connection}"):
        assert "s3cret" not in text
        assert "k3y" not in text
        assert "alice" in text
    assert pickle.loads(pickle.dumps(connection)) == connection  # noqa: S301


@given(st.text())
def test_no_password_breaks_out_of_its_quotes(password: str) -> None:
    quoted = _jaas_quote(password)
    # Read it back as Java's tokenizer does.
    body, result, escaped = quoted[1:-1], "", False
    for character in body:
        if escaped:
            result += character
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            assert character != '"'
            result += character
    assert not escaped
    assert result == password


def test_certificates_are_files_for_one_and_text_for_the_other(tmp_path: Path) -> None:
    for name, content in (("ca", "CA TEXT"), ("crt", "CERTIFICATE"), ("key", "-----BEGIN PRIVATE KEY-----")):
        (tmp_path / name).write_text(content)
    connection = Connection(
        bootstrap="a:1",
        security_protocol="SSL",
        tls_ca=tmp_path / "ca",
        tls_certificate=tmp_path / "crt",
        tls_key=tmp_path / "key",
        tls_key_password="k3y",
    )
    config = connection.client_config()
    assert config["ssl.ca.location"] == str(tmp_path / "ca")
    assert config["ssl.key.password"] == "k3y"
    options = connection.spark_options()
    assert options["kafka.ssl.truststore.certificates"] == "CA TEXT"
    assert options["kafka.ssl.keystore.certificate.chain"] == "CERTIFICATE"
    assert options["kafka.ssl.keystore.type"] == "PEM"


def test_a_key_that_java_cannot_read_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    for name in ("crt", "key"):
        (tmp_path / name).write_text("-----BEGIN RSA PRIVATE KEY-----")
    connection = Connection(
        bootstrap="a:1", security_protocol="SSL", tls_certificate=tmp_path / "crt", tls_key=tmp_path / "key"
    )
    with pytest.raises(ConfigError, match="PKCS #8") as caught:
        connection.spark_options()
    assert "openssl pkcs8" in caught.value.hint


def test_a_certificate_file_that_is_missing_is_named(tmp_path: Path) -> None:
    connection = Connection(bootstrap="a:1", security_protocol="SSL", tls_ca=tmp_path / "none.pem")
    with pytest.raises(ConfigError, match=r"tls_ca is .*none\.pem"):
        connection.client_config()
    with pytest.raises(ConfigError, match=r"tls_ca is .*none\.pem"):
        connection.spark_options()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"bootstrap": "kafka"}, "not host:port"),
        ({"bootstrap": "kafka:x"}, "not host:port"),
        ({"bootstrap": "kafka:99999"}, "not host:port"),
        ({"bootstrap": "kafka:9092,"}, "not host:port"),
        ({"bootstrap": ""}, "not host:port"),
        (SASL | {"sasl_password": None}, "a password"),
        (SASL | {"sasl_username": ""}, "a user name"),
        (SASL | {"sasl_mechanism": "GSSAPI"}, "GSSAPI"),
        ({"bootstrap": "a:1", "tls_key": Path("x")}, "both tls_certificate and tls_key"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Connection(**settings)


def test_a_broker_that_is_not_there_is_named_with_what_to_do() -> None:
    bootstrap = f"127.0.0.1:{free_port()}"
    with pytest.raises(BrokerError, match=f"Cannot reach Kafka at {bootstrap}: .*refused") as caught:
        Connection(bootstrap=bootstrap).check(timeout=20)
    assert "headrace broker start" in caught.value.hint
    assert caught.value.exit_code is ExitCode.BROKER


def test_a_host_that_is_not_there_is_named() -> None:
    with pytest.raises(BrokerError, match=r"nowhere\.invalid"):
        Connection(bootstrap="nowhere.invalid:9092").check(timeout=2)
