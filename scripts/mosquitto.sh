#!/usr/bin/env bash
# Make sure that the MQTT broker which the tests need is there; install Debian's package if we may.
set -euo pipefail

if command -v mosquitto >/dev/null 2>&1 || [ -x /usr/sbin/mosquitto ]; then exit 0; fi

if command -v apt-get >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then sudo=""; elif command -v sudo >/dev/null 2>&1; then sudo="sudo"; else sudo="none"; fi
  if [ "$sudo" != none ]; then
    echo "==> installing mosquitto (apt-get install mosquitto)"
    $sudo apt-get update -qq
    # The tests start brokers of their own: no service should run beside them.
    $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq mosquitto >/dev/null
    exit 0
  fi
fi
echo "mosquitto is missing: the MQTT tests will be skipped. Install it (Debian: apt-get install mosquitto) to run them." >&2
