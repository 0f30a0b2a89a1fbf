"""Windows: assigners, triggers, panes, aggregates, and the operator that runs them."""

from headrace.windows.aggregates import (
    Aggregate,
    count,
    first,
    histogram,
    latest,
    max,  # noqa: A004
    mean,
    min,  # noqa: A004
    std,
    sum,  # noqa: A004
    variance,
)
from headrace.windows.assigners import (
    Aligned,
    Assigner,
    Cumulative,
    Sliding,
    Tumbling,
    cumulative,
    global_,
    same_window,
    session,
    sliding,
    tumbling,
)
from headrace.windows.bags import collect, top_k
from headrace.windows.build import operator_for
from headrace.windows.custom import custom
from headrace.windows.operator import WindowOperator
from headrace.windows.panes import Panes
from headrace.windows.sequences import SequenceOperator, count_window, delta, punctuation
from headrace.windows.sketches import distinct, frequent_items, quantile
from headrace.windows.triggers import (
    Trigger,
    after_all,
    after_any,
    after_count,
    after_each,
    after_end,
    after_processing_time,
    after_watermark,
    check_trigger,
    default,
    every_interval,
    never,
    or_finally,
    repeatedly,
)

__all__ = [
    "Panes",
    "Trigger",
    "SequenceOperator",
    "WindowOperator",
    "after_all",
    "after_any",
    "after_count",
    "after_each",
    "after_end",
    "after_processing_time",
    "after_watermark",
    "check_trigger",
    "default",
    "every_interval",
    "never",
    "operator_for",
    "or_finally",
    "repeatedly",
    "Aggregate",
    "Aligned",
    "Assigner",
    "Cumulative",
    "Sliding",
    "Tumbling",
    "collect",
    "count",
    "count_window",
    "custom",
    "delta",
    "distinct",
    "first",
    "frequent_items",
    "global_",
    "histogram",
    "latest",
    "max",
    "mean",
    "min",
    "punctuation",
    "quantile",
    "same_window",
    "session",
    "cumulative",
    "sliding",
    "std",
    "sum",
    "top_k",
    "tumbling",
    "variance",
]
