"""The message types of the application; the build makes modules of them (again: `python hatch_build.py transit`)."""

from __future__ import annotations

from headrace_transit.schemas.transit_pb2 import StopEvent, VehiclePosition

__all__ = ["VehiclePosition", "StopEvent"]
