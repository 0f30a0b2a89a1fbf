#!/usr/bin/env bash
# Make sure that the browser which the dashboard's tests need is there; install Debian's package if we may.
set -euo pipefail

if command -v chromium >/dev/null 2>&1; then exit 0; fi

if command -v apt-get >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then sudo=""; elif command -v sudo >/dev/null 2>&1; then sudo="sudo"; else sudo="none"; fi
  if [ "$sudo" != none ]; then
    echo "==> installing Chromium (apt-get install chromium; 300 MB)"
    $sudo apt-get update -qq
    if $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
    then exit 0; fi
  fi
fi
echo "Chromium is missing: the browser tests will be skipped. Install it (Debian: apt-get install chromium) to run them." >&2
