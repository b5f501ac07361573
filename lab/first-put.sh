#!/bin/sh
# What the first `put` of a file by name takes, without any network: seconds, the CPU seconds of the daemon
# (which does the reading, and answers `tow ls` until it is done) and its peak memory, five times, each with a new home, all in memory.
#
#     lab/first-put.sh [MIB] [TOW]        1024 MiB and target/release/tow by default
set -eu
size=${1:-1024}
tow=$(realpath "${2:-target/release/tow}")
dir=$(mktemp -d "${SHM:-/dev/shm}/first-put-XXXXXX")
daemon=
stop() {
    [ -z "$daemon" ] || { kill -TERM "$daemon" && wait "$daemon"; } || true
    daemon=
}
trap 'stop; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

# CPU seconds of a process so far, from the kernel's hundredths.
cpu() {
    cut -d ' ' -f 14-15 "/proc/$1/stat" | { read -r user system; echo $((user + system)); }
}

head -c "${size}M" /dev/urandom > "$dir/file"
echo "first put of $size MiB: seconds, and the CPU seconds and peak memory of the daemon, which reads it"
for run in 1 2 3 4 5; do
    export TOW_HOME="$dir/home$run"
    mkdir "$TOW_HOME"
    "$tow" daemon 2> "$dir/log" &
    daemon=$!
    tries=0
    until grep -q 'local API at' "$dir/log"; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || { echo "the daemon does not start:" >&2; cat "$dir/log" >&2; exit 1; }
        sleep 0.05
    done
    before=$(cpu "$daemon")
    start=$(date +%s%N)
    "$tow" -q put "$dir/file" > "$dir/ticket"
    # The ticket comes at once; the object is known by its content when all of it is hashed.
    tries=0
    until "$tow" ls --json | grep -q '"content":'; do
        tries=$((tries + 1))
        [ "$tries" -lt 3000 ] || { echo "it is never hashed" >&2; exit 1; }
        sleep 0.02
    done
    end=$(date +%s%N)
    after=$(cpu "$daemon")
    peak=$(sed -n 's/^VmHWM: *//p' "/proc/$daemon/status")
    used=$(awk -v a="$before" -v b="$after" 'BEGIN { printf "%.2f", (b - a) / 100 }')
    wall=$(awk -v a="$start" -v b="$end" 'BEGIN { printf "%.3f", (b - a) / 1e9 }')
    echo "run $run: $wall s, daemon $used CPU s, $peak"
    stop
done
