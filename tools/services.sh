#!/usr/bin/env bash
# Install the servers that tests marked `service(...)` run against, from Debian's packages.
# Nothing is started: tests start private ones, on free ports, and stop them again.
set -euo pipefail

packages=(
  openssh-client openssh-server # tests/run: launching over SSH, on loopback
  slurm-wlm munge               # tests/run: launching on a cluster of one node
)
policy=/usr/sbin/policy-rc.d # asked by package scripts whether a service may be started

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
  echo "services: ${packages[*]} are installed"
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "services: installing ${missing[*]} needs root; run 'sudo make services'" >&2
  exit 4
fi

aside=$(mktemp -d)
restore() {
  rm -f "$policy"
  [ ! -e "$aside/policy-rc.d" ] || mv "$aside/policy-rc.d" "$policy"
  rm -rf "$aside"
}
trap restore EXIT
[ ! -e "$policy" ] || mv "$policy" "$aside/policy-rc.d"
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

echo "services: installing ${missing[*]} ..." >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  -o Dpkg::Use-Pty=0 "${missing[@]}" >"$aside/apt.log" 2>&1 || {
  cat "$aside/apt.log" >&2
  exit 5
}
# What was not there before does not start with the machine, either.
units=()
case " ${missing[*]} " in *" openssh-server "*) units+=(ssh) ;; esac
case " ${missing[*]} " in *" slurm-wlm "*) units+=(slurmd slurmctld) ;; esac
case " ${missing[*]} " in *" munge "*) units+=(munge) ;; esac
if [ -d /run/systemd/system ] && [ "${#units[@]}" -gt 0 ]; then
  systemctl disable --quiet "${units[@]}" || true
fi
echo "services: installed ${missing[*]}"
