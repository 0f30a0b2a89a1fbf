"""The protobuf schemas, and the Python modules that the build makes of them (`python hatch_build.py` makes them again)."""
