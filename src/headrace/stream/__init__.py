"""What a user writes: `Stream` (a frozen plan until it is run) and `Job` (a stream with a name and a result topic)."""

from headrace.delivery import Delivery
from headrace.stream.display import Display
from headrace.stream.job import Job, Output
from headrace.stream.stream import Stream

__all__ = ["Job", "Stream", "Display", "Delivery", "Output"]
