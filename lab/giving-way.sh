#!/usr/bin/env bash
# A get that serves others gives way to itself: seconds of a get on a line of which both directions share the rate, as by radio,
# without and with a second receiver that draws on it meanwhile. Real processes in network namespaces.
#
#     lab/giving-way.sh [MIB] [MBIT]        60 MiB and 20 Mbit/s by default
#
# Needs root. TOW names the program (default: target/release/tow).
#
#     first ── line ── far (the issuer) ── 8 Mbit/s ── second
#               ╰ loop: all packets of both directions leave through one shaped queue here
set -euo pipefail

mib=${1:-60}
mbit=${2:-20}
tow=$(realpath "${TOW:-target/release/tow}")
work=$(mktemp -d /dev/shm/giving-way.XXXXXX)
run=gw$$
started=()
tidy() {
    for pid in "${started[@]}"; do kill "$pid" 2> /dev/null; done
    wait 2> /dev/null
    for space in first line loop far second; do ip netns del "$run-$space" 2> /dev/null; done
    rm -rf "$work"
}
trap 'tidy || true' EXIT

inside() { local space=$1; shift; ip netns exec "$run-$space" "$@"; }
# Two namespaces, and the addresses of both ends of a link between them.
link() {
    ip link add "$1-$3" netns "$run-$1" type veth peer name "$3-$1" netns "$run-$3"
    inside "$1" ip addr add "$2/24" dev "$1-$3"
    inside "$3" ip addr add "$4/24" dev "$3-$1"
    inside "$1" ip link set "$1-$3" up
    inside "$3" ip link set "$3-$1" up
}
for space in first line loop far second; do
    ip netns add "$run-$space"
    inside "$space" ip link set lo up
    inside "$space" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
        net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0
done
link first 10.77.1.2 line 10.77.1.1
link line 10.77.2.1 far 10.77.2.2
link line 10.77.3.1 loop 10.77.3.2
link far 10.77.4.1 second 10.77.4.2
inside first ip route add default via 10.77.1.1
inside far ip route add 10.77.1.0/24 via 10.77.2.1
inside second ip route add default via 10.77.4.1
inside line ip route add 10.77.4.0/24 via 10.77.2.2
inside loop ip route add default via 10.77.3.1
inside line ip route add default via 10.77.3.2 table 9
for from in first far; do inside line ip rule add iif "line-$from" lookup 9; done
inside line tc qdisc add dev line-loop root tbf rate "${mbit}mbit" burst 16k latency 40ms
inside far tc qdisc add dev far-second root tbf rate 8mbit burst 16k latency 40ms

at() {
    local space=$1
    shift
    mkdir -p "$work/$space"
    TOW_HOME=$work/$space/home HOME=$work/$space exec ip netns exec "$run-$space" "$tow" "$@"
}
mkdir "$work/far"
head -c "$((mib << 20))" /dev/urandom > "$work/far/file"
at far share --listen 10.77.2.2:7000 "$work/far/file" > "$work/share" 2> "$work/share.err" &
started+=($!)
for _ in $(seq 600); do [ ! -s "$work/share" ] || break; sleep 0.1; done
ticket=$(head -n 1 "$work/share")

# Seconds of the first one's get, and how many bytes the second one had from it; WORDS go to the first one's command.
get() {
    local second='' start brought=0
    rm -rf "$work/first" "$work/second"
    start=$(date +%s.%N)
    at first get --json --no-search "$@" "$ticket" -o "$work/first/file" > "$work/events" 2>&1 &
    local first=$!
    sleep 4
    at second get --json --no-search "$ticket" -o "$work/second/file" > "$work/second.events" 2>&1 &
    second=$!
    wait "$first" || { cat "$work/events" >&2; return 1; }
    local end
    end=$(date +%s.%N)
    cmp -s "$work/far/file" "$work/first/file" || { echo "giving-way: other bytes" >&2; return 1; }
    wait "$second" || { cat "$work/second.events" >&2; return 1; }
    brought=$(grep '"event":"summary"' "$work/second.events" | grep -oE '"sources":\[.*\]' | head -c 400)
    awk -v start="$start" -v end="$end" -v brought="$brought" 'BEGIN { printf "%.2f s; the second one: %s\n", end - start, brought }'
}
for number in ${RUNS:-1 2 3}; do
    printf 'it serves nobody, run %s: %s\n' "$number" "$(get --no-upload)"
    printf 'it serves,        run %s: %s\n' "$number" "$(get)"
done
