"""Which Kafka a command talks to: the one that is named, or the embedded broker that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import BrokerError

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.dev import BrokerState
    from headrace.kafka import Connection


def running_state(settings: Settings) -> BrokerState | None:
    """What the embedded broker of these settings says about itself, if it runs."""
    from headrace.dev.datadir import DataDirectory

    data = DataDirectory(settings.broker_directory)
    return data.read_state() if data.in_use() else None


def running_broker(settings: Settings) -> str | None:
    """The address of the embedded broker of these settings, if it runs."""
    state = running_state(settings)
    return None if state is None else state.bootstrap


def external(settings: Settings) -> Connection:
    """The connection to the Kafka that `broker.bootstrap` names, with its TLS and SASL settings."""
    from headrace.kafka import Connection

    broker = settings.broker
    return Connection(
        bootstrap=broker.bootstrap,
        security_protocol=broker.security_protocol,
        tls_ca=broker.tls_ca,
        tls_certificate=broker.tls_certificate,
        tls_key=broker.tls_key,
        tls_key_password=None if broker.tls_key_password is None else broker.tls_key_password.get_secret_value(),
        sasl_mechanism=broker.sasl_mechanism,
        sasl_username=broker.sasl_username or None,
        sasl_password=None if broker.sasl_password is None else broker.sasl_password.get_secret_value(),
        replication=broker.replication,
        min_insync_replicas=broker.min_insync_replicas,
        transaction_timeout=broker.transaction_timeout_ms / 1e3,
    )


def embedded(settings: Settings, bootstrap: str) -> Connection:
    """The connection to an embedded broker."""
    from headrace.kafka import Connection

    broker = settings.broker
    return Connection(
        bootstrap=bootstrap,
        replication=broker.replication,
        min_insync_replicas=broker.min_insync_replicas,
        transaction_timeout=broker.transaction_timeout_ms / 1e3,
    )


def connect(settings: Settings) -> Connection:
    """Find the Kafka to talk to, and see that it answers.

    Raises:
        BrokerError: There is none, or it does not answer.
    """
    if settings.broker.bootstrap:
        connection = external(settings)
    else:
        bootstrap = running_broker(settings)
        if bootstrap is None:
            raise BrokerError(
                f"no Kafka is running: no broker in {settings.broker_directory}, and broker.bootstrap is not set",
                hint="Start one (`headrace broker start`, or `headrace dev` in a project) or name one "
                "(--bootstrap HOST:PORT).",
            )
        connection = embedded(settings, bootstrap)
    connection.check()
    return connection
