"""Kafka to exchange rows: planning a batch, reading it in the tasks, decoding, stateless steps, key groups."""
