"""State: segments of key groups in Spark's state store, the workers' cache in front of it, and the state server."""
