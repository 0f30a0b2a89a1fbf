"""The protobuf schemas, and the Python modules that the build makes of them (again: `python hatch_build.py`)."""
