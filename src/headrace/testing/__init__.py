"""The public test kit: scripted streams, contract tests, property strategies, conformance cases.

- `Harness` and `run_script` drive a window operator step by step (`headrace.testing.script`).
- `check_assigner`, `check_format` and `check_sink` put windows, formats and sinks of your own through what the engine
  relies on (`headrace.testing.contracts`, `headrace.testing.sink_contract`).
- `headrace.testing.strategies` draws streams, batches, watermarks and restarts for Hypothesis.
- `python -m headrace.testing.conformance FILE...` runs the cases of other engines' suites.
"""

from headrace.testing.case import CaseResult
from headrace.testing.contracts import ContractError, check_assigner, check_format
from headrace.testing.script import Driver, Harness, ScriptError, event_frame, run_script
from headrace.testing.sink_contract import check_sink

__all__ = [
    "CaseResult",
    "ContractError",
    "Driver",
    "Harness",
    "ScriptError",
    "check_assigner",
    "check_format",
    "check_sink",
    "event_frame",
    "run_script",
]
