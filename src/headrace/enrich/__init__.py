"""Enrichment: columns that a stream does not have, looked up by those that it has.

`Stream.enrich` takes one of three sources, all described by frozen values and run by the same step:

- `table`: a frame that every worker holds, such as a timetable; the lookup is a join of the batch's different keys.
- `bulk`: a function from a frame of keys to a frame of values.
- `http`: a service that is asked over HTTP, asynchronously, with time-outs, retries, a limit on parallel calls, a cache
  that survives a restart, and a circuit breaker.

A row whose key is not found goes on with nulls, and so does one whose lookup fails or takes too long: an enrichment
never holds the stream up and never stops it. How many rows went on in which way is counted (`headrace.engine.tally`)
under `<name>.found`, `<name>.unknown`, `<name>.failed`, `<name>.refused` and `<name>.unanswered`.
"""

from headrace.enrich.bulk import Bulk, bulk
from headrace.enrich.http import Ask, Http, http
from headrace.enrich.lookup import Enrichment, Found, State
from headrace.enrich.table import Table, table

__all__ = ["table", "bulk", "http", "Ask", "Enrichment", "Found", "State", "Table", "Bulk", "Http"]
