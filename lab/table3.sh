#!/usr/bin/env bash
# dsync's Table 3: how much of a real tree is looked at until a useful file is found, for nine places where it
# may lie. Copies a file into TREE/DESTINATION by `tow cp` over a slow network, and counts what the receiver lists and
# hashes up to and including the useful file. SIBLING is a directory of the tree that resembles DESTINATION.
#
#     lab/table3.sh TREE DESTINATION SIBLING        such as ~/home src/linux-6.12/tools src/linux-6.1/tools
#
# The tree is left as it was. What is sent lies in /dev/shm, which is no disk and so not searched. TOW names the
# program (default: target/release/tow).
set -euo pipefail

[ $# = 3 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
tree=$(realpath "$1") destination=$2 sibling=$3
tow=$(realpath "${TOW:-target/release/tow}")
for directory in "$tree/$destination" "$tree/$sibling"; do
    [ -d "$directory" ] || { echo "table3: $directory is no directory" >&2; exit 2; }
    for found in "$directory"/{a.out,diff,.tow-*}; do
        [ ! -e "$found" ] || { echo "table3: $found is in the way; move it" >&2; exit 2; }
    done
done

work=$(mktemp -d /dev/shm/table3.XXXXXX)
placed=
# Copies that are interrupted keep what came in folders beside the file.
clean() { rm -rf "$placed" "$tree/$destination/a.out" "$tree/$destination"/.tow-*; }
trap 'clean; rm -rf "$work"' EXIT

# The file, and an old version of which 11 % are the same: its last part, moved by what was added.
mkdir "$work/sent"
head -c 12000413 /dev/urandom > "$work/sent/a.out"
{ head -c 10780816 /dev/urandom; tail -c 1320055 "$work/sent/a.out"; } > "$work/old"
printf '#!/bin/sh\nshift\nexport TOW_HOME=%s/sender TOW_LOG=error\nexec sh -c "$*"\n' "$work" > "$work/rsh"
chmod +x "$work/rsh"

directories=$(find "$tree" -xdev -type d | wc -l)
echo "$(find "$tree" -xdev -type f | wc -l) files in $directories directories"
printf '%-52s %6s | %21s | %15s\n' 'useful file' 'MB' 'STATs (%), paper' 'MB hashed, paper'

# Row: where the useful file lies, which version it is, and the paper's share of STATs and megabytes.
row() {
    local path=$1 version=$2 paper_stats=$3 paper_hashed=$4
    rm -rf "$work/receiver" "$work/sender"
    placed=$tree/$path
    cp --preserve=mode "$version" "$placed"
    local size
    size=$(stat -c %s "$placed")
    : > "$work/log"
    TOW_HOME=$work/receiver TOW_LOG=error,towpath_reuse::adaptive=debug NO_COLOR=1 "$tow" --quiet cp -e "$work/rsh" \
        --tow-path "$tow" --limit-rate 200K "host:$work/sent/a.out" "$tree/$destination/" 2> "$work/log" &
    local copy=$! tries=0
    until grep -qF "hashes path=\"$placed\"" "$work/log" || ! kill -0 $copy 2> /dev/null || [ $((tries += 1)) -gt 600 ]; do
        sleep 0.2
    done
    kill -TERM $copy 2> /dev/null || true
    wait $copy 2> /dev/null || true
    local otherwise="  not found"
    ! cmp -s "$work/sent/a.out" "$tree/$destination/a.out" || otherwise="  nothing searched: it lies in the place"
    awk -v useful="\"$placed\"" -v directories="$directories" -v path="$path" -v size="$size" \
        -v paper_stats="$paper_stats" -v paper_hashed="$paper_hashed" -v otherwise="$otherwise" '
        / lists path=/ { stats++ }
        / hashes path=/ {
            match($0, /bytes=[0-9]+/); hashed += substr($0, RSTART + 6, RLENGTH - 6)
            if (index($0, "path=" useful)) { found = 1; exit }
        }
        END {
            printf "%-52s %6.1f | %5d (%6.3f), %6.3f | %6.2f, %6.2f%s\n", path, size / 1e6, stats,
                100 * stats / directories, paper_stats, hashed / 1e6, paper_hashed, found ? "" : otherwise
        }' "$work/log"
    [ -z "${KEEP_LOGS:-}" ] || cp "$work/log" "$KEEP_LOGS/$(echo "$path-${version##*/}" | tr / _).log"
    clean
}

new=$work/sent/a.out old=$work/old
row "$destination/a.out" "$new" 0.003 12.01
row "$destination/a.out" "$old" 0.003 12.11
row "$destination/diff" "$new" 1.0 12.01
row "$sibling/a.out" "$new" 2.37 24.03
row "$sibling/a.out" "$old" 2.37 24.13
row "$sibling/diff" "$new" 5.98 24.03
row a.out "$new" 16.25 34.03
row a.out "$old" 16.25 34.13
row diff "$new" 100.0 173.8
