#!/usr/bin/env bash
# Run all tests: tests.sh PYTHON [PYTEST ARGUMENTS]
# Tests that start Spark wait more than they work, so they run beside the others. Random tests try half of their
# examples, and tests marked `long` are left out; `make test-long` runs all of it. With arguments: one run.
# At the end the tests that were skipped are counted and named.
set -uo pipefail
python="$1"
shift
if [ "$#" -gt 0 ]; then
  exec "$python" -m pytest "$@"
fi

beside=(tests/spark)
chosen=(-p no:cacheprovider --durations=25 -m "not long" --hypothesis-profile half)
reports=$(mktemp -d)
log="$reports/beside.log"
trap 'rm -rf "$reports"' EXIT
"$python" -m pytest "${chosen[@]}" --junitxml "$reports/beside.xml" "${beside[@]}" >"$log" 2>&1 &
other=$!
trap 'kill "$other" 2>/dev/null; wait "$other" 2>/dev/null; rm -rf "$reports"; exit 130' INT TERM
"$python" -m pytest "${chosen[@]}" --junitxml "$reports/others.xml" tests src transit/src conftest.py "${beside[@]/#/--ignore=}"
first=$?
echo "==> tests with Spark, which ran beside"
wait "$other"
second=$?
cat "$log"
"$python" scripts/skipped.py "$reports"/*.xml
[ "$first" -eq 0 ] && [ "$second" -eq 0 ]
