#!/usr/bin/env bash
# Install the servers that tests marked `service(...)` run against, from Debian's packages.
# Each line of `packages` is one package that some test needs; no test needs one yet.
set -euo pipefail
packages=()
if [ "${#packages[@]}" -eq 0 ]; then
  echo "services: no test needs a server yet"
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "services: installing Debian packages needs root; run 'sudo make services'" >&2
  exit 4
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${packages[@]}"
