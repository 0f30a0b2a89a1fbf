"""All scalar functions by their upper-case names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.streaming_sql.clock_functions import add_clock_functions
from headrace.streaming_sql.functions import Table
from headrace.streaming_sql.geo_functions import add_geo_functions
from headrace.streaming_sql.json_functions import add_json_functions
from headrace.streaming_sql.nested_functions import add_nested_functions
from headrace.streaming_sql.number_functions import add_number_functions
from headrace.streaming_sql.text_functions import add_text_functions
from headrace.streaming_sql.text_patterns import add_text_patterns
from headrace.streaming_sql.time_functions import add_time_functions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.streaming_sql.functions import ScalarFunction


def _all() -> dict[str, ScalarFunction]:
    table = Table()
    add_number_functions(table)
    add_text_functions(table)
    add_text_patterns(table)
    add_time_functions(table)
    add_clock_functions(table)
    add_nested_functions(table)
    add_geo_functions(table)
    add_json_functions(table)
    return table.functions


FUNCTIONS: Final[Mapping[str, ScalarFunction]] = _all()
