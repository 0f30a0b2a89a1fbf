#!/usr/bin/env bash
# Make sure that what the tests run beside is there: an MQTT broker, and openssl for their certificates. Installs Debian's
# packages if we may.
set -euo pipefail

missing=()
command -v mosquitto >/dev/null 2>&1 || [ -x /usr/sbin/mosquitto ] || missing+=(mosquitto)
command -v openssl >/dev/null 2>&1 || missing+=(openssl)
[ "${#missing[@]}" -gt 0 ] || exit 0

if command -v apt-get >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then sudo=""; elif command -v sudo >/dev/null 2>&1; then sudo="sudo"; else sudo="none"; fi
  if [ "$sudo" != none ]; then
    echo "==> installing ${missing[*]} (apt-get install ${missing[*]})"
    $sudo apt-get update -qq
    # The tests start brokers of their own: no service should run beside them.
    $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq "${missing[@]}" >/dev/null
    exit 0
  fi
fi
echo "missing: ${missing[*]}. The tests that need them will be skipped; install them (Debian: apt-get install ${missing[*]}) to run them." >&2
