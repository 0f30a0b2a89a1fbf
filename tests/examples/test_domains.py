"""The five examples in other domains: each answer is compared with a few lines of plain Python."""

from __future__ import annotations

import json
import runpy
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import headrace

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("parcels", "payments", "sensors", "clicks", "logs")


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def rows_of(job: Any, records: list[bytes], *columns: str) -> list[tuple[Any, ...]]:
    return sorted(headrace.preview(job, records).results.select(columns).rows())


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def window(at: datetime, size: timedelta) -> datetime:
    """The end of the tumbling window of an instant."""
    return at - (at - datetime(1970, 1, 1, tzinfo=UTC)) % size + size


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60


def test_parcels() -> None:
    example = load("parcels")
    records = example["records"]()
    scans = [json.loads(record) for record in records]
    per_depot = Counter((scan["depot"], window(instant(scan["scanned_at"]), timedelta(minutes=10))) for scan in scans)
    found = rows_of(example["per_depot"], records, "depot", "window_end", "scans")
    assert found == sorted((*key, number) for key, number in per_depot.items())

    times = {(scan["parcel"], scan["what"]): instant(scan["scanned_at"]) for scan in scans}
    never = datetime.max.replace(tzinfo=UTC)
    stuck = [
        (parcel, since)
        for (parcel, what), since in times.items()
        if what == "in" and times.get((parcel, "out"), never) >= since + timedelta(minutes=30)
    ]
    assert len(stuck) == 6
    assert rows_of(example["stuck"], records, "parcel", "since") == sorted(stuck)


def test_payments() -> None:
    example = load("payments")
    records = example["records"]()
    before: dict[str, tuple[int, float]] = {}
    suspects = []
    for payment in map(json.loads, records):
        at, amount = before.get(payment["card"], (0, 0.0))
        if payment["amount"] > 500 and 0 < amount < 2 and payment["at"] - at < 60_000:
            suspects.append((payment["card"], amount, payment["amount"], payment["shop"]["country"]))
        before[payment["card"]] = (payment["at"], payment["amount"])
    assert len(suspects) > 10
    assert rows_of(example["suspects"], records, "card", "tried", "amount", "country") == sorted(suspects)


def sensor_readings(records: list[bytes]) -> dict[str, list[tuple[datetime, float]]]:
    found: dict[str, list[tuple[datetime, float]]] = defaultdict(list)
    for record in records:
        at, sensor, degrees = record.decode().split(",")
        if float(degrees) > -50:
            found[sensor].append((datetime.fromtimestamp(int(at), UTC), float(degrees)))
    return found


def test_sensors() -> None:
    example = load("sensors")
    records = example["records"]()
    readings = sensor_readings(records)

    minutes: dict[tuple[str, datetime], list[float]] = defaultdict(list)
    sessions, steps = [], []
    for sensor, series in readings.items():
        count, last, start = 0, series[0][0], series[0][1]
        moved = 0
        for at, degrees in series:
            minutes[sensor, window(at, timedelta(minutes=1))].append(degrees)
            if at - last >= timedelta(seconds=30):
                sessions.append((sensor, count))
                count = 0
            if abs(degrees - start) > 2:
                steps.append((sensor, moved))
                moved, start = 0, degrees
            count, moved, last = count + 1, moved + 1, at
        sessions.append((sensor, count))
        steps.append((sensor, moved))
    spread = [(sensor, end, len(values), middle(values)) for (sensor, end), values in minutes.items()]
    found = headrace.preview(example["spread"], records).results
    medians = [
        (*row[:3], pytest.approx(row[3][1]))
        for row in found.select("sensor", "window_end", "readings", "degrees").rows()
    ]
    assert sorted(spread) == sorted(medians, key=lambda row: row[:2])
    assert rows_of(example["active"], records, "sensor", "readings") == sorted(sessions)
    assert rows_of(example["steps"], records, "sensor", "readings") == sorted(steps)


def middle(values: list[float]) -> float:
    ordered = sorted(values)
    half = (len(ordered) - 1) / 2
    return (ordered[int(half)] + ordered[int(half + 0.5)]) / 2


def test_clicks() -> None:
    example = load("clicks")
    records = example["records"]()
    clicks = [json.loads(record) for record in records]
    people = [(click, instant(click["meta"]["at"])) for click in clicks if not click.get("bot")]
    assert len(people) < len(clicks)

    visits: dict[tuple[str, str], list[list[tuple[datetime, str]]]] = defaultdict(list)
    for click, at in people:
        of_visitor = visits[click["site"], click["visitor"]]
        if not of_visitor or at - of_visitor[-1][-1][0] >= timedelta(minutes=15):
            of_visitor.append([])
        of_visitor[-1].append((at, click["page"]))
    found = rows_of(example["visits"], records, "site", "visitor", "clicks", "pages")
    assert found == sorted(
        (*who, len(visit), len({page for _, page in visit})) for who, several in visits.items() for visit in several
    )

    top = headrace.preview(example["top_pages"], records).results
    for site, start, end, pages in top.select("site", "window_start", "window_end", "pages").rows():
        counts = Counter(click["page"] for click, at in people if click["site"] == site and start <= at < end)
        best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
        assert [(page["value"], page["count"]) for page in pages] == best
    assert top.height > 100


def test_logs() -> None:
    example = load("logs")
    records = example["records"]()
    lines = [record.decode().split() for record in records[1:]]
    whole = [(instant(line[0]), line[1], int(line[3][7:]), int(line[4][3:])) for line in lines if len(line) == 5]
    groups: dict[tuple[str, datetime], list[tuple[int, int]]] = defaultdict(list)
    for at, service, status, ms in whole:
        groups[service, window(at, timedelta(minutes=1))].append((status, ms))
    expected = [
        (*key, len(of), fmean(status >= 500 for status, _ in of), fmean(ms for _, ms in of))
        for key, of in groups.items()
    ]
    shown = headrace.preview(example["errors"], records)
    found = sorted(shown.results.select("service", "window_end", "requests", "errors", "ms").rows())
    for ours, theirs in zip(found, sorted(expected), strict=True):
        assert ours[:3] == theirs[:3]
        assert ours[3:] == pytest.approx(theirs[3:])
    assert shown.dead["reason"].to_list() == ["malformed"]
    assert shown.dismissed.height == len(lines) - len(whole) == 10
