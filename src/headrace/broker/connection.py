"""How to reach Kafka, said once and passed to every client.

A `Connection` holds the bootstrap addresses and, for a secured cluster, the TLS and SASL settings. Each client has
its own spelling of the same thing; the methods here know them all, so that a job, a sink and a command line tool
cannot disagree. The password is in no `repr`, no log and no error message.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.errors import BrokerError

log = logging.getLogger(__name__)

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Where Kafka is and how to get in.

    Args:
        bootstrap: One or more `host:port`, separated by commas.

    >>> Connection(bootstrap="127.0.0.1:9092").client_config()["bootstrap.servers"]
    '127.0.0.1:9092'
    """

    bootstrap: str

    def client_config(self, **extra: str | float | bool) -> dict[str, Any]:
        """Settings for a client of confluent-kafka.

        Args:
            extra: Further settings, with underscores for dots.
        """
        return {"bootstrap.servers": self.bootstrap, "logger": log} | {
            key.replace("_", "."): value for key, value in extra.items()
        }

    def spark_options(self) -> dict[str, str]:
        """Options for Spark's Kafka source and sink."""
        return {"kafka.bootstrap.servers": self.bootstrap}

    def check(self, *, timeout: float = 5.0) -> int:
        """See that Kafka can be reached.

        Returns:
            The number of brokers.

        Raises:
            BrokerError: It cannot be reached.
        """
        try:
            return len(AdminClient(self.client_config()).list_topics(timeout=timeout).brokers)
        except KafkaException as error:
            raise BrokerError(
                f"Cannot reach Kafka at {self.bootstrap}: {error.args[0].str()}",
                hint="Is a broker running? `headrace broker start` starts one; --bootstrap names another.",
            ) from error
