#!/usr/bin/env bash
# Run all tests: tests.sh PYTHON [PYTEST ARGUMENTS]
# Tests that start Spark wait more than they work, so they run beside the others, in two lanes. Random tests try half of
# their examples, and tests marked `long` are left out; `make test-long` runs all of it. With arguments: one run.
# At the end the tests that were skipped are counted and named.
set -uo pipefail
python="$1"
shift
if [ "$#" -gt 0 ]; then
  exec "$python" -m pytest "$@"
fi

chosen=(-p no:cacheprovider --durations=25 -m "not long" --hypothesis-profile half)
# Every file of tests/spark is in one of the two lanes; both have a broker and a Java process of their own.
early=(tests/spark/test_[a-o]*.py)
late=(tests/spark/test_[!a-o]*.py)
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
"$python" -m pytest "${chosen[@]}" --junitxml "$reports/early.xml" "${early[@]}" >"$reports/early.log" 2>&1 &
lanes=("$!")
"$python" -m pytest "${chosen[@]}" --junitxml "$reports/late.xml" "${late[@]}" >"$reports/late.log" 2>&1 &
lanes+=("$!")
trap 'kill "${lanes[@]}" 2>/dev/null; wait "${lanes[@]}" 2>/dev/null; rm -rf "$reports"; exit 130' INT TERM
"$python" -m pytest "${chosen[@]}" --junitxml "$reports/others.xml" tests src transit/src conftest.py --ignore=tests/spark
status=$?
for number in 0 1; do
  wait "${lanes[$number]}" || status=1
done
for lane in early late; do
  echo "==> tests with Spark, which ran beside: $lane"
  cat "$reports/$lane.log"
done
"$python" scripts/skipped.py "$reports"/*.xml
[ "$status" -eq 0 ]
