#!/usr/bin/env bash
# The main job on real input: two services with homes of their own on loopback, a real tree from
# one to the other, verified with other tools; then the tree changes and is sent again. After that
# the same with `tow sync`, over a pipe such as ssh gives; no ssh is needed.
# TOW names a program that is built already; without it the release build is made, which takes most of the time.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
if [ -z "${TOW:-}" ]; then cargo build --release --quiet --package towpath; fi
tow=$(realpath "${TOW:-$target/release/tow}")

# In memory if there is room: every transfer ends by waiting until what it wrote is on disk, and on a disk
# that others write to, that and the removal of all this at the end can take minutes.
temporary=${TMPDIR:-/tmp}
room=$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1) || room=0
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "${room:-0}" -ge $((1 << 20)) ]; then temporary=/dev/shm; fi
work=$(mktemp -d "$temporary/tow-demo.XXXXXX")
daemons=()
cleanup() {
    for pid in "${daemons[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
    wait
    chmod -R u+w "$work"
    rm -rf "$work"
}
trap cleanup EXIT

say() { printf '\n== %s\n' "$*"; }
# Runs tow with the home $1; what is not done after this many seconds hangs, and fails the demo.
patience=120
at() { local home=$1; shift; TOW_HOME=$work/$home timeout --foreground "$patience" "$tow" "$@"; }
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
from() { sed -n "s/.*\"$1[^\"]*\":\([0-9]*\).*/\1/p"; }
mib() { awk -v bytes="${1:-0}" 'BEGIN { printf "%.2f MiB", bytes / 1048576 }'; }
# Names, kinds, modes, times, link targets and contents, by find and sha256sum.
listing() {
    (cd "$1" && find . -printf '%p %y %m %T@ %l\n' | LC_ALL=C sort &&
        find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
}
start_daemon() {
    TOW_HOME=$work/$1 "$tow" -q daemon --listen 127.0.0.1:0 &
    daemons+=($!)
    for _ in $(seq 100); do
        at "$1" status --json 2>/dev/null | grep -q '"listening":\["127' && return
        sleep 0.05
    done
    echo "the daemon did not start" >&2
    exit 1
}
verify() {
    listing "$1" > "$work/sent"
    listing "$2" > "$work/got"
    if ! cmp -s "$work/sent" "$work/got"; then
        echo "the copy differs:" >&2
        diff "$work/sent" "$work/got" | sed -n 1,20p >&2
        exit 1
    fi
    echo "verified: names, modes, times and SHA-256 of $(find "$1" | wc -l) entries are equal"
}
# Puts $1 at the sender, gets it at the receiver as $2, verifies, and leaves the summary in $summary.
send() {
    local ticket
    ticket=$(at sender put "$1")
    summary=$(printf '%s\n' "$ticket" | at receiver get - -o "$2" --json | tail -n 1)
    verify "$1" "$2"
}
report() {
    local bytes seconds
    bytes=$(field bytes <<< "$summary") seconds=$(field seconds <<< "$summary")
    awk -v bytes="$bytes" -v seconds="$seconds" 'BEGIN {
        printf "tree of %.2f MiB in %.2f s, %.0f MiB/s\n", bytes / 1048576, seconds, bytes / 1048576 / (seconds + 0.001)
    }'
    echo "from the network: $(mib "$(from peer <<< "$summary")"), from this machine: $(mib "$(from 'this machine' <<< "$summary")")"
}

say "two services, each with its own home, on loopback"
start_daemon sender
start_daemon receiver
at sender status

# Whole crates, and no more files than that: copies of each are made six times, verified and removed.
most_files=4000
say "a real tree: sources of this project's dependencies"
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
mkdir "$work/tree"
files=0
for crate in "$sources"/*/*/; do
    files=$((files + $(find "$crate" -type f | wc -l)))
    [ "$files" -le "$most_files" ] || break
    cp -r "$crate" "$work/tree/"
done
echo "$(find "$work/tree" -type f | wc -l) files, $(mib "$(du -sb "$work/tree" | cut -f1)")"

say "first transfer"
send "$work/tree" "$work/first"
report

say "the tree changes: bytes inserted, files renamed, added, removed"
changed=0
cd "$work/tree"
for file in $(find . -name lib.rs -size +2k | LC_ALL=C sort | sed -n 1,40p); do
    half=$(($(stat -c %s "$file") / 2))
    { head -c "$half" "$file"; echo '// inserted in the middle'; tail -c "+$((half + 1))" "$file"; } > "$work/edit"
    cat "$work/edit" > "$file"
    changed=$((changed + $(stat -c %s "$file")))
done
inserted=$((40 * 26))
for file in $(find . -name README.md | LC_ALL=C sort | sed -n 1,40p); do mv "$file" "$(dirname "$file")/RENAMED.md"; done
moved=$(ls -d */ | LC_ALL=C sort | sed -n 1,1p)
mv "$moved" "moved-${moved%/}"
head -c 1000000 /dev/urandom > added.bin
changed=$((changed + 1000000))
find . -name CHANGELOG.md | LC_ALL=C sort | sed -n 1,20p | xargs rm -f
cd - > /dev/null
echo "40 files with 26 bytes inserted, 40 renamed, one directory renamed, one file of 1 MB added, 20 removed"

say "second transfer"
send "$work/tree" "$work/second"
report
crossed=$(from peer <<< "$summary")
echo "bytes moved: $crossed; bytes of files whose content changed: $changed (inserted and added: $((inserted + 1000000)))"
echo "(the rest of what moved is the tree's descriptor; whole files are the unit of change so far)"

# Stands for ssh: leaves out the host and runs the rest, with the receiver's home.
cat > "$work/rsh" <<EOF
#!/bin/sh
shift
TOW_HOME=$work/receiver exec "\$@"
EOF
chmod +x "$work/rsh"
# Makes the receiver's $work/synced equal to the tree, and verifies it.
sync_tree() {
    at sender sync --json --delete -e "$work/rsh" --tow-path "$tow" "$work/tree/" "host:$work/synced" > "$work/events"
    summary=$(tail -n 1 "$work/events")
    verify "$work/tree" "$work/synced"
    echo "$(grep -c '"event":"item"' "$work/events" || true) entries made or changed," \
        "$(grep -c '"event":"deleted"' "$work/events" || true) removed, in $(field seconds <<< "$summary") s;" \
        "sent $(mib "$(field sent <<< "$summary")"), received $(mib "$(field received <<< "$summary")")"
}

say "tow sync: the same tree into a new directory; what this receiver has does not travel"
sync_tree

say "tow sync again: nothing to do"
sync_tree

say "tow sync after changes: 20 files longer by a line, one directory renamed, 20 files removed"
cd "$work/tree"
find . -name Cargo.toml | LC_ALL=C sort | sed -n 1,20p > "$work/longer"
while read -r file; do echo '# longer' >> "$file"; done < "$work/longer"
moved=$(ls -d */ | LC_ALL=C sort | tail -n 1)
mv "$moved" "renamed-${moved%/}"
find . -name 'LICENSE-MIT' | LC_ALL=C sort | sed -n 1,20p | xargs rm -f
cd - > /dev/null
sync_tree
