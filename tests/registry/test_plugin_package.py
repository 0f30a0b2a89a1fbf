"""A package outside Headrace: each of its things is found by all three ways, and keeps its contract."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config import Settings
from headrace.errors import ConfigError, PlanError
from headrace.formats import Records
from headrace.ingest import RawMessage
from headrace.ingest.feeds import load
from headrace.inprocess import Runner, write_to_sinks
from headrace.registry import Registry
from headrace.testing.contracts import (
    ContractError,
    check_connector,
    check_format,
    check_processor,
    check_settings,
    check_sink,
    check_type,
)

PACKAGE = Path(__file__).parent / "packages" / "parcel_plugins.py"
#: By kind: what stands in the package, and what it is called.
THINGS = {
    "formats": ("semicolons", "semicolons"),
    "types": ("Scan", "parcels.Scan"),
    "connectors": ("TickConnector", "ticks"),
    "processors": ("NameProcessor", "names"),
    "sinks": ("LineSink", "LineSink"),
    "functions": ("short_name", "short_name"),
    "settings": ("ParcelSettings", "parcels"),
}


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name.startswith("parcel_")]:
        del sys.modules[name]


def install(directory: Path, *, more: dict[str, str] | None = None) -> None:
    """Leave the package in a directory as pip does."""
    site = directory / "site"
    metadata = site / "parcel_plugins-2.1.dist-info"
    metadata.mkdir(parents=True)
    shutil.copy(PACKAGE, site)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: parcel-plugins\nVersion: 2.1\n")
    groups = {kind: f"{called} = parcel_plugins:{thing}" for kind, (thing, called) in THINGS.items()}
    for kind, line in (more or {}).items():
        groups[kind] += f"\n{line}"
    (metadata / "entry_points.txt").write_text(
        "".join(f"[headrace.{kind}]\n{lines}\n" for kind, lines in groups.items())
    )
    sys.path.insert(0, str(site))


def by_entry_points(directory: Path) -> Registry:
    install(directory)
    return Registry(Settings.load())


def by_the_file(directory: Path) -> Registry:
    shutil.copy(PACKAGE, directory)
    lists = "".join(f'{kind} = ["parcel_plugins:{thing}"]\n' for kind, (thing, _) in THINGS.items())
    Path("headrace.toml").write_text(f"{lists}[parcels]\ndepots = 7\n")
    return Registry(Settings.load())


def by_arguments(directory: Path) -> Registry:
    shutil.copy(PACKAGE, directory)
    sys.path.insert(0, str(directory))
    import parcel_plugins as package  # type: ignore[import-not-found]

    given: dict[str, Any] = {kind: [getattr(package, THINGS[kind][0])] for kind in THINGS if kind != "settings"}
    given["formats"] = {"semicolons": package.semicolons}
    given["functions"] = {"short_name": package.short_name}
    return Registry(Settings(sections=(package.ParcelSettings(depots=7),)), **given)


@pytest.mark.parametrize("way", [by_entry_points, by_the_file, by_arguments])
def test_each_thing_is_found(way: Any, tmp_path: Path) -> None:
    registry = way(tmp_path)
    package = sys.modules["parcel_plugins"]
    for kind, (thing, called) in THINGS.items():
        if kind != "settings":
            assert registry.things(kind)[called] is getattr(package, thing)
    assert registry.format("semicolons") == package.semicolons
    assert "parcels.Scan" in registry.types
    assert registry.types.get("Scan").message_class is package.Scan
    assert registry.sink("LineSink", path="out") == package.LineSink("out")
    depots = registry.settings.section(package.ParcelSettings).depots
    assert depots == (3 if way is by_entry_points else 7)


def test_each_thing_keeps_its_contract(tmp_path: Path) -> None:
    by_arguments(tmp_path)
    package: Any = sys.modules["parcel_plugins"]
    times = pa.array([1_700_000_000_000_000] * 3, pa.timestamp("us", "UTC"))
    check_format(package.semicolons, Records(pa.array([b"a;north", b"b;south", b"c"], pa.binary()), timestamps=times))
    check_type(package.Scan, package.Scan(parcel="p1", weight=2.5))
    check_connector(package.TickConnector, package.TickSettings())
    check_processor(package.NameProcessor(), [RawMessage("", b"p1", 5), RawMessage("", b"!", 6)])
    check_settings(package.ParcelSettings)
    lines = tmp_path / "contract"
    check_sink(package.LineSink(str(lines)), lambda table: read_lines(lines, table))


def read_lines(directory: Path, table: str) -> pl.DataFrame:
    file = directory / f"{table}.jsonl"
    return pl.read_ndjson(file) if file.is_file() else pl.DataFrame()


JOB = """
CREATE TABLE scans (parcel STRING, `at` TIMESTAMP_LTZ(3), WATERMARK FOR `at` AS `at` - INTERVAL '1' SECOND)
  WITH ('connector' = 'kafka', 'topic' = 'scans', 'format' = 'json');
CREATE TABLE kinds (kind STRING, n BIGINT) WITH ('connector' = 'LineSink', 'path' = 'lines');
INSERT INTO kinds
  SELECT short_name(parcel), COUNT(*) FROM TABLE(TUMBLE(TABLE scans, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
  GROUP BY short_name(parcel), window_start, window_end;
"""


@pytest.mark.parametrize("way", [by_entry_points, by_the_file, by_arguments])
def test_a_job_in_sql_names_a_sink_and_calls_a_function(way: Any, tmp_path: Path) -> None:
    registry = way(tmp_path)
    Path("kinds.sql").write_text(JOB)
    (job,) = registry.find(["kinds.sql"])
    assert [sink.text for sink in job.sinks] == ["lines"]
    values = [json.dumps({"parcel": f"{kind}-7", "at": f"2026-01-01T00:00:0{n}Z"}) for n, kind in enumerate("aba")]
    runner = Runner(job)
    write_to_sinks(job, [runner.step([value.encode() for value in values]), runner.finish()], run="once")
    found = read_lines(Path("lines"), "kinds")
    assert sorted(found.select("kind", "n").rows()) == [("a", 2), ("b", 1)]


def test_a_sink_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    registry = by_entry_points(tmp_path)
    Path("kinds.sql").write_text(JOB.replace("LineSink", "LineSinks"))
    with pytest.raises(PlanError, match="Did you mean 'LineSink'"):
        registry.find(["kinds.sql"])
    Path("kinds.sql").write_text(JOB.replace("'path' = 'lines'", "'folder' = 'lines'"))
    with pytest.raises(PlanError, match="the sink 'LineSink' cannot be made"):
        registry.find(["kinds.sql"])


def test_what_breaks_its_contract_is_told(tmp_path: Path) -> None:
    by_arguments(tmp_path)
    package: Any = sys.modules["parcel_plugins"]

    class Endless(package.TickConnector):  # type: ignore[misc]
        def batches(self, stop: Any) -> Any:
            del stop
            return (batch for _ in iter(int, 1) for batch in [next(super(Endless, self).batches(Event()))])

    class Forgetful(package.NameProcessor):  # type: ignore[misc]
        def process(self, messages: Any) -> Any:
            return super().process(messages[:-1])

    class Nameless(package.ParcelSettings):  # type: ignore[misc]
        section = "spark"

    from threading import Event

    with pytest.raises(ContractError, match="goes on after stop"):
        check_connector(Endless, package.TickSettings())
    with pytest.raises(ContractError, match="2 messages became 1 events and 0 dismissals"):
        check_processor(Forgetful(), [RawMessage("", b"p1", 5), RawMessage("", b"!", 6)])
    with pytest.raises(ContractError, match="its name is 'spark'"):
        check_settings(Nameless)
    with pytest.raises(ContractError, match="is not a protobuf message type"):
        check_type(int, None)  # type: ignore[arg-type]


def test_a_file_of_feeds_names_them(tmp_path: Path) -> None:
    registry = by_entry_points(tmp_path)
    Path("feeds.toml").write_text('[[feed]]\nconnector = "ticks"\nprocessor = "names"\nticks = {messages = 5}\n')
    (feed,) = load("feeds.toml", connectors=registry.things("connectors"), processors=registry.things("processors"))
    assert feed.make_connector().check() == "5 messages out of nothing"
    assert feed.topics == ("input.names",)
    checked = CliRunner().invoke(app, ["ingest", "feeds.toml", "--check"])
    assert checked.exit_code == 0, checked.output
    assert "5 messages out of nothing" in checked.output


def test_a_broken_one_is_named_and_passed_over(tmp_path: Path) -> None:
    (tmp_path / "parcel_broken.py").write_text("1 / 0\n")
    sys.path.insert(0, str(tmp_path))
    install(tmp_path, more={"formats": "broken = parcel_broken:format", "connectors": "wrong = json:loads"})
    registry = Registry(Settings.load())
    assert "semicolons" in registry.things("formats")
    assert "ticks" in registry.things("connectors")
    listed = CliRunner().invoke(app, ["plugins", "--json"])
    assert listed.exit_code == 0
    found = {(each["kind"], each["name"]): each for each in json.loads(listed.stdout)}
    assert "1 / 0" in found["formats", "broken"]["problem"]
    assert "is not a subclass of headrace.ingest.connector.Connector" in found["connectors", "wrong"]["problem"]
    assert found["formats", "semicolons"]["from"] == "parcel-plugins 2.1"
    with pytest.raises(PlanError, match="what could not be loaded") as refused:
        registry.format("broken")
    assert "parcel_broken:format of parcel-plugins 2.1" in str(refused.value)
    Path("feeds.toml").write_text('[[feed]]\nconnector = "wrong"\nprocessor = "names"\n')
    checked = CliRunner().invoke(app, ["ingest", "feeds.toml", "--check"])
    assert checked.exit_code == 3
    assert "json:loads of parcel-plugins 2.1 failed to load" in checked.output


def test_settings_that_cannot_be_loaded_are_told_where_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "parcel_broken.py").write_text("1 / 0\n")
    sys.path.insert(0, str(tmp_path))
    install(tmp_path, more={"settings": "depots = parcel_broken:Settings"})
    assert Settings.load().section_plugins[0].problem is not None
    Path("headrace.toml").write_text("[depots]\nrooms = 1\n")
    with pytest.raises(ConfigError, match=r"the section 'depots' of parcel-plugins 2\.1 failed to load"):
        Settings.load()
