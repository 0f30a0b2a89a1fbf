"""Complex event processing: find patterns in the rows of each key, in event-time order.

One matcher (`program`, `matcher`) with two front ends: the `Pattern` builder, and SQL's MATCH_RECOGNIZE in
`headrace.cep.sql`.
"""
