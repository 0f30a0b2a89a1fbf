"""Running jobs: as a stream, as a batch, on Spark's own DataFrames; restarts, failed jobs, and reports of a run."""
