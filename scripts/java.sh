#!/usr/bin/env bash
# Make sure that a Java which Spark supports is there; install Debian's package if we may.
set -euo pipefail

major() { "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1; }

candidate="${JAVA_HOME:+$JAVA_HOME/bin/java}"
candidate="${candidate:-$(command -v java || true)}"
if [ -n "$candidate" ] && [ -x "$candidate" ]; then
  found="$(major "$candidate")"
  case "$found" in
    17 | 21) exit 0 ;;
    *) echo "Java ${found:-of unknown version} at $candidate: Spark needs 17 or 21." >&2 ;;
  esac
fi

if command -v apt-get >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then sudo=""; elif command -v sudo >/dev/null 2>&1; then sudo="sudo"; else sudo="none"; fi
  if [ "$sudo" != none ]; then
    echo "==> installing Java 17 (apt-get install openjdk-17-jre-headless)"
    $sudo apt-get update -qq
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless >/dev/null
    exit 0
  fi
fi
echo "Java 17 or 21 is missing. Install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME, then try again." >&2
exit 4
