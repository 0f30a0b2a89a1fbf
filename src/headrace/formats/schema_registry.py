"""A client for schema registries that speak Confluent's protocol.

`SchemaRegistry` is the description: frozen, and travels in a format. Its client is made once in each process. What it
has read is kept, up to a bound: the schema of a number never changes. That a number is unknown is kept for some seconds
only, since a registry may learn it.

A registry that cannot be reached is an error, `RegistryError`, after several attempts: the batch fails and is repeated.
A number that the registry does not know is a value, None: such a record will never be readable.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from headrace.errors import ConfigError, RegistryError
from headrace.extras import require

if TYPE_CHECKING:
    import httpx

_CONTENT = "application/vnd.schemaregistry.v1+json"
#: Schemas that are kept, and answers that a schema is unknown.
_KEPT = 1_000
_KEPT_UNKNOWN = 10_000
_UNKNOWN_SECONDS = 30.0
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_UNKNOWN_CODES = frozenset({40403, 40401, 40402})
_MOST_BYTES = 16 << 20
#: Registries count schemas in a signed number of four bytes.
_NUMBERS = range(1 << 31)


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """Where a schema registry is, and how to ask it.

    Args:
        url: Its address, such as "http://localhost:8081".
        username: The user, or the key of an API.
        password_env: The environment variable with the password. It is read where the registry is asked: in the driver
            and in the workers.
        ca: A file with the certificates that are trusted, instead of the system's.
        timeout: How many seconds one answer may take.
        attempts: How often a question is asked until the registry counts as unreachable.
    """

    url: str
    username: str | None = None
    password_env: str | None = None
    ca: str | None = None
    timeout: float = 10.0
    attempts: int = 5

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username or parts.password:
            raise ConfigError(
                "the address of the schema registry has a user or a password in it",
                hint='Give them apart: SchemaRegistry(url, username=..., password_env="REGISTRY_PASSWORD").',
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"the address of the schema registry is {self.url!r}", hint='Give one such as "http://localhost:8081".'
            )
        if self.timeout <= 0 or self.attempts < 1:
            raise ConfigError("timeout and attempts of a schema registry are positive numbers")

    @property
    def client(self) -> RegistryClient:
        """The client of this process."""
        return _client(self)


class RegisteredSchema(NamedTuple):
    """A schema as a registry has it.

    Args:
        text: Its text.
        kind: "AVRO", "JSON" or "PROTOBUF".
        has_references: Whether it uses types of other subjects.
    """

    text: str
    kind: str
    has_references: bool


class _NoPageError(RegistryError):
    """What answers has no such page."""


@lru_cache(maxsize=16)
def _client(registry: SchemaRegistry) -> RegistryClient:
    return RegistryClient(registry)


@dataclass(slots=True)
class _Kept:
    """Answers, the newest `size` of them."""

    size: int
    answers: OrderedDict[Any, Any] = field(default_factory=OrderedDict)

    def add(self, key: Any, answer: Any) -> None:
        self.answers[key] = answer
        self.answers.move_to_end(key)
        while len(self.answers) > self.size:
            self.answers.popitem(last=False)


class RegistryClient:
    """Asks one registry. Threads may share it."""

    def __init__(self, registry: SchemaRegistry) -> None:
        require("http", by="a schema registry")
        self._registry = registry
        self._lock = threading.Lock()
        self._connection: httpx.Client | None = None
        self._schemas = _Kept(_KEPT)
        self._unknown = _Kept(_KEPT_UNKNOWN)
        self._registered = _Kept(_KEPT)

    def schema(self, number: int | str) -> RegisteredSchema | None:
        """Give a schema; None if the registry does not know it.

        Args:
            number: Its number, or its GUID.

        Raises:
            RegistryError: The registry cannot be asked.
        """
        with self._lock:
            known: RegisteredSchema | None = self._schemas.answers.get(number)
            if known is not None:
                self._schemas.answers.move_to_end(number)
                return known
            if time.monotonic() < self._unknown.answers.get(number, 0.0):
                return None
            if isinstance(number, int):
                path = f"schemas/ids/{number}"
                answer = self._ask("GET", path) if number in _NUMBERS else None
            else:
                path = f"schemas/guids/{number}"
                answer = self._by_guid(path)
            if answer is None:
                self._unknown.add(number, time.monotonic() + _UNKNOWN_SECONDS)
                return None
            found = self._registered_schema(answer, path)
            self._schemas.add(number, found)
            return found

    def latest(self, subject: str) -> RegisteredSchema:
        """Give the newest schema of a subject.

        Raises:
            RegistryError: There is no such subject, or the registry cannot be asked.
        """
        path = f"subjects/{quote(subject, safe='')}/versions/latest"
        with self._lock:
            answer = self._ask("GET", path)
        if answer is None:
            raise RegistryError(
                f"the schema registry at {self._registry.url} has no subject {subject!r}",
                hint="The subject of a topic's values is usually TOPIC-value.",
            )
        return self._registered_schema(answer, path)

    def number(self, subject: str, schema: str, *, register: bool) -> int:
        """Give the number of a schema of a subject.

        Args:
            subject: The subject.
            schema: The text of the schema.
            register: Whether to register it if it is not there.

        Raises:
            RegistryError: It is not there, the registry refuses it, or the registry cannot be asked.
        """
        with self._lock:
            key = (subject, schema)
            if key not in self._registered.answers:
                path = f"subjects/{quote(subject, safe='')}" + ("/versions" if register else "")
                answer = self._ask("POST", path, {"schema": schema})
                if answer is None:
                    raise RegistryError(
                        f"the schema registry at {self._registry.url} does not have the schema of the results under "
                        f"{subject!r}",
                        hint="Register it there, or let avro() do it: register=True.",
                    )
                number = answer.get("id")
                if not isinstance(number, int) or isinstance(number, bool) or number not in _NUMBERS:
                    raise self._strange(path)
                self._registered.add(key, number)
            return int(self._registered.answers[key])

    def _by_guid(self, path: str) -> dict[str, Any] | None:
        """Ask by a GUID. Most registries have no such page: to them every GUID is unknown, and no reason to fail."""
        try:
            answer: dict[str, Any] | None = self._ask("GET", path)
        except _NoPageError:
            if not isinstance(self._ask("GET", "schemas/types", kind=list), list):
                raise
            return None
        return answer

    def _registered_schema(self, answer: dict[str, Any], path: str) -> RegisteredSchema:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise self._strange(path)
        return RegisteredSchema(text, str(answer.get("schemaType", "AVRO"))[:20], bool(answer.get("references")))

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None, *, kind: type[Any] = dict) -> Any:
        """Ask, several times if need be; None if the registry does not know what it was asked for.

        Args:
            method: GET or POST.
            path: The page.
            body: What is sent.
            kind: What the answer has to be.
        """
        import httpx

        reason = ""
        pause = _FIRST_PAUSE
        for attempt in range(self._registry.attempts):
            if attempt:
                time.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            try:
                status, content = self._exchange(method, path, None if body is None else json.dumps(body))
            except httpx.HTTPError as problem:
                reason = f"{type(problem).__name__}: {problem}".rstrip(": ")
                continue
            if status != httpx.codes.TOO_MANY_REQUESTS and not httpx.codes.is_server_error(status):
                return self._answer(status, content, path, kind)
            reason = f"it answers {status}"
        raise RegistryError(
            f"the schema registry at {self._registry.url} cannot be asked after {self._registry.attempts} attempts: "
            f"{reason}",
            hint="Check that it runs and that this machine reaches it; the batch is repeated when the job goes on.",
        )

    def _exchange(self, method: str, path: str, body: str | None) -> tuple[int, bytes]:
        """Send a question and read its answer, up to a bound of bytes and seconds."""
        import httpx

        until = time.monotonic() + self._registry.timeout
        content = bytearray()
        with self._open().stream(method, path, content=body) as answer:
            for part in answer.iter_bytes():
                content += part
                if len(content) > _MOST_BYTES:
                    raise RegistryError(
                        f"the schema registry at {self._registry.url} answers {path} with more than "
                        f"{_MOST_BYTES >> 20} MiB"
                    )
                if time.monotonic() > until:
                    raise httpx.ReadTimeout(f"the answer is not complete after {self._registry.timeout:g} s")
            return answer.status_code, bytes(content)

    def _answer(self, status: int, content: bytes, path: str, kind: type[Any]) -> Any:
        import httpx

        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise RegistryError(
                f"the schema registry at {self._registry.url} refuses {path}: {status}",
                hint="Check username= and the variable that password_env= names.",
            )
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        is_object = isinstance(found, dict)
        if status == httpx.codes.NOT_FOUND:
            if is_object and found.get("error_code") in _UNKNOWN_CODES:
                return None
            raise self._strange(path, _NoPageError)
        if httpx.codes.is_success(status) and isinstance(found, kind):
            return found
        if httpx.codes.is_success(status) or not is_object:
            raise self._strange(path)
        raise RegistryError(
            f"the schema registry at {self._registry.url} answers {status} to {path}: "
            f"{str(found.get('message', ''))[:200]}",
            hint="A schema that does not fit those before it is refused by the subject's compatibility."
            if status == httpx.codes.CONFLICT
            else "",
        )

    def _strange(self, path: str, error: type[RegistryError] = RegistryError) -> RegistryError:
        return error(
            f"what answers at {self._registry.url} to {path} is no schema registry of Confluent's protocol",
            hint="Apicurio speaks it under /apis/ccompat/v7.",
        )

    def _open(self) -> httpx.Client:
        if self._connection is None:
            import httpx

            registry = self._registry
            auth = None
            if registry.username is not None:
                password = os.environ.get(registry.password_env or "", "")
                if registry.password_env and not password:
                    raise RegistryError(
                        f"the environment has no {registry.password_env}, the password of the schema registry",
                        hint="Set it where the job runs; on a cluster, for the workers too.",
                    )
                auth = httpx.BasicAuth(registry.username, password)
            self._connection = httpx.Client(
                base_url=registry.url.rstrip("/") + "/",
                auth=auth,
                timeout=registry.timeout,
                verify=ssl.create_default_context(cafile=registry.ca) if registry.ca else True,
                headers={"Accept": f"{_CONTENT}, application/json", "Content-Type": _CONTENT},
            )
        return self._connection
