"""Processors for formats of any domain, one file each; `headrace.ingest.mapping` says what a mapping is."""
