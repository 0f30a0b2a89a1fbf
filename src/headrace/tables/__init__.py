"""Tables: streams whose rows may be replaced and taken back, and what is computed of them.

`Stream.as_table` makes a `Table` of upserts and deletes, `Table.changes` gives its updating stream back. The operators
here take rows that add and rows that take back (`headrace.engine.changelog`), and give the net change of each turn.
"""

import headrace.stream  # noqa: F401 - streams and tables name each other; this order is the one that works
from headrace.engine.changelog import final, net
from headrace.tables.frames import dense_rank, first_value, lag, last_value, lead, rank, row_number
from headrace.tables.table import Table
from headrace.tables.upserts import IS_DELETE

__all__ = [
    "IS_DELETE",
    "Table",
    "dense_rank",
    "final",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "net",
    "rank",
    "row_number",
]
