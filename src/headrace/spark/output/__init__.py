"""Output: from frames to records, sinks and their promises, tokens, and who may write the results of a job."""
