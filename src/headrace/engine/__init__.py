"""The engine's contracts: what an operator is, where it keeps state, how keys are spread over key groups.

An operator is pure stateful logic of one step on one **key group**. A runner (in process, Spark streaming, Spark batch)
calls it with a `Turn` and carries away its `Outcome`; state lives in named `Segments` that only the touched parts of
are read and written, so that the cost of a turn follows its input and not the size of the state.
"""

from headrace.engine.operator import Operator, Outcome, Turn
from headrace.engine.state import MemorySegments, Segments

__all__ = ["Operator", "Outcome", "Turn", "Segments", "MemorySegments"]
