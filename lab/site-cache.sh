#!/usr/bin/env bash
# Ten machines of a site fetch the same file at once, behind one uplink: real processes in the lab's network. What the sender sent,
# and what the uplink carried, packet heads and all, as multiples of the file: without a cache, with one, and with one that is
# killed in mid-transfer.
#
#     lab/site-cache.sh [MB]      100 by default
#
# Needs root. TOW and LAB name the programs (default: tow and towpath-lab in target/release).
set -euo pipefail

mb=${1:-100}
tow=$(realpath "${TOW:-target/release/tow}")
lab=$(realpath "${LAB:-target/release/towpath-lab}")
work=$(mktemp -d /dev/shm/site-cache.XXXXXX)
started=()
tidy() {
    for pid in "${started[@]}"; do kill "$pid" 2> /dev/null; done
    wait 2> /dev/null
    rm -rf "$work"
}
trap 'tidy || true' EXIT

"$lab" up lab/scenarios/site-cache.toml > "$work/lab" &
started+=($!)
for _ in $(seq 100); do grep -q '^run:' "$work/lab" && break; sleep 0.1; done
name=$(sed -n 's/^lab \(.*\) is up.*/\1/p' "$work/lab")
address() { awk -v host="$1" '$1 == host { print $2 }' "$work/lab"; }
machines=$(seq -f 'machine%g' 10)

# In HOST's network: the program, with a home of its own.
at() {
    local host=$1
    shift
    mkdir -p "$work/$host/home"
    TOW_HOME=$work/$host/home HOME=$work/$host exec "$lab" exec "$name" "$host" "$tow" "$@"
}
said() { for _ in $(seq 600); do ! grep -q "$2" "$1" 2> /dev/null || return 0; sleep 0.1; done; return 1; }
# The uplink's interface has the same name at both of its ends.
uplink=$("$lab" exec "$name" sender cat /proc/net/dev | awk -F: 'NR > 2 && $1 !~ /lo/ { gsub(/ /, "", $1); print $1 }')
# Bytes that came out of the uplink at the site so far.
carried() {
    "$lab" exec "$name" switch cat /proc/net/dev |
        awk -F: -v link="$uplink" '{ gsub(/ /, "", $1) } $1 == link { split($2, counts, " "); printf "%.0f\n", counts[1] }'
}

begin_cache() {
    at cache daemon --cache --listen "$(address cache):7000" > "$work/cache.out" 2> "$work/cache.err" &
    cache=$!
    started+=("$cache")
    said "$work/cache.err" 'local API at'
}
# Names the machines to the cache, and the cache to the machines.
point() {
    local nodes=() place host
    for host in $machines; do
        nodes+=("$(at "$host" status --json | grep -oE '[0-9a-f]{64}' | head -n 1)")
    done
    mkdir -p "$work/cache/home"
    printf '[site_cache]\nmachines = [%s]\n' "$(printf '"%s", ' "${nodes[@]}")" > "$work/cache/home/config.toml"
    begin_cache
    place=$(sed -n 's/.*\(site_cache.address = .*\)/\1/p' "$work/cache.err")
    for host in $machines; do echo "$place" > "$work/$host/home/config.toml"; done
}

# What the sender sends while all machines get one new file; WHAT may be: kill.
run() {
    local gets=() host start before
    head -c "$((mb * 1000000))" /dev/urandom > "$work/sender/$1"
    : > "$work/share"
    at sender share --listen "$(address sender):7000" "$work/sender/$1" > "$work/share" 2> "$work/share.err" &
    local share=$!
    started+=("$share")
    said "$work/share" tow:
    before=$(carried)
    start=$(date +%s.%N)
    for host in $machines; do
        at "$host" get --no-search "$(cat "$work/share")" -o "$work/$host/$1" > /dev/null 2> "$work/$host.err" &
        gets+=($!)
    done
    if [ "${2:-}" = kill ]; then
        sleep "$(awk -v mb="$mb" 'BEGIN { print mb * 0.08 / 2 }')"
        kill -KILL "$(pgrep -P "$cache" || echo "$cache")"
        wait "$cache" 2> /dev/null || true
        begin_cache
    fi
    for get in "${gets[@]}"; do wait "$get" || { cat "$work"/machine*.err >&2; return 1; }; done
    local end sent content
    end=$(date +%s.%N)
    sent=$(($(carried) - before))
    sleep 1
    # What the sender says of each fetch, in MiB or GiB.
    content=$(grep -oE '[0-9.]+ [KMG]iB sent|after [0-9.]+ [KMG]iB' "$work/share.err" | sed 's/after //' |
        awk '{ sum += $1 * ($2 ~ /G/ ? 1024 : $2 ~ /M/ ? 1 : 1 / 1024) } END { printf "%.3f", sum * 1048576 / '"$((mb * 1000000))"' }')
    awk -v start="$start" -v end="$end" -v sent="$sent" -v content="$content" -v size="$((mb * 1000000))" -v what="$1" \
        'BEGIN { printf "%-30s %7.3f x %7.3f x %7.1f s\n", what, content, sent / size, end - start }'
    for host in $machines; do
        cmp -s "$work/sender/$1" "$work/$host/$1" || { echo "site-cache: other bytes" >&2; return 1; }
        rm "$work/$host/$1"
    done
    kill "$share"
    wait "$share" 2> /dev/null || true
}

mkdir -p "$work/sender"
echo "ten machines get $mb MB at once: content that the sender sent, bytes that the uplink carried, seconds"
run "without a cache"
point
for number in 1 2 3; do run "by the cache, run $number"; done
run "the cache is killed half way" kill
