#!/usr/bin/env bash
# Measures what the release promises: memory of both sides, and how long the rest takes after a
# kill -9 at 90 %. Prints the tables of docs/results/first-half.md.
#
#   scripts/measure.sh [DIR]     DIR takes some 25 GB; default: a new folder in $TMPDIR
#
# TREES=DIR puts the trees of small files there, on a tmpfs for one: creating files on a disk
# varies tenfold from run to run. SMALL=1 measures with a hundredth of the data, to try the script.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --quiet --package towpath
target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
tow=$target/release/tow
work=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/tow-measure.XXXXXX")
shared=
trees=$(mktemp -d "${TREES:-$work}/tow-measure-trees.XXXXXX")
cleanup() {
    [ -z "$shared" ] || kill -TERM "$shared" 2>/dev/null || true
    wait
    rm -rf "$work" "$trees"
}
trap cleanup EXIT
cd "$work"

scale() { if [ -n "${SMALL:-}" ]; then echo $(($1 / 100)); else echo "$1"; fi; }
GIB=$(scale 1073741824)

share() { # PATH [OPTION...]
    rm -f ticket
    TOW_HOME=$PWD/a "$tow" -q share "$@" --listen 127.0.0.1:0 > ticket &
    shared=$!
    until [ -s ticket ]; do sleep 0.05; done
}
unshare_it() { kill -TERM "$shared"; wait "$shared" || true; shared=; }
get() { TOW_HOME=$PWD/b "$tow" -q get - -o "$@" < ticket; }
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.2f", b - a }'; }
peak() { awk '/VmHWM/ { printf "%d MiB", $2 / 1024 }' "/proc/$1/status"; }
same() { if [ -d "$1" ]; then diff -r "$1" "$2"; else cmp "$1" "$2"; fi && echo identical; }

memory() { # NAME PATH
    local start pid high=0
    share "$2"
    start=$(now)
    TOW_HOME=$PWD/b "$tow" -q get - -o got < ticket &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        high=$(awk '/VmHWM/ { print $2 }' "/proc/$pid/status" 2>/dev/null || echo "$high")
        sleep 0.1
    done
    wait "$pid"
    printf '| %s | %s | %s | %d MiB | %s |\n' "$1" "$(since "$start")" "$(peak "$shared")" "$((${high:-0} / 1024))" "$(same "$2" got)"
    unshare_it
    rm -rf got a b
}

echo "| what | seconds | peak of the sender | peak of the receiver | compared |"
echo "|---|---|---|---|---|"
head -c $((10 * GIB)) /dev/urandom > ten
memory "one file of $((10 * GIB)) bytes" ten
rm ten
truncate -s $((5 * GIB)) sparse
head -c 3000000 /dev/urandom | dd of=sparse bs=1000 seek=$((3 * GIB / 1000)) conv=notrunc status=none
memory "a sparse file of $((5 * GIB)) bytes with 3 MB of data" sparse
rm sparse
cd "$trees"
count=$(scale 20000)
for i in $(seq "$count"); do
    dir=small/$((i / 100))
    [ -d "$dir" ] || mkdir -p "$dir"
    head -c $((RANDOM % 20000)) /dev/urandom > "$dir/$i"
done
memory "$count small files" small
rm -rf small
count=$(scale 1000000)
mkdir -p many/one
seq "$count" | split -l 1 -a 5 - many/one/f
memory "$count files in one directory" many
rm -rf many
cd "$work"

echo
echo "| 1 GiB at 125 MB/s (1 Gbit/s) | seconds | share of the whole |"
echo "|---|---|---|"
head -c "$GIB" /dev/urandom > file
rate=$(scale 125000000)
filled() { local n; n=$(du -B1 .got.tow-* 2>/dev/null | cut -f1); echo "${n:-0}"; }
until_ninety() { until [ "$(filled)" -gt $((GIB / 10 * 9)) ]; do sleep 0.02; done; }
ratio() { awk -v a="$1" -v b="$whole" 'BEGIN { printf "%.2f", a / b }'; }
share file --limit-rate "$rate"
start=$(now); get got; whole=$(since "$start")
same file got > /dev/null
echo "| whole | $whole | 1 |"
rm -rf got b
TOW_HOME=$PWD/b "$tow" -q get - -o got < ticket & pid=$!
until_ninety; kill -9 $pid; wait $pid 2>/dev/null || true
start=$(now); get got; rest=$(since "$start")
echo "| the rest, receiver killed at 90 % and started again | $rest | $(ratio "$rest") | $(same file got)" | sed 's/| identical/|/'
rm -rf got b
get got & pid=$!
until_ninety; kill -9 "$shared"; wait "$shared" 2>/dev/null || true
start=$(now); cp ticket before; share file --limit-rate "$rate"; cmp ticket before; wait $pid; rest=$(since "$start")
echo "| the rest, sender killed at 90 % and started again | $rest | $(ratio "$rest") | $(same file got)" | sed 's/| identical/|/'
