"""A job on a Kafka with TLS, SCRAM and access lists: it runs with the least rights, says which one is missing, and
keeps its password to itself."""

from __future__ import annotations

import re
import shutil
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import polars as pl
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.kafka.test_security import jaas, make_certificates
from tests.spark.conftest import Bench

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.dev.ports import free_port
from headrace.kafka import Connection
from headrace.kafka.connection import AccessError
from headrace.spark.run.catchup import CatchUp
from headrace.spark.run.isolation import StoppedJob
from headrace.spark.run.rights import rights_of
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from headrace.kafka.rights import Right
    from headrace.spark.run.progress import BatchDone
    from headrace.stream import Delivery

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates"),
]

USER, PASSWORD = "runner", "ka-pa55-word/never seen"
START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)


def _job(name: str = "secured") -> Job:
    stream = Stream.topic(f"input.{name}", VehiclePosition).watermark(bounded("1s")).key_by("line")
    return Job(name, stream.window(tumbling("5s")).aggregate(n=count()))


class Secured:
    """A broker that lets everybody in on one port, and on another one only who has a password and rights."""

    def __init__(self, directory: Path, certificates: Path) -> None:
        make_certificates(certificates)
        self._certificates = certificates
        plain, secure, controller = free_port(), free_port(), free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure}"
        properties = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates / "keystore.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates / "ca.pem"),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.secure.scram-sha-512.sasl.jaas.config": jaas("scram.ScramLoginModule"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        settings = ServerSettings(data_dir=directory, port=plain, memory="256m", properties=properties)
        self.broker = EmbeddedBroker(settings).start()
        self._secure = secure
        self._admin = AdminClient(self.broker.connection.client_config())
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
        _done(self._admin.alter_user_scram_credentials([user]))

    @property
    def connection(self) -> Connection:
        return Connection(
            bootstrap=f"127.0.0.1:{self._secure}",
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username=USER,
            sasl_password=PASSWORD,
            tls_ca=self._certificates / "ca.pem",
        )

    def allow(self, rights: Iterable[Right]) -> None:
        _done(self._admin.create_acls([_binding(right) for right in rights]))

    def forbid(self, right: Right) -> None:
        from confluent_kafka.admin import AclBindingFilter

        bound = _binding(right)
        names = ("restype", "name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
        _done(self._admin.delete_acls([AclBindingFilter(*(getattr(bound, name) for name in names))]))


def _binding(right: Right) -> AclBinding:
    kinds = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "transactional-id": ResourceType.TRANSACTIONAL_ID,
    }
    pattern = ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL
    operation = {"read": AclOperation.READ, "write": AclOperation.WRITE}[right.operation]
    kind = kinds[right.resource]
    return AclBinding(kind, right.name, pattern, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)


def _done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(10)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    running = Secured(tmp_path_factory.mktemp("secured"), tmp_path_factory.mktemp("certificates"))
    yield running
    running.broker.stop()


def _refused(bench: Bench, secured: Secured) -> str:
    with pytest.raises(AccessError) as caught:
        bench.run(_job(), until=lambda _: True, connection=secured.connection)
    assert "headrace rights" in caught.value.hint
    assert PASSWORD not in str(caught.value)
    return caught.value.message


def test_a_missing_right_is_named_before_spark_starts(secured: Secured, tmp_path: Path) -> None:
    bench = Bench(secured.broker, tmp_path / "checkpoint", [])
    job = _job()
    bench.prepare(job)
    rights = [right for right in rights_of([job]) if not right.optional]
    told = _refused(bench, secured)
    assert all(str(right) in told for right in rights if right.resource == "topic")
    secured.allow(rights)
    for missing in (
        right for right in rights if right.name in ("input.secured", "headrace.commits", "analytics.secured")
    ):
        secured.forbid(missing)
        assert str(missing) in _refused(bench, secured)
        secured.allow([missing])
    missing = next(right for right in rights if right.resource == "transactional-id")
    secured.forbid(missing)
    assert "transactional id headrace.secured" in _refused(bench, secured)
    secured.allow([missing])


def _send_reports(bench: Bench, job: Job) -> None:
    times = [START + timedelta(seconds=second) for second in range(20)]
    rows = pl.DataFrame({"event_time": times, "ingestion_time": times, "vehicle_id": "v", "line": "1"})
    bench.send_rows(job.sources[0], rows, VehiclePosition, "vehicle_id")


@pytest.mark.parametrize("delivery", ["exactly_once", "at_most_once"])
def test_a_job_that_catches_up_alone_needs_no_other_rights(
    secured: Secured, tmp_path: Path, delivery: Delivery
) -> None:
    bench = Bench(secured.broker, tmp_path / "checkpoint", [])
    name = delivery.replace("_", "-")
    job, other = _job(f"{name}-failed"), _job(f"{name}-going-on")
    for each in (job, other):
        bench.prepare(each, partitions=1)
    rights = [right for right in rights_of([other, job]) if not right.optional]
    secured.allow(rights)
    _send_reports(bench, job)
    catch_up = CatchUp(
        job=job,
        stopped=StoppedJob(job.name, {job.sources[0]: {0: 0}}, "it failed"),
        connection=secured.connection,
        groups=2,
        partitions={job.sources[0]: 1},
        query=f"{job.name}+{other.name}",
        token="checkpoint",
        delivery=delivery,
        encoding="binary",
        directory=tmp_path / "stopped",
        tell=lambda _: None,
        run_id="run",
        stop=threading.Event(),
    )
    (ids,) = (right for right in rights if right.resource == "transactional-id" and right.prefixed)
    assert "catches up" in ids.why
    secured.forbid(ids)
    with pytest.raises(AccessError, match=re.escape(f"transactional id {ids.name}") + rf"[:\w]*~{job.name}"):
        catch_up.run({}, {job.sources[0]: {0: 20}}, 7)
    secured.allow([ids])
    catch_up.run({}, {job.sources[0]: {0: 20}}, 7)
    assert bench.count(job.result_topic) == 3


@pytest.mark.spark
@pytest.mark.slow
def test_a_job_runs_with_the_least_rights_and_shows_no_secret(
    secured: Secured, tmp_path: Path, jars: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(secured.broker, tmp_path / "checkpoint", jars)
    job = _job("tasks-secured")  # no name that begins like another: rights on ids are by how names begin
    bench.prepare(job, partitions=1)
    secured.allow(rights_of([job]))
    _send_reports(bench, job)
    seen: list[str] = []

    def reached(batches: list[BatchDone]) -> bool:
        if not seen:
            seen.extend(_user_interface())
        last = batches[-1].watermark if batches else None
        return last is not None and last >= instant(START + timedelta(seconds=18))

    settings = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.ui.host": "127.0.0.1"}
    # Tasks write the results, so they know the password, too.
    bench.run(job, until=reached, connection=secured.connection, settings=settings, apart_rows=0)
    assert bench.count(job.result_topic) == 3

    logged = "".join(capfd.readouterr())
    assert any("spark.redaction.regex" in page for page in seen), "the pages are those of this Spark"
    assert any("TransformWithState" in page for page in seen), "with this query's plan"
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    for text in (logged, *seen):
        assert PASSWORD not in text
    assert not any(PASSWORD.encode() in content for content in kept)


def _user_interface() -> list[str]:
    from pyspark import SparkContext

    url = SparkContext._active_spark_context.uiWebUrl
    told = httpx.get(f"{url}/api/v1/applications", timeout=20).raise_for_status().json()
    rest = f"/api/v1/applications/{told[0]['id']}"
    pages = ["/environment/", "/SQL/", "/jobs/", "/stages/", "/StreamingQuery/", f"{rest}/environment"]
    pages += [f"{rest}/sql?details=true&planDescription=true", f"{rest}/stages?details=true"]
    return [httpx.get(url + page, timeout=20, follow_redirects=True).raise_for_status().text for page in pages]
