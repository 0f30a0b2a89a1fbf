#!/usr/bin/env bash
# Run all tests: tests.sh PYTHON [PYTEST ARGUMENTS]
# Tests that start Spark or a browser wait more than they work, so they run beside the others. With arguments: one run.
set -uo pipefail
python="$1"
shift
if [ "$#" -gt 0 ]; then
  exec "$python" -m pytest "$@"
fi

beside=(tests/spark tests/chaos tests/dashboard/browser)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$python" -m pytest -p no:cacheprovider --durations=12 "${beside[@]}" >"$log" 2>&1 &
other=$!
trap 'kill "$other" 2>/dev/null; wait "$other" 2>/dev/null; rm -f "$log"; exit 130' INT TERM
"$python" -m pytest -p no:cacheprovider --durations=12 tests src "${beside[@]/#/--ignore=}"
first=$?
echo "==> tests with Spark and a browser, which ran beside"
wait "$other"
second=$?
cat "$log"
[ "$first" -eq 0 ] && [ "$second" -eq 0 ]
