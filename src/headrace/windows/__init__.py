"""Windows: assigners, triggers, panes, aggregates, and the operator that runs them."""

from headrace.windows.assigners import (
    Aligned,
    Assigner,
    global_,
    same_window,
    session,
    sliding,
    tumbling,
)

__all__ = [
    "Aligned",
    "Assigner",
    "global_",
    "same_window",
    "session",
    "sliding",
    "tumbling",
]
