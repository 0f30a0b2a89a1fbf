"""NEXMark: queries over the events of an auction house, a benchmark of stream engines since 2002.

    python -m benchmarks.nexmark            # prints a table, writes benchmarks/results/nexmark.json

- `generator`: people, auctions and bids in the published proportions, with hot auctions and hot bidders
- `queries`: the queries that need no join, and those with MATCH_RECOGNIZE, on Headrace's public interface
- `sql_queries`: q0 to q23 and the pattern queries in SQL; `sql_reference`: their answers by DuckDB; `sql_runs`: Spark
- `reference`: the same answers by plain Polars and plain loops
"""
