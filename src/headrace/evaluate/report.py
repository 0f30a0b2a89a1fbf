"""The report: one HTML file with everything in it, to be read in a browser, mailed or kept.

It is made from the directory of an evaluation alone, so it can be made again at any time. docs/evaluation.md says how
to read it.
"""

from __future__ import annotations

import html
import json
import math
from typing import TYPE_CHECKING, Any

from headrace.evaluate import plots, wording
from headrace.evaluate.figures import foreign_cores, product_cores, summary
from headrace.evaluate.plan import BASE
from headrace.observe.latency import LEG_TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#222;max-width:1120px;margin:2em auto;padding:0 1em}
h1{font-size:1.7em;margin-bottom:0}h2{margin-top:2.2em;border-bottom:1px solid #ddd}
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:.25em .8em .25em 0;text-align:left;vertical-align:top;border-bottom:1px solid #eee}
td.n,th.n{text-align:right}small{color:#666}.bad{color:#a40000}.good{color:#24663b}
svg{max-width:100%;height:auto}p.note{color:#555;max-width:80ch}
@media(prefers-color-scheme:dark){body{background:#fff}}
"""


def write_report(
    directory: Path, records: Sequence[dict[str, Any]], *, failures: Sequence[dict[str, Any]] = ()
) -> Path:
    """Write `summary.json` and `report.html` into the directory of an evaluation.

    Args:
        directory: Of the evaluation.
        records: Of its trials.
        failures: Trials that failed.

    Returns:
        The report.
    """
    told = summary(directory, records, failures=failures)
    (directory / "summary.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    path = directory / "report.html"
    path.write_text(_page(directory, records, told), "utf-8")
    return path


def _page(directory: Path, records: Sequence[dict[str, Any]], told: dict[str, Any]) -> str:
    planned = [record for record in records if not record["searching"]]
    jobs = told["plan"]["jobs"]
    parts = [
        _heading(told),
        _what(told),
        _verdict(told, records),
        "<h2>Latency of results</h2>",
        _note(wording.LATENCY),
        _latency_table(told),
        plots.distributions(directory, planned, jobs) if planned else "",
        "<h3>Over time</h3>",
        plots.over_time(directory, planned, jobs) if planned else "",
        "<h2>Where the time goes: markers</h2>",
        _marker_table(told),
        "<h2>Volume, backlog and cost</h2>",
        _cost_table(told),
        plots.backlogs(directory, records) if records else "",
        plots.throughput([record for record in records if record["valid"]] or records) if records else "",
        "<h2>Are the results right?</h2>",
        _parity_table(told),
        "<h2>Bytes per event</h2>",
        _sizes_table(told),
        "<h2>Trials</h2>",
        _trials_table(records, told),
        "<h2>What to keep in mind</h2>",
        _limits(),
    ]
    title = f"Headrace evaluation {told['conditions']['date'][:10]}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _heading(told: dict[str, Any]) -> str:
    conditions = told["conditions"]
    facts = [
        conditions["date"][:16].replace("T", " ") + " UTC",
        conditions["cpu"] or "unknown processor",
        f"{conditions['cores']} cores",
        f"{conditions['memory_gb']} GB",
        f"Python {conditions['python']}",
        f"pyspark {conditions['pyspark']}",
        f"Headrace {conditions['headrace']}" + (f" ({conditions['commit']})" if conditions["commit"] else ""),
    ]
    return f"<h1>Headrace evaluation</h1><p><small>{_text(' · '.join(facts))}</small></p>"


def _what(told: dict[str, Any]) -> str:
    plan = told["plan"]
    volumes = ", ".join(f"{volume:g} x" for volume in plan["volumes"])
    sentences = [
        f"{len(plan['jobs'])} jobs in one query ({', '.join(plan['jobs'])}), from Kafka to Kafka, on Spark "
        f"{plan['master']}.",
        f"Volumes {volumes} of {BASE} events/s, {plan['repetitions']} trials each of {plan['seconds']:g} s "
        f"after {plan['warm_up']:g} s of warming up under load.",
        "Broker, load generator, jobs and measuring shared the cores of one machine.",
        told["conditions"].get("load", ""),
    ]
    return f"<p>{_text(' '.join(sentences).strip())}</p>"


def _verdict(told: dict[str, Any], records: Sequence[dict[str, Any]]) -> str:
    best = told["highest"]["held"]
    lost = [volume for volume in told["highest"]["not_held"] if best is None or volume > best]
    lines = []
    if best is None:
        lines.append("No volume was held with a flat backlog.")
    else:
        limit = f"; {min(lost):g} x was not" if lost else "; a higher one was not tried"
        lines.append(f"Highest volume held with a flat backlog: {best:g} x ({best * BASE:,.0f} events/s){limit}.")
    invalid = [record["name"] for record in records if not record["valid"]]
    if invalid:
        lines.append(f"Not valid, and counted nowhere: {', '.join(invalid)} (see Trials).")
    if told["failures"]:
        lines.append(f"Failed: {', '.join(failure['name'] for failure in told['failures'])}.")
    return "".join(f"<p><b>{_text(line)}</b></p>" for line in lines)


def _latency_table(told: dict[str, Any]) -> str:
    rows = []
    for volume in told["volumes"]:
        for job, figures in volume["jobs"].items():
            for kind, summed in figures["results"].items():
                medians = summed["medians"]
                rows.append(
                    [
                        f"{volume['volume']:g} x",
                        job,
                        kind,
                        *(_quantile(summed[name]) for name in ("p50", "p90", "p99")),
                        _seconds(summed["max"]),
                        f"{summed['count']:,}",
                        f"{min(medians):.2f} .. {max(medians):.2f} s" if medians else "",
                    ]
                )
    header = ["volume", "job", "reader", "p50", "p90", "p99", "max", "results", "medians of trials"]
    return _table(header, rows) + _warnings(
        f"{volume['volume']:g} x, {job}, {kind}: {warning}"
        for volume in told["volumes"]
        for job, figures in volume["jobs"].items()
        for kind, summed in figures["results"].items()
        for warning in summed["warnings"]
    )


def _marker_table(told: dict[str, Any]) -> str:
    rows = []
    legs = [leg for leg in LEG_TEXTS if leg != "slip"]
    for volume in told["volumes"]:
        for job, figures in volume["jobs"].items():
            report = figures["markers"]
            if report is None:
                continue
            statuses = report["statuses"]
            cells = [_pair(report["legs"].get(leg)) for leg in legs]
            gone = f"{statuses['lost']} / {statuses['late']} / {report['duplicates']}"
            rows.append([f"{volume['volume']:g} x", job, *cells, str(report["markers"]), gone])
    meaning = "; ".join(f"<b>{leg}</b>: {_text(LEG_TEXTS[leg])}" for leg in legs)
    note = f'<p class="note">p50 / p99 in seconds. {meaning}. Lost, late and duplicate markers in the last column.</p>'
    return note + _table(["volume", "job", *legs, "markers", "lost / late / twice"], rows)


def _cost_table(told: dict[str, Any]) -> str:
    rows = []
    for volume in told["volumes"]:
        cores, memory = volume["cores"], volume["memory_mb"]
        own = product_cores(cores)
        rows.append(
            [
                f"{volume['volume']:g} x",
                f"{volume['rate']:,}",
                _number(volume["throughput"]),
                f"{volume['held']} of {volume['valid']}",
                _number(volume["backlog"]),
                f"{_number(volume['batch_ms'])} ms",
                *(f"{cores.get(part, 0):.2f}" for part in ("jobs", "broker", "load", "measuring")),
                f"{foreign_cores(cores):.2f}",
                _number(volume["throughput"] / own) if own and volume["throughput"] else "-",
                *(_number(memory.get(part)) for part in ("jobs", "broker")),
            ]
        )
    header = ["volume", "events/s asked", "processed", "held", "backlog", "batch p50", "cores: jobs", "broker", "load"]
    header += ["measuring", "others", "events/s per core", "MB: jobs", "broker"]
    return _note(wording.HELD) + _table(header, rows)


def _parity_table(told: dict[str, Any]) -> str:
    rows = [
        [f"{volume['volume']:g} x", job, *(f"{found[name]:,}" for name in found)]
        for volume in told["volumes"]
        for job, found in volume["right"].items()
    ]
    if not rows:
        return "<p>Not compared in this evaluation.</p>"
    return _note(wording.PARITY) + _table(
        ["volume", "job", "rows", "missing", "extra", "different", "approximate"], rows
    )


def _sizes_table(told: dict[str, Any]) -> str:
    sizes = told["sizes"]
    if not sizes:
        return "<p>Not measured.</p>"
    columns = list(next(iter(sizes.values())))
    rows = [[encoding, *(f"{measured[column]:.0f}" for column in columns)] for encoding, measured in sizes.items()]
    return _note(wording.SIZES) + _table(["encoding", *columns], rows)


def _trials_table(records: Sequence[dict[str, Any]], told: dict[str, Any]) -> str:
    rows = [
        [
            record["name"],
            _mark("valid", good=True) if record["valid"] else _mark("not valid", good=False),
            {True: "held", False: "not held", None: "?"}[record["held"]],
            f"{record['load']['most_behind']:.2f} s",
            f"{foreign_cores(record['cores']):.2f}",
            "; ".join([*record["reasons"], *record["warnings"]]),
        ]
        for record in records
    ]
    rows += [
        [failure["name"], _mark("failed", good=False), "", "", "", failure["problem"]] for failure in told["failures"]
    ]
    header = ["trial", "", "volume", "generator behind at most", "cores of others", "remarks"]
    return _table(header, rows, markup=True) + _note(wording.RAW)


def _limits() -> str:
    return "<ul>" + "".join(f"<li>{_text(point)}</li>" for point in wording.LIMITS) + "</ul>"


# ---------------------------------------------------------------- small things


def _text(text: str) -> str:
    return html.escape(text)


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>'


def _mark(text: str, *, good: bool) -> str:
    return f'<span class="{"good" if good else "bad"}">{_text(text)}</span>'


def _warnings(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{_text(text)}</li>" for text in texts)
    return f"<details><summary>Too few samples, and other warnings</summary><ul>{items}</ul></details>" if items else ""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, markup: bool = False) -> str:
    def cell(text: str) -> str:
        safe = text if markup and text.startswith("<span") else _text(text)
        kind = ' class="n"' if text[:1].isdigit() or text[:1] == "-" else ""
        return f"<td{kind}>{safe}</td>"

    head = "".join(f"<th>{_text(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(cell(text) for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _seconds(value: float | None) -> str:
    return "never" if value is None or math.isinf(value) else f"{value:.2f} s"


def _quantile(quantile: dict[str, Any]) -> str:
    value = _seconds(quantile["value"])
    if quantile["warning"] or quantile["low"] is None or quantile["high"] is None:
        return f"{value} (?)"
    return f"{value} ({quantile['low']:.2f} .. {quantile['high']:.2f})"


def _pair(leg: dict[str, Any] | None) -> str:
    if leg is None:
        return "-"
    values = (leg[name]["value"] for name in ("p50", "p99"))
    return " / ".join("never" if value is None else f"{value:.3f}" for value in values)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
