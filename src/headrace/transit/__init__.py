"""The application: live analysis of Helsinki's public transport, on top of a platform that knows nothing of buses."""

from __future__ import annotations

from headrace.extras import require

require("transit", by="headrace.transit")
