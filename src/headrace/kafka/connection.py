"""How to reach Kafka, said once and passed to every client.

A `Connection` holds the bootstrap addresses and, for a secured cluster, the TLS and SASL settings. Each client has its
own spelling of the same thing: confluent-kafka takes files and names, Java (and so Spark) takes PEM text and a JAAS
line. The methods here know both, so that a job, a sink and a command line tool cannot disagree. Passwords are in no
`repr`, no log and no error message.

Kafka's clients try for ever to reach a broker that is gone, and only whisper about it. An `ErrorWatch` listens, and
turns a loss that lasts into an error.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.errors import BrokerError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

SPARK_REDACTION = r"(?i)secret|password|passwd|token|access[.]?key|jaas|keystore[.]key"
"""For `spark.redaction.regex`: Spark's own does not know that a private key or a JAAS line is secret."""

#: The settings that name PEM files, and what librdkafka calls them.
_TLS_FILES = {"tls_ca": "ca", "tls_certificate": "certificate", "tls_key": "key"}

# The handler keeps what clients log off a terminal where nobody configured logging.
_client_log = logging.getLogger("headrace.kafka.client")
_client_log.addHandler(logging.NullHandler())

_JAAS_MODULES: dict[SaslMechanism, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class AccessError(BrokerError):
    """Kafka knows who we are, and does not allow us what we asked for."""


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Where Kafka is and how to get in.

    Args:
        bootstrap: One or more `host:port`, separated by commas.
        security_protocol: Whether the traffic is encrypted (SSL), and whether we log in (SASL).
        tls_ca: PEM file of the authorities that signed the broker's certificate, the system's if not given.
        tls_certificate: PEM file of our certificate, if the broker asks for one.
        tls_key: PEM file of its private key.
        tls_key_password: What the private key is encrypted with.
        sasl_mechanism: How we log in.
        sasl_username: Who we log in as.
        sasl_password: What we log in with.
        texts: What the PEM files say, by setting, where they were read already; see `portable`.
        replication: Copies of each topic that is created through this connection; None: as many as there are
            brokers, up to 3.
        min_insync_replicas: How many copies must have a record before it counts as written, for each topic that is
            created; None: 2 of 3 or more copies, else the cluster's own setting.
        transaction_timeout: Seconds after which Kafka gives up a transaction that is not ended.

    Raises:
        ConfigError: The settings do not fit together.

    >>> Connection(bootstrap="127.0.0.1:9092").client_config()["bootstrap.servers"]
    '127.0.0.1:9092'
    >>> Connection(
    ...     bootstrap="kafka.example:9093",
    ...     security_protocol="SASL_SSL",
    ...     sasl_mechanism="PLAIN",
    ...     sasl_username="alice",
    ...     sasl_password="s3cret",
    ... )
    Connection(bootstrap='kafka.example:9093', security_protocol='SASL_SSL', ..., sasl_username='alice')
    """

    bootstrap: str
    security_protocol: SecurityProtocol = "PLAINTEXT"
    tls_ca: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    replication: int | None = field(default=None, repr=False)
    min_insync_replicas: int | None = field(default=None, repr=False)
    transaction_timeout: float = field(default=60.0, repr=False)

    def __post_init__(self) -> None:
        for address in self.bootstrap.split(","):
            host, colon, port = address.strip().rpartition(":")
            if not host or not colon or not port.isdigit() or not 0 < int(port) < 65536:
                raise ConfigError(
                    f"The Kafka address {address.strip()!r} is not host:port",
                    hint="Give one or more, separated by commas, such as 127.0.0.1:9092.",
                )
        if self.security_protocol.startswith("SASL"):
            if self.sasl_mechanism is None or not self.sasl_username or self.sasl_password is None:
                raise ConfigError(
                    f"{self.security_protocol} needs a mechanism, a user name and a password",
                    hint=f"Set sasl_mechanism ({', '.join(_JAAS_MODULES)}), sasl_username and sasl_password.",
                )
            if self.sasl_mechanism not in _JAAS_MODULES:
                raise ConfigError(
                    f"The SASL mechanism {self.sasl_mechanism!r} is unknown", hint=f"Use {', '.join(_JAAS_MODULES)}."
                )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError(
                "A client certificate needs both tls_certificate and tls_key", hint="Set both, or neither of them."
            )

    @property
    def _encrypted(self) -> bool:
        return self.security_protocol.endswith("SSL")

    def client_config(self, **extra: str | float | bool | None) -> dict[str, Any]:
        """Settings for a client of confluent-kafka.

        Args:
            extra: Further settings with underscores for dots (`client_id="tail"`); None leaves one out.
        """
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.security_protocol,
            "logger": _client_log,
            # Each failed attempt to connect would be a line; what matters reaches the `ErrorWatch` anyway.
            "log_level": 2,
            # The first attempts to reach a broker that is just starting should not be seconds apart.
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 2000,
        }
        if self._encrypted:
            texts = dict(self.texts)
            for setting, name in _TLS_FILES.items():
                if setting in texts:
                    config[f"ssl.{name}.pem"] = texts[setting]
                else:
                    config[f"ssl.{name}.location"] = self._file(getattr(self, setting), setting)
            config["ssl.key.password"] = self.tls_key_password
        if self.sasl_mechanism is not None and self.security_protocol.startswith("SASL"):
            config["sasl.mechanism"] = self.sasl_mechanism
            config["sasl.username"] = self.sasl_username
            config["sasl.password"] = self.sasl_password
        config |= {key.replace("_", "."): value for key, value in extra.items()}
        return {key: value for key, value in config.items() if value is not None}

    def spark_options(self) -> dict[str, str]:
        """Options for Spark's Kafka source and sink.

        Certificates travel as text, so that executors on other machines need no files. Use `SPARK_REDACTION` with
        them.

        Raises:
            ConfigError: A file cannot be read, or the private key is in a form that Java does not read.
        """
        options = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security_protocol}
        if self._encrypted:
            texts = dict(self.portable().texts)
            if "tls_ca" in texts:
                options["ssl.truststore.type"] = "PEM"
                options["ssl.truststore.certificates"] = texts["tls_ca"]
            if "tls_key" in texts:
                key = texts["tls_key"]
                if "PRIVATE KEY" not in key or "RSA PRIVATE KEY" in key or "EC PRIVATE KEY" in key:
                    raise ConfigError(
                        f"{self.tls_key or 'tls_key'} is not a private key in PKCS #8 form, which is what Java reads",
                        hint="Convert it: openssl pkcs8 -topk8 -in OLD -out NEW (with -nocrypt for no password).",
                    )
                options["ssl.keystore.type"] = "PEM"
                options["ssl.keystore.key"] = key
                options["ssl.keystore.certificate.chain"] = texts["tls_certificate"]
                if self.tls_key_password is not None:
                    options["ssl.key.password"] = self.tls_key_password
        if self.sasl_mechanism is not None and self.security_protocol.startswith("SASL"):
            options["sasl.mechanism"] = self.sasl_mechanism
            options["sasl.jaas.config"] = (
                f"{_JAAS_MODULES[self.sasl_mechanism]} required "
                f"username={_jaas_quote(self.sasl_username or '')} password={_jaas_quote(self.sasl_password or '')};"
            )
        return {f"kafka.{key}": value for key, value in options.items()}

    def portable(self) -> Connection:
        """The same connection for another machine: with the text of its PEM files in place of their paths.

        Raises:
            ConfigError: A file cannot be read.
        """
        paths = {setting: getattr(self, setting) for setting in _TLS_FILES} if self._encrypted else {}
        read = {setting: self._text(path, setting) for setting, path in paths.items() if path is not None}
        if not read:
            return self
        return replace(self, tls_ca=None, tls_certificate=None, tls_key=None, texts=(*self.texts, *read.items()))

    def check(self, *, timeout: float = 5.0) -> int:
        """See that Kafka can be reached.

        Args:
            timeout: Seconds to try.

        Returns:
            The number of brokers.

        Raises:
            BrokerError: It cannot be reached, or does not let us in.
        """
        watch = ErrorWatch(self)
        admin = AdminClient(self.client_config() | {"error_cb": watch})
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                return len(admin.list_topics(timeout=max(0.1, min(1.0, left))).brokers)
            except KafkaException as error:
                admin.poll(0)
                # Nobody listens, or we are turned away: no use in waiting for the rest of the time.
                if watch.down or left <= 1.0:
                    raise watch.explain(kafka_error(error)) from error

    def _file(self, path: Path | None, setting: str) -> str | None:
        if path is None:
            return None
        self._text(path, setting)  # librdkafka's own message names neither the file nor the setting
        return str(path)

    @staticmethod
    def _text(path: Path, setting: str) -> str:
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{setting} is {path}, which cannot be read: {error}", hint="Give the path of a PEM file."
            ) from error


class _Askable(Protocol):
    def list_topics(self, topic: str = ..., timeout: float = ...) -> Any: ...


class ErrorWatch:
    """Listens to what a client says about its connection (it is the client's `error_cb`).

    Args:
        connection: The connection, for messages.
        patience: Seconds for which all brokers may be gone before `check` complains.

    >>> watch = ErrorWatch(Connection(bootstrap="127.0.0.1:1"))
    >>> watch(KafkaError(KafkaError._TRANSPORT, "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed"))
    >>> watch.explain().message
    'Cannot reach Kafka at 127.0.0.1:1: Connect to ipv4#127.0.0.1:1 failed'
    """

    def __init__(self, connection: Connection, *, patience: float = 30.0) -> None:
        self._connection = connection
        self._patience = patience
        self._last: KafkaError | None = None
        self._down_since: float | None = None
        self.fatal: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Take note of an error; called by the client, from within its `poll`."""
        if error.fatal():
            self.fatal = error
        # "All brokers down" says that it is serious; the ones before it say why.
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._down_since = self._down_since or time.monotonic()
        else:
            self._last = error
            if error.code() in _REFUSALS or _is_tls(error):
                self._down_since = self._down_since or time.monotonic()

    @property
    def down(self) -> bool:
        """Whether no broker could be reached since this was last checked."""
        return self._down_since is not None

    def explain(self, error: KafkaError | None = None) -> BrokerError:
        """The error for a connection that does not work.

        Args:
            error: What the client said, if it said more than it told this watch.
        """
        cause = self._last or error
        code = cause.code() if cause is not None else None
        reason = _reason(cause) if cause is not None else "no answer"
        where = f"Kafka at {self._connection.bootstrap}"
        if code == KafkaError._AUTHENTICATION:  # noqa: SLF001
            user = self._connection.sasl_username
            return BrokerError(
                f"{where} does not let user {user!r} in: {reason}",
                hint="Check broker.sasl_mechanism, broker.sasl_username and broker.sasl_password.",
            )
        if cause is not None and _is_tls(cause):
            return BrokerError(
                f"No encrypted connection to {where}: {reason}",
                hint="Check broker.security_protocol, broker.tls_ca and the certificate's host name.",
            )
        return BrokerError(
            f"Cannot reach {where}: {reason}",
            hint="Is a broker running? `headrace broker start` starts one. If it is, check broker.bootstrap and "
            "broker.security_protocol.",
        )

    def check(self, client: _Askable) -> None:
        """Complain when all brokers have been gone for longer than our patience.

        Args:
            client: The client that is watched; it is asked once more before the verdict, since no client says when a
                connection is back.

        Raises:
            BrokerError: Kafka is gone.
        """
        if self._down_since is None or time.monotonic() - self._down_since < self._patience:
            return
        try:
            client.list_topics(timeout=min(5.0, max(1.0, self._patience)))
        except KafkaException as error:
            raise self.explain(kafka_error(error)) from error
        self._down_since = None
        self._last = None


_REFUSALS = (KafkaError._AUTHENTICATION,)  # noqa: SLF001


def _is_tls(error: KafkaError) -> bool:
    """Whether encryption failed.

    librdkafka gives what OpenSSL left in its queue the code of the step that found it, which is at times TRANSPORT.

    >>> _is_tls(KafkaError(KafkaError._TRANSPORT, "error:0A000086:SSL routines::certificate verify failed"))
    True
    """
    return error.code() == KafkaError._SSL or "SSL routines" in error.str()  # noqa: SLF001


def kafka_error(error: KafkaException) -> KafkaError:
    """The `KafkaError` inside an exception."""
    inner: KafkaError = error.args[0]
    return inner


def _reason(error: KafkaError) -> str:
    """What happened, without the broker's name before it and the advice for C programmers after it."""
    text = error.str().split(" (after ")[0].split(": Connection refused (")[0]
    head, _, tail = text.partition("/bootstrap: ")
    return (tail or head).strip()


def _jaas_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
