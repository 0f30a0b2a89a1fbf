"""Rights: what a user of a secured Kafka must be allowed, and what is missing.

A `Right` is one line of an access list: an operation on a topic, a consumer group or a transactional id. `check_rights`
asks Kafka before anything runs, so that a missing right is named at once, with its resource, and not by some client
in the middle of its work. Kafka tells of topics only; a transactional id is found out when it is taken.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from headrace.kafka.connection import AccessError, ErrorWatch, kafka_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.kafka.connection import Connection

Resource = Literal["topic", "group", "transactional-id"]
Operation = Literal["read", "write"]

_OPERATIONS = {"read": AclOperation.READ, "write": AclOperation.WRITE}
_TIMEOUT = 15.0


@dataclass(frozen=True, order=True)
class Right:
    """An operation on something.

    Args:
        resource: What kind of thing.
        name: Its name, or how the names of all such things begin.
        operation: What is done.
        prefixed: Whether `name` is how names begin.
        why: What for.
        optional: Whether it works without, with something missing.

    >>> print(Right("topic", "input.vehicle-position", "read"))
    READ on topic input.vehicle-position
    """

    resource: Resource
    name: str
    operation: Operation
    prefixed: bool = False
    why: str = ""
    optional: bool = False

    def __str__(self) -> str:
        names = f"{self.resource}s that begin with" if self.prefixed else self.resource
        return f"{self.operation.upper()} on {names} {self.name}"

    def command(self, user: str, *, bootstrap: str = "HOST:PORT") -> str:
        """The call of Kafka's own tool that gives the right to a user.

        >>> Right("group", "headrace.counts", "read").command("job")
        'kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:job --operation Read --group headrace.counts'
        """  # noqa: E501 - it is one line
        words = ["kafka-acls.sh", "--bootstrap-server", bootstrap, "--add", "--allow-principal", f"User:{user}"]
        words += ["--operation", self.operation.capitalize(), f"--{self.resource}", self.name]
        words += ["--resource-pattern-type", "prefixed"] if self.prefixed else []
        return shlex.join(words)


def check_rights(connection: Connection, rights: Iterable[Right]) -> None:
    """See that a connection's user is allowed what it needs of topics.

    Args:
        connection: Who asks, and where.
        rights: What is needed.

    Raises:
        AccessError: Something is not allowed; names all that is missing.
        BrokerError: Kafka cannot be asked.
    """
    wanted = [right for right in rights if right.resource == "topic" and not right.prefixed and not right.optional]
    if connection.security_protocol == "PLAINTEXT" or not wanted:
        return
    granted = _granted(connection, sorted({right.name for right in wanted}))
    missing = [right for right in wanted if _OPERATIONS[right.operation] not in granted[right.name]]
    if missing:
        raise lacking(connection, missing)


def lacking(connection: Connection, missing: Sequence[Right]) -> AccessError:
    """Say which rights are missing."""
    user = connection.sasl_username or "the owner of the certificate"
    told = ", ".join(str(right) for right in missing)
    return AccessError(
        f"Kafka at {connection.bootstrap} does not allow {user!r} what it needs: {told}",
        hint="Ask who runs the cluster for these rights; `headrace rights JOB` lists all that a job needs.",
    )


def _granted(connection: Connection, names: list[str]) -> dict[str, set[AclOperation]]:
    watch = ErrorWatch(connection)
    admin = AdminClient(connection.client_config() | {"error_cb": watch})
    futures = admin.describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=_TIMEOUT
    )
    granted: dict[str, set[AclOperation]] = {}
    for name, future in futures.items():
        try:
            granted[name] = set(future.result(_TIMEOUT + 5).authorized_operations or ())
        except KafkaException as error:
            cause = kafka_error(error)
            if cause.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                granted[name] = set()
            elif cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                granted[name] = set(_OPERATIONS.values())  # that it is missing is for others to say
            else:
                admin.poll(0)
                raise watch.explain(cause) from error
    return granted
