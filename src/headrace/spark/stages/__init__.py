"""Stateful stages: the query as a Spark plan, and one call per key group and batch."""
