"""Joins: two streams meet, and a stream meets a table that changes. See docs/joins.md."""
