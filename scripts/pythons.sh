#!/usr/bin/env bash
# Run the quick tests with every Python that pyproject.toml promises and this machine has: pythons.sh VENV [PYTEST ARGUMENTS]
# VENV serves the version that it was made with; the others get environments of their own in .make/pythons, from the same
# locked requirements. A promised Python that is not here is named at the end, and is no failure.
set -uo pipefail
cd "$(dirname "$0")/.."
venv="$1"
shift
home=.make/pythons
passed=() failed=() missing=()

# is VERSION COMMAND: whether a command is that Python. A shim of pyenv may be there and start nothing.
is() { [ "$("$2" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$1" ]; }

# find_python VERSION: print the path of such a Python.
find_python() {
  local candidate
  for candidate in "$venv/bin/python" "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if [ -x "$candidate" ] && is "$1" "$candidate"; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

# prepare PYTHON DIRECTORY: install the locked requirements, unless they are there.
prepare() {
  local made
  made="$(cat requirements/build.txt requirements/dev.txt pyproject.toml transit/pyproject.toml | sha256sum)"
  [ "$(cat "$2/locked" 2>/dev/null)" = "$made" ] && return 0
  echo "==> creating $2 with $("$1" --version) (Spark is 450 MB; some minutes)"
  rm -rf "$2"
  "$1" -m venv "$2" || return 1
  local pip=("$2/bin/python" -m pip --disable-pip-version-check install --quiet)
  "${pip[@]}" --require-hashes -r requirements/build.txt &&
    "${pip[@]}" --no-build-isolation --require-hashes -r requirements/dev.txt &&
    "${pip[@]}" --no-build-isolation --no-deps --editable . --editable transit || return 1
  echo "$made" >"$2/locked"
}

for version in $(sed -n 's/.*"Programming Language :: Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml); do
  if ! python="$(find_python "$version")"; then
    missing+=("$version")
    continue
  fi
  if [ "$python" != "$venv/bin/python" ]; then
    if ! prepare "$python" "$home/$version"; then
      failed+=("$version")
      continue
    fi
    python="$home/$version/bin/python"
  fi
  echo "==> quick tests with $("$python" --version)"
  if bash scripts/quick.sh "$python" -p no:cacheprovider "$@"; then passed+=("$version"); else failed+=("$version"); fi
done
echo "==> quick tests by Python: passed ${passed[*]:-none}; failed ${failed[*]:-none}; not on this machine ${missing[*]:-none}"
[ "${#failed[@]}" -eq 0 ] && [ "${#passed[@]}" -gt 0 ]
