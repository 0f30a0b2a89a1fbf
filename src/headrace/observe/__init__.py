"""How the platform is doing: latency markers and what is read from them, percentiles with their uncertainty, metrics.

Nothing here knows about any application: which events make a job answer is said by whoever wrote the job
(`headrace.observe.recipes`).
"""

from __future__ import annotations

from headrace.extras import require

require("kafka", by="headrace.observe")
