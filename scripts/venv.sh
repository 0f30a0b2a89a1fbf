#!/usr/bin/env bash
# Create the virtual environment: venv.sh PYTHON DIRECTORY
set -euo pipefail
python="${1:-}"
directory="$2"

if [ -z "$python" ] || ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
  echo "Python 3.11, 3.12 or 3.13 is needed; found: ${python:-none}. Install one (Debian: apt-get install python3 python3-venv)" >&2
  echo "or name it: make PYTHON=/path/to/python3.11 ..." >&2
  exit 4
fi
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
  if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "==> installing python3-venv"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
  else
    echo "$python has no venv module. Install it (Debian: apt-get install python3-venv), then try again." >&2
    exit 4
  fi
fi
echo "==> creating $directory with $("$python" --version)"
"$python" -m venv "$directory"
