"""Why a job gave a result for a key, or why it did not: its steps run again over the same events.

`why(job, rows, key="depot-1")` runs the operators of the job in this process and gives a `Story`: which events came,
what each step did with them, what fired, and what has not fired yet with what it waits for. `headrace why` does that
with the events, the batches and the times of a query that runs.
"""

from headrace.trace.events import Given
from headrace.trace.story import Event, Fact, Story
from headrace.trace.why import why

__all__ = ["Event", "Fact", "Given", "Story", "why"]
