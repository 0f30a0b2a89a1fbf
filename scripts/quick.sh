#!/usr/bin/env bash
# Run the quick tests in parallel workers, one per core: quick.sh PYTHON [PYTEST ARGUMENTS]
# They need neither Spark nor Kafka. A module's tests stay in one worker, since they share what the module sets up.
set -euo pipefail
python="$1"
shift
# The workers fill the cores; more threads in each would only get into each other's way.
export POLARS_MAX_THREADS="${POLARS_MAX_THREADS:-1}"
exec "$python" -m pytest -q -m "not spark and not broker and not slow and not long" --hypothesis-profile quick \
  -n logical --maxprocesses 8 --dist loadscope "$@"
