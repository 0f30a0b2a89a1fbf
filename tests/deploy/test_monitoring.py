"""Alerts, dashboards and the page of metrics name what the collectors give; each alert fires for its fault only."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.grafana import DASHBOARDS, dashboards
from scripts.metrics import PAGE, filled, metrics
from tests.deploy.alert_cases import AFTER, FAULTS, HEALTHY, HOUR, Fault, healthy

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
RUNBOOK = ROOT / "docs" / "runbook.md"
_SERIES = re.compile(r"\bheadrace_[a-z0-9_]+")
PARTS = metrics()
NAMES = {name for named in PARTS.values() for each in named for name in each.series}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    of_panels = [
        target["expr"] for board in dashboards().values() for panel in board["panels"] for target in panel["targets"]
    ]
    return [rule["expr"] for rule in rules()] + of_panels


def test_one_naming_for_all_parts() -> None:
    for part, named in PARTS.items():
        for each in named:
            assert each.name.startswith(f"headrace_{part}_"), each
            assert each.text, each
            assert not re.search(r"_(ms|millis|milliseconds|mb|kb|minutes)(_|$)", each.name), each
    assert len(NAMES) == len({name.lower() for name in NAMES}) > 70


def test_what_is_told_by_several_parts_has_one_name_and_the_same_labels() -> None:
    known: dict[str, dict[str, tuple[str, ...]]] = {}
    for part, named in PARTS.items():
        for each in named:
            known.setdefault(each.name.removeprefix(f"headrace_{part}_"), {})[part] = each.labels
    shared = {name: labels for name, labels in known.items() if {"run", "dashboard"} <= set(labels)}
    assert {"backlog", "watermark_lag_seconds", "mostly_dead_letters", "dead_letter_share"} <= set(shared)
    for name, labels in shared.items():
        words = {part: set(each) - {"query", "job"} for part, each in labels.items() if part != "ingest"}
        assert words["run"] == words["dashboard"], name


def test_the_page_lists_every_metric_as_it_is() -> None:
    page = PAGE.read_text()
    assert filled(page) == page, "run: python scripts/metrics.py"


def test_the_dashboards_are_those_that_are_made() -> None:
    for name, board in dashboards().items():
        assert json.loads((DASHBOARDS / name).read_text()) == board, "run: python scripts/grafana.py"
    assert {path.name for path in DASHBOARDS.glob("*.json")} == set(dashboards())


def test_rules_and_panels_ask_for_metrics_that_exist() -> None:
    asked = {name for expression in expressions() for name in _SERIES.findall(expression)}
    assert asked <= NAMES, asked - NAMES
    assert len(asked) > 30


def test_every_alert_has_an_entry_in_the_runbook_and_a_fault() -> None:
    headings = re.findall(r"^## (Headrace\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    names = [rule["alert"] for rule in rules()]
    assert headings == names
    assert list(FAULTS) == names
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")
    for fault in FAULTS.values():
        assert HEALTHY[fault.series] == fault.before


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: the package prometheus)")
    return found


def _test_group(name: str, fault: Fault | None, firing: dict[str, int]) -> dict[str, Any]:
    begins = HOUR if fault is None else fault.begins
    series = healthy(begins) | ({} if fault is None else {fault.series: fault.values})
    expected = [{"labels": f'{{alertname="{alert}"}}', "value": number} for alert, number in firing.items()]
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{begins + AFTER - 1}m",
                "exp_samples": expected,
            }
        ],
    }


def test_each_alert_fires_for_its_fault_and_no_other_does(tmp_path: Path) -> None:
    tool = promtool()
    groups = [_test_group("healthy", None, {})]
    groups += [_test_group(alert, fault, {alert: 1}) for alert, fault in FAULTS.items()]
    cases = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": groups}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    done = subprocess.run([tool, "test", "rules", str(tmp_path / "cases.yaml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # It would also say so if an alert did not fire.
    groups[0] = _test_group("healthy", None, {"HeadraceRunDown": 1})
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(cases))
    assert subprocess.run([tool, "test", "rules", str(tmp_path / "wrong.yaml")], capture_output=True).returncode == 1


def test_prometheus_accepts_the_configuration(tmp_path: Path) -> None:
    tool = promtool()
    (tmp_path / "alerts.yaml").write_text(ALERTS.read_text())
    configuration = yaml.safe_load((ALERTS.parent / "prometheus.yaml").read_text())
    (tmp_path / "token").write_text("t")
    for scraped in configuration["scrape_configs"]:
        if "authorization" in scraped:
            scraped["authorization"]["credentials_file"] = str(tmp_path / "token")
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    done = subprocess.run([tool, "check", "config", str(tmp_path / "prometheus.yaml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_reads_the_expressions_of_all_panels(tmp_path: Path) -> None:
    tool = promtool()
    records = [
        {"record": f"panel:{number}", "expr": expression.replace("$query", "q").replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions())
    ]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}))
    done = subprocess.run([tool, "check", "rules", str(tmp_path / "panels.yaml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
