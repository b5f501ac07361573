#!/usr/bin/env bash
# Three that have the same file, each with a line of its own to a receiver: real processes in the lab's network. Seconds with the
# issuer alone, with all three, and with all three while one of the holders is killed, or stands still, in mid-transfer, or lies.
#
#     lab/holders.sh [MIB]        200 by default
#
# Needs root. TOW, LAB and LIAR name the programs (default: tow, towpath-lab and examples/lying_holder in target/release).
set -euo pipefail

mib=${1:-200}
tow=$(realpath "${TOW:-target/release/tow}")
lab=$(realpath "${LAB:-target/release/towpath-lab}")
liar=$(realpath "${LIAR:-target/release/examples/lying_holder}")
work=$(mktemp -d /dev/shm/holders.XXXXXX)
started=()
tidy() {
    for pid in "${started[@]}"; do kill -CONT "$pid" 2> /dev/null; kill "$pid" 2> /dev/null; done
    wait 2> /dev/null
    rm -rf "$work"
}
trap 'tidy || true' EXIT

"$lab" up lab/scenarios/holders.toml > "$work/lab" &
started+=($!)
for _ in $(seq 100); do grep -q '^run:' "$work/lab" && break; sleep 0.1; done
name=$(sed -n 's/^lab \(.*\) is up.*/\1/p' "$work/lab")
address() { awk -v host="$1" '$1 == host { print $2 }' "$work/lab"; }

# In HOST's network: the program, with a home of its own.
at() {
    local host=$1
    shift
    mkdir -p "$work/$host"
    TOW_HOME=$work/$host/home HOME=$work/$host exec "$lab" exec "$name" "$host" "$tow" "$@"
}
# The ticket that a program prints first.
ticket() {
    for _ in $(seq 600); do
        [ ! -s "$1" ] || break
        sleep 0.1
    done
    head -n 1 "$1"
}
has_all() { for _ in $(seq 600); do ! grep -q 'serving until' "$1" || return 0; sleep 0.1; done; return 1; }

mkdir "$work/issuer"
head -c "$((mib << 20))" /dev/urandom > "$work/issuer/file"
at issuer share --listen "$(address issuer):7000" "$work/issuer/file" > "$work/share" 2> "$work/share.err" &
started+=($!)
alone=$(ticket "$work/share")
hold() {
    at "$1" get --stay --listen "$(address "$1"):7000" "$2" -o "$work/$1/file" > "$work/$1.ticket" 2> "$work/$1.err" &
    holder=$!
    started+=("$holder")
    ticket "$work/$1.ticket" > "$work/$1.line"
    has_all "$work/$1.err"
}
hold one "$alone"
one=$holder
# The second one's ticket names both.
hold two "$(cat "$work/one.line")"
all=$(cat "$work/two.line")

# Seconds of a get of TICKET; SIGNAL, if given, goes to the first holder in mid-transfer.
seconds() {
    local signal=${2:-} start
    rm -rf "$work/receiver"
    start=$(date +%s.%N)
    at receiver get --json --no-search "$1" -o "$work/receiver/file" > "$work/events" 2>&1 &
    local get=$!
    if [ -n "$signal" ]; then
        sleep "$(awk -v mib="$mib" 'BEGIN { print mib * 1048576 / 37500000 / 2 }')"
        kill "-$signal" "$one"
    fi
    wait "$get" || { cat "$work/events" >&2; return 1; }
    awk -v start="$start" -v end="$(date +%s.%N)" 'BEGIN { printf "%.2f", end - start }'
    cmp -s "$work/issuer/file" "$work/receiver/file" || { echo "holders: other bytes" >&2; return 1; }
}
shares() { grep '"event":"summary"' "$work/events" | grep -oE '"sources":\[[^]]*\]' | head -c 400; }

line() { printf '%-44s %8s s  %s\n' "$1" "$2" "${3:-}"; }
for run in 1 2 3; do
    line "the issuer alone, run $run" "$(seconds "$alone")"
    line "all three, run $run" "$(seconds "$all")" "$(shares)"
done
line "all three, one stands still half way" "$(seconds "$all" STOP)" "$(shares)"
kill -CONT "$one"
line "all three, one is killed half way" "$(seconds "$all" KILL)" "$(shares)"
# In the killed one's place a holder that lies: the receiver says so.
"$lab" exec "$name" one "$liar" "$all" "$work/issuer/file" "$(address one):7001" > "$work/liar" &
started+=($!)
ticket "$work/liar" > "$work/liar.line"
for run in 1 2 3; do
    line "issuer, one that is true, one that lies, $run" "$(seconds "$(cat "$work/liar.line")")" "$(shares)"
done
