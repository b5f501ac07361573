#!/usr/bin/env bash
# How well --limit-rate holds, for every command and both directions: bytes that crossed, over limit and time. Prints the
# table of docs/results/performance.md ("Limits of rate").
#
#   scripts/measure-limit-rate.sh [RATE]     bytes a second as --limit-rate takes them; default: 4M
#
# The time is that of the whole command, so what its start takes makes the ratio smaller.
set -euo pipefail
cd "$(dirname "$0")/.."

rate=${1:-4M}
cargo build --release --quiet --package towpath
target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
tow=$target/release/tow
work=$(mktemp -d "${TMPDIR:-/tmp}/tow-rate.XXXXXX")
shared=
cleanup() {
    [ -z "$shared" ] || kill -TERM "$shared" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"

limit=$(numfmt --from=iec "$rate")
# In the place of ssh: runs the other side here, at another home.
printf '#!/bin/sh\nwhile [ "$1" != there ]; do shift; done\nshift\nexport TOW_HOME=%s/b\nexec sh -c "$*"\n' "$work" > rsh
chmod +x rsh

# A file of some seconds, a tree of small files, and a tree of both.
mkdir small both
head -c $((limit * 4)) /dev/urandom > large
for number in $(seq 2000); do head -c $((limit / 1000)) /dev/urandom > small/$number; done
cp -r small both/small
head -c $((limit * 3)) /dev/urandom > both/large

number() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
row() { # NAME BYTES SECONDS
    awk -v name="$1" -v bytes="$2" -v seconds="$3" -v limit="$limit" 'BEGIN {
        printf "| %s | %.2f | %.2f | %.3f |\n", name, bytes / 1e6, seconds, bytes / limit / seconds
    }'
}
measured() { # NAME COMMAND...: the summary of a copy has all bytes of both directions
    local name=$1 begin end summary
    shift
    begin=$(date +%s.%N)
    summary=$("$@" | tail -n 1)
    end=$(date +%s.%N)
    local sent received
    sent=$(number sent <<< "$summary") received=$(number received <<< "$summary")
    row "$name" $((sent > received ? sent : received)) "$(awk -v a="$begin" -v b="$end" 'BEGIN { print b - a }')"
}

echo "| command | MB | seconds | bytes / (limit x seconds) |"
echo "|---|---|---|---|"
for what in large small both; do
    for via in tls ssh; do
        copy=(env TOW_HOME="$work/a" "$tow" sync -W --json -e "$work/rsh" --tow-path "$tow" --via "$via" --limit-rate "$rate")
        slash=; [ "$what" = large ] || slash=/
        measured "\`sync $what there:\`, $via" "${copy[@]}" "$what$slash" "there:$work/to-$what-$via"
        measured "\`sync there:$what\`, $via" "${copy[@]}" "there:$work/$what$slash" "from-$what-$via"
        rm -rf "to-$what-$via" "from-$what-$via" a b
    done
done
for what in large small; do
    for side in share get; do
        limits=(--limit-rate "$rate")
        [ "$side" = get ] && at_get=("${limits[@]}") at_share=() || at_get=() at_share=("${limits[@]}")
        rm -f ticket
        TOW_HOME=$work/a "$tow" -q share "$what" --listen 127.0.0.1:0 "${at_share[@]}" > ticket &
        shared=$!
        until [ -s ticket ]; do sleep 0.05; done
        begin=$(date +%s.%N)
        TOW_HOME=$work/b "$tow" -q get - --no-search -o got "${at_get[@]}" < ticket
        end=$(date +%s.%N)
        row "\`get\` of $what, limited at \`$side\`" "$(du -sb --apparent-size "$what" | cut -f1)" \
            "$(awk -v a="$begin" -v b="$end" 'BEGIN { print b - a }')"
        kill -TERM "$shared"; wait "$shared" || true
        shared=
        rm -rf got a b
    done
done
