"""Streaming SQL: statements that define tables, views and functions, and queries on the plan of streams."""
