"""How Spark's Java process logs: the levels are in `log4j2.properties`, the form is text or JSON.

The JSON form has the fields of Headrace's own records (`headrace.logs`), and Spark's number of the batch as
`batch_number` where a record belongs to one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.logs import LogFormat

TEXT = Path(__file__).with_name("log4j2.properties")
_LAYOUT = "appender.console.layout."
_TEMPLATE = {
    "time": {"$resolver": "timestamp", "pattern": {"format": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "timeZone": "UTC"}},
    "level": {"$resolver": "level", "field": "name"},
    "logger": {"$resolver": "logger", "field": "name"},
    "message": {"$resolver": "message", "stringified": True},
    "exception": {"$resolver": "exception", "field": "stackTrace", "stackTrace": {"stringified": True}},
    "batch_number": {"$resolver": "mdc", "key": "batch_id"},
}


def log_configuration(log_format: LogFormat, directory: Path) -> Path:
    """Give the file that configures Java's log.

    Args:
        log_format: The form of the log.
        directory: Where a file can be written that is not in the package.
    """
    if log_format == "text":
        return TEXT
    levels = [line for line in TEXT.read_text().splitlines() if not line.startswith(_LAYOUT)]
    layout = [f"{_LAYOUT}type = JsonTemplateLayout", f"{_LAYOUT}eventTemplate = {json.dumps(_TEMPLATE)}"]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "log4j2.json.properties"
    path.write_text("\n".join([*levels, *layout, ""]))
    return path
