#!/usr/bin/env bash
# Installs what the lab compares Towpath with, and what it measures links by. Needs root and apt-get;
# without them it says which packages are wanted. The lab itself tells what is still missing then
# (towpath-lab deps).
set -euo pipefail

packages=(iproute2 iputils-ping iperf3 e2fsprogs rsync openssh-server openssh-client wget nginx-light zsync
    aria2 python3-libtorrent)

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "lab-deps: installing needs root and apt-get; the packages are called in Debian:" >&2
    echo "${packages[*]}" >&2
    exit 1
fi
apt-get -qq update
DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install --yes --no-install-recommends "${packages[@]}"
echo "lab-deps: all programs of the lab are here"
