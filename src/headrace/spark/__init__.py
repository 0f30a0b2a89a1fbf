"""Spark: the same operators, distributed, with durable state.

    source    ->  Arrow stage              ->  stateful stage           ->  sink
    (Kafka)       (decode, stateless steps,    (one call per key group      (one Kafka transaction
                   key groups)                  and batch)                   a batch)

One query runs any number of jobs. `runner.run_jobs` is the front door.
"""

from __future__ import annotations

from headrace.extras import require

require("spark", by="headrace.spark")
