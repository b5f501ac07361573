#!/usr/bin/env bash
# What the end-to-end tests use besides cargo: sshd and ssh, rsync to compare with, strace, setpriv, curl,
# systemd's tool that activates by socket, python3 and cc for the examples; and what the lab's tests use: ip,
# ping, mkfs.ext4, nginx; and versitygw, a server of S3, and nats-server, which Go builds into target/test-tools once.
# Installs what is missing, as root on a system with apt-get; else says what is missing, and the
# situations that need it are skipped (in CI, where CI is set, they fail).
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# Each program with the package it comes in.
wanted="sshd:openssh-server ssh:openssh-client ssh-keygen:openssh-client rsync:rsync setfacl:acl
setfattr:attr strace:strace setpriv:util-linux unshare:util-linux ip:iproute2 nft:nftables ping:iputils-ping mkfs.ext4:e2fsprogs
mount:mount wget:wget nginx:nginx-light curl:curl systemd-socket-activate:systemd python3:python3 cc:gcc openssl:openssl"

missing() {
    for pair in $wanted; do
        command -v "${pair%%:*}" >/dev/null || echo "${pair##*:}"
    done | sort -u | tr '\n' ' '
}

install_packages() {
    local log
    log=$(mktemp)
    # shellcheck disable=SC2086 # a list of words
    if ! {
        timeout 120 apt-get -qq update &&
            DEBIAN_FRONTEND=noninteractive timeout 300 \
                apt-get -qq install --yes --no-install-recommends $1
    } >"$log" 2>&1 </dev/null; then
        echo "test-tools: apt-get could not install $1" >&2
        tail -n 3 "$log" >&2
    fi
    rm -f "$log"
}

packages=$(missing)
if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "test-tools: installing $packages"
    install_packages "$packages"
    packages=$(missing)
fi
if [ -n "$packages" ]; then
    echo "test-tools: missing, and some tests will be skipped: $packages" >&2
fi

# A server that Go builds once from its sources (one to two minutes), by the version that was measured.
#   build NAME MODULE FOR
build() {
    local server=target/test-tools/$1 log
    if [ -x "$server" ] || command -v "$1" >/dev/null; then
        return
    fi
    if ! command -v go >/dev/null; then
        echo "test-tools: go is missing, which builds $1; tests of $3 will be skipped" >&2
        return
    fi
    echo "test-tools: building $server"
    log=$(mktemp)
    if ! GOBIN="$PWD/target/test-tools" timeout 600 go install "$2" >"$log" 2>&1 </dev/null; then
        echo "test-tools: $1 could not be built; tests of $3 will be skipped" >&2
        tail -n 3 "$log" >&2
    fi
    rm -f "$log"
}

build versitygw github.com/versity/versitygw/cmd/versitygw@v1.8.0 "object storage"
build nats-server github.com/nats-io/nats-server/v2@v2.15.2 "entries that several rendezvous servers share"

# sshd wants it, and nobody makes it where no init runs.
if [ "$(id -u)" = 0 ]; then
    mkdir -p /run/sshd && chmod 0755 /run/sshd
fi
exit 0
