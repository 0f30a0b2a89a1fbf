"""What can be set: the tables of the file, each setting with its default, its meaning and what it allows.

A setting is a field of one of the `Section` classes below; `KEYS` describes all of them for the messages, the command
`headrace config` and the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from headrace.delivery import DELIVERIES, Delivery

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "HEADRACE_"

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
ResultEncoding = Literal["binary", "json"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_MEMORY = r"^[1-9][0-9]*[mMgG]$"
_HOSTS = r"^([^\s,:]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}(,([^\s,:]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5})*$"


def _no_bool(value: object) -> object:
    # pydantic takes true for the number 1, which in a port or a count can only be a mistake.
    if isinstance(value, bool):
        raise ValueError("true and false are not numbers")
    return value


Number = BeforeValidator(_no_bool)


def setting(default: Any, doc: str, allowed: str, **limits: Any) -> Any:
    """Declare a setting: a field of a `Section`.

    Args:
        default: Its value if nobody sets it.
        doc: What it means, in a sentence.
        allowed: What may be written, as messages say it.
        limits: What pydantic's `Field` checks: `ge`, `le`, `pattern` and others.
    """
    return Field(default, description=doc, json_schema_extra={"allowed": allowed}, **limits)


class IncompleteError(ValueError):
    """Two settings contradict each other; carries its own remedy through pydantic."""

    def __init__(self, what: str, remedy: str, key: str) -> None:
        super().__init__(what)
        self.what, self.remedy, self.key = what, remedy, key


class Section(BaseModel):
    """One table of the file; frozen, and unknown names are errors.

    A section of one's own is a subclass with a name and fields made by `setting`, offered by the entry point group
    `headrace.settings`.

    >>> class ParcelSettings(Section):
    ...     section = "parcels"
    ...     depots: int = setting(3, "How many depots there are.", "a whole number from 1", ge=1)
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    #: The name of its table in the file.
    section: ClassVar[str]


class BrokerSettings(Section):
    """`[broker]`: which Kafka to use, and how to reach it."""

    section = "broker"

    bootstrap: str = setting(
        "",
        "An external Kafka to use; empty means the embedded broker.",
        'HOST:PORT, or several with commas: "kafka1:9092,kafka2:9092"',
        pattern=rf"^$|{_HOSTS}",
    )
    port: Annotated[int, Number] = setting(
        9092,
        "Port of the embedded broker on 127.0.0.1. If you do not set it and 9092 is taken, a free one is used.",
        "a whole number from 0 to 65535; 0 means any free port",
        ge=0,
        le=65535,
    )
    data_directory: Path | None = setting(
        None, "Where the embedded broker keeps its data; `broker` in paths.home if not set.", "a directory"
    )
    memory: str = setting("512m", "Heap of the embedded broker.", 'a size such as "512m" or "1g"', pattern=_MEMORY)
    replication: Annotated[int, Number] | None = setting(
        None,
        "Copies of each topic that is created, `headrace.commits` and `headrace.progress` too; as many as there are "
        "brokers, up to 3, if not set.",
        "a whole number from 1, and not more than there are brokers",
        ge=1,
        le=32_767,
    )
    min_insync_replicas: Annotated[int, Number] | None = setting(
        None,
        "How many copies must have a record before it counts as written, of each topic that is created; 2 where there "
        "are 3 copies or more, else what the cluster says, if not set.",
        "a whole number from 1, and not more than broker.replication",
        ge=1,
        le=32_767,
    )
    transaction_timeout_ms: Annotated[int, Number] = setting(
        60_000,
        "After how many milliseconds Kafka gives up a transaction that is not ended: the longest that writing one may "
        "take, and the longest that a killed job hides what others write.",
        "a whole number from 1000 to 3600000, and not more than the broker's transaction.max.timeout.ms",
        ge=1_000,
        le=3_600_000,
    )
    security_protocol: SecurityProtocol = setting(
        "PLAINTEXT", "How to talk to an external Kafka.", ", ".join(get_args(SecurityProtocol))
    )
    tls_ca: Path | None = setting(None, "Certificate authorities that signed the broker's certificate.", "a PEM file")
    tls_certificate: Path | None = setting(None, "Your certificate, if the broker asks for one.", "a PEM file")
    tls_key: Path | None = setting(None, "The private key of your certificate.", "a PEM file")
    tls_key_password: SecretStr | None = setting(None, "Password of the private key.", "text")
    sasl_mechanism: SaslMechanism | None = setting(
        None, "How to log in, with SASL_PLAINTEXT or SASL_SSL.", ", ".join(get_args(SaslMechanism))
    )
    sasl_username: str = setting("", "Who to log in as.", "text")
    sasl_password: SecretStr | None = setting(None, "The password to log in with.", "text")

    @model_validator(mode="after")
    def _enough_copies(self) -> Self:
        copies, needed = self.replication, self.min_insync_replicas
        if copies is not None and needed is not None and needed > copies:
            raise IncompleteError(
                f"broker.min_insync_replicas is {needed}, more than broker.replication ({copies})",
                "Nothing could be written to such a topic: set broker.replication to the same number or a larger one.",
                "broker.min_insync_replicas",
            )
        return self

    @model_validator(mode="after")
    def _security_is_complete(self) -> Self:
        if self.security_protocol.startswith("SASL"):
            missing = [name for name in ("sasl_mechanism", "sasl_username", "sasl_password") if not getattr(self, name)]
            if missing:
                raise IncompleteError(
                    f"broker.security_protocol is {self.security_protocol!r}, but "
                    + " and ".join(f"broker.{name}" for name in missing)
                    + (" is" if len(missing) == 1 else " are")
                    + " not set",
                    "A login needs broker.sasl_mechanism, broker.sasl_username and broker.sasl_password.",
                    "broker.security_protocol",
                )
        elif self.sasl_mechanism is not None:
            raise IncompleteError(
                f"broker.sasl_mechanism is {self.sasl_mechanism!r}, but broker.security_protocol is "
                f"{self.security_protocol!r}, which does not log in",
                "Set broker.security_protocol to SASL_SSL or SASL_PLAINTEXT, or remove broker.sasl_mechanism.",
                "broker.sasl_mechanism",
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            have, lack = ("tls_certificate", "tls_key") if self.tls_certificate else ("tls_key", "tls_certificate")
            raise IncompleteError(
                f"broker.{have} is set, but broker.{lack} is not",
                "A client certificate needs both files.",
                f"broker.{have}",
            )
        return self


class SparkSettings(Section):
    """`[spark]`: where jobs run, and how finely they are cut."""

    section = "spark"

    master: str = setting(
        "local[*]",
        "Where Spark runs.",
        'a master URL: "local[*]", "local[2]", "spark://HOST:PORT", "yarn", "k8s://HOST:PORT"',
        pattern=r"^(local(\[(\*|[1-9][0-9]*)(,[0-9]+)?\])?|local-cluster\[.+\]|spark://.+|yarn|k8s://.+)$",
    )
    driver_memory: str = setting("2g", "Heap of the driver.", 'a size such as "2g" or "800m"', pattern=_MEMORY)
    state_memory_mb: Annotated[int, Number] = setting(
        512,
        "Memory of the state store beside the heap, for all its partitions; what does not fit is on disk.",
        "a whole number of megabytes from 64",
        ge=64,
    )
    max_state_keys: Annotated[int, Number] | None = setting(
        None,
        "Keys that one stateful step of a job may have state of; a key counts once for each of its open windows. "
        "Beyond it the job stops, alone. No bound if not set.",
        "a whole number from 1",
        ge=1,
    )
    max_state_bytes: Annotated[int, Number] | None = setting(
        None,
        "Bytes of state, before compression, that one stateful step of a job may keep; beyond it the job stops, alone. "
        "No bound if not set.",
        "a whole number from 1",
        ge=1,
    )
    cadence_ms: Annotated[int, Number] = setting(
        500,
        "Milliseconds between the starts of two micro-batches; 0 starts the next one at once.",
        "a whole number from 0 to 3600000",
        ge=0,
        le=3_600_000,
    )
    key_groups: Annotated[int, Number] = setting(
        2,
        "Units of state and parallelism of a job; each costs time in every batch. Another number spreads the state of "
        "a checkpoint anew at the next start.",
        "a whole number from 1 to 4096",
        ge=1,
        le=4096,
    )
    state_partitions: Annotated[int, Number] = setting(
        2,
        "Spark partitions that share the key groups: as many as you have cores. Another number moves the state at the "
        "next start.",
        "a whole number from 1 to 1024, and not more than spark.key_groups",
        ge=1,
        le=1024,
    )
    checkpoint_directory: Path | None = setting(
        None, "Where jobs keep offsets and state; `checkpoints` in paths.home if not set.", "a directory"
    )
    savepoints: str | None = setting(
        None,
        "Where savepoints are kept; `savepoints` in paths.home if not set.",
        "a directory, or a URL such as s3://bucket/savepoints",
    )
    max_events_per_batch: Annotated[int, Number] | None = setting(
        None,
        "The most events that one micro-batch reads; as many as memory allows if not set.",
        "a whole number from 1",
        ge=1,
    )
    max_bytes_per_batch: Annotated[int, Number] | None = setting(
        None,
        "The most bytes of records that one micro-batch reads, by the length of those before; "
        "as many as memory allows, 64 MiB to 1 GiB, if not set.",
        "a whole number from 1000000",
        ge=1_000_000,
    )
    target_batch_ms: Annotated[int, Number] = setting(
        2_500,
        "What a micro-batch may take while there is a backlog; batches grow and shrink towards it.",
        "a whole number from 100 to 600000",
        ge=100,
        le=600_000,
    )
    result_encoding: ResultEncoding = setting(
        "binary",
        "How results, late events and dead letters are written: small, or readable.",
        ", ".join(get_args(ResultEncoding)),
    )

    executor_python: str = setting(
        "",
        "The Python of executors on other machines; the path of this one if not set.",
        'a command or a path, such as "python3.11"',
    )
    ship_environment: bool = setting(
        False,
        "Whether Headrace and what it requires travel to executors on other machines; they must have it otherwise.",
        "true or false",
    )
    conf: Path | None = setting(
        None,
        "Further Spark settings, which win over those of Headrace.",
        "a file with a name and a value per line, as spark-defaults.conf",
    )
    delivery: Delivery | None = setting(
        None,
        "What readers of results may rely on when something crashes; what each job says if not set.",
        ", ".join(DELIVERIES),
    )
    apart_rows: Annotated[int, Number] = setting(
        100_000,
        "A job that gives more rows than this in a micro-batch is written by its state partitions from then on, in a "
        "transaction each.",
        "a whole number from 0",
        ge=0,
    )
    transaction_mb: Annotated[int, Number] = setting(
        64,
        "What one transaction holds at most; a micro-batch with more results is written in several.",
        "a whole number of megabytes from 1",
        ge=1,
    )
    restarts: Annotated[int, Number] = setting(
        5,
        "How often in a row a failed query is started again by itself.",
        "a whole number from 0 to 1000000",
        ge=0,
        le=1_000_000,
    )

    @model_validator(mode="after")
    def _every_partition_has_a_group(self) -> Self:
        if self.state_partitions > self.key_groups:
            raise IncompleteError(
                f"spark.state_partitions is {self.state_partitions}, more than spark.key_groups ({self.key_groups})",
                "A key group lives in one state partition: set spark.key_groups to the same number or a larger one.",
                "spark.state_partitions",
            )
        return self


class DashboardSettings(Section):
    """`[dashboard]`: where the live map is served, and who may see it."""

    section = "dashboard"

    host: str = setting(
        "127.0.0.1",
        "Address to listen on. Any other than a loopback address needs dashboard.token or dashboard.proxy_header.",
        'an address such as "127.0.0.1" or "0.0.0.0"',
        pattern=r"^[0-9A-Za-z.:_-]+$",
    )
    port: Annotated[int, Number] = setting(
        8080,
        "Port to listen on. If you do not set it and 8080 is taken, the next free one is used.",
        "a whole number from 0 to 65535; 0 means any free port",
        ge=0,
        le=65535,
    )
    token: SecretStr | None = setting(
        None, "What a visitor has to show, as a bearer token or once in the address.", "text of 16 characters or more"
    )
    proxy_header: str = setting(
        "",
        "The header in which a reverse proxy names the user it has let in; empty: there is none.",
        'the name of a header, such as "X-Forwarded-User"',
        pattern=r"^[A-Za-z0-9-]*$",
    )
    proxies: str = setting(
        "127.0.0.1,::1", "The addresses that dashboard.proxy_header is believed from.", "addresses, with commas"
    )
    origins: str = setting(
        "",
        "Origins whose pages may ask too, and names under which a proxy serves the dashboard.",
        'origins with commas: "https://map.example.org,https://ops.example.org"',
        pattern=r"^$|^https?://[^\s,/]+(,https?://[^\s,/]+)*$",
    )
    map_style: str = setting(
        "",
        "An online style for the base map; empty: the one that needs no network.",
        "the URL of a MapLibre style",
        pattern=r"^$|^https?://[^\s]+$",
    )
    viewers: Annotated[int, Number] = setting(
        1000, "How many browsers and programs may watch at a time.", "a whole number from 1 to 100000", ge=1, le=100_000
    )


class PathSettings(Section):
    """`[paths]`: where Headrace keeps what it writes."""

    section = "paths"

    home: Path = setting(
        Path(),
        "Data, checkpoints and logs. `.headrace` in a clone of Headrace, or in a directory that has a headrace.toml; "
        "elsewhere $XDG_DATA_HOME/headrace, which is mostly ~/.local/share/headrace.",
        "a directory",
    )
    jars: Path = setting(
        Path(),
        "Java archives of Kafka and of Spark's connector, shared by all projects. "
        "`jars` in paths.home if that is there, else $XDG_CACHE_HOME/headrace/jars, mostly ~/.cache/headrace/jars.",
        "a directory",
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """The description of one setting, for `headrace config` and the messages."""

    key: str
    doc: str
    allowed: str
    is_path: bool
    is_secret: bool

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.key.upper().replace(".", "__")


#: The tables of the file that are Headrace's own, in the order of the documentation.
SECTIONS: dict[str, type[Section]] = {
    "broker": BrokerSettings,
    "spark": SparkSettings,
    "dashboard": DashboardSettings,
    "paths": PathSettings,
}


def describe(sections: Mapping[str, type[Section]]) -> dict[str, Setting]:
    """Describe every setting of some sections, by its key.

    Args:
        sections: The sections by name.
    """
    keys: dict[str, Setting] = {}
    for section, model in sections.items():
        for name, field in model.model_fields.items():
            extra = field.json_schema_extra
            kinds = {field.annotation, *get_args(field.annotation)}
            keys[f"{section}.{name}"] = Setting(
                key=f"{section}.{name}",
                doc=field.description or "",
                allowed=str(extra["allowed"]) if isinstance(extra, dict) else "",
                is_path=Path in kinds,
                is_secret=SecretStr in kinds,
            )
    return keys


#: Every setting of Headrace's own by its key.
KEYS: dict[str, Setting] = describe(SECTIONS)
