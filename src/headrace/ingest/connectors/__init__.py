"""The connectors that come with Headrace, one file each; `headrace.ingest.connector` says what one is."""
