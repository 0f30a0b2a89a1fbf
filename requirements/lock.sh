#!/usr/bin/env bash
# Pin every requirement with its hashes: lock.sh UV. The files name no index: pip uses the one it is configured with.
set -euo pipefail
uv="$1"
cd "$(dirname "$0")/.."
options=(--quiet --override requirements/local.txt --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url "${@:2}")
"$uv" pip compile "${options[@]}" --extra dev pyproject.toml --output-file requirements/dev.txt
"$uv" pip compile "${options[@]}" --constraint requirements/dev.txt --extra all pyproject.toml --output-file requirements/run.txt
"$uv" pip compile "${options[@]}" --constraint requirements/dev.txt requirements/build.in --output-file requirements/build.txt
"$uv" pip compile "${options[@]}" requirements/node.in --output-file requirements/node.txt
