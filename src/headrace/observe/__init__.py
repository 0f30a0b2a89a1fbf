"""How the platform is doing: latency markers and what is read from them, percentiles with their uncertainty, metrics.

Nothing here knows about buses: which events make a job answer is told by whoever wants to know
(`headrace_transit.markers` for the jobs of the application).
"""

from __future__ import annotations

from headrace.extras import require

require("kafka", by="headrace.observe")
