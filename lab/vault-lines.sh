#!/usr/bin/env bash
# What a put chooses by what the line carries: fewest bytes now, or chunks with patches written anew. Needs root, python3 and towpath-lab (LAB names
# it; TOW names the program).
#
#   lab/vault-lines.sh
#
# On each line a machine of its own puts a file, gets it without its blocks, changes a place of 1,400 bytes in every 12,000 twice, and then the
# end. Prints bytes a second of the line, those that tow measured, and of the last put: sent, written anew, saved at each read, left as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
tow=$(realpath "${TOW:-target/release/tow}")
lab=$(realpath "${LAB:-target/release/towpath-lab}")
work=$(mktemp -d)
pids=()
trap '[ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null; rm -rf "$work"' EXIT
export TOW_VAULT_PASSPHRASE="a passphrase"

wait_for() {
    for _ in $(seq 100); do ! grep -q "$2" "$1" 2>/dev/null || return 0; sleep 0.1; done
    echo "vault-lines: nothing came: $1" >&2
    return 1
}

"$lab" up lab/scenarios/vault.toml >"$work/lab" &
pids+=($!)
wait_for "$work/lab" '^run:'
name=$(sed -n 's/^lab \(.*\) is up.*/\1/p' "$work/lab")
at=$(awk '$1 == "server" { print $2 }' "$work/lab"):7799
TOW_HOME=$work/server ip netns exec "towpath-$name-server" "$tow" -q vault serve --public --listen "$at" >"$work/place" 2>"$work/server.err" &
pids+=($!)
wait_for "$work/place" @
place=$(head -n 1 "$work/place")

client() { ip netns exec "towpath-$name-client" "$tow" -q vault "$@"; }

# Changes 1,400 bytes from FIRST on, and so on every APART bytes.
edit() {
    python3 - "$work/file" "$@" <<'EDIT'
import os, sys
path, first, apart = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
content = bytearray(open(path, "rb").read())
for at in range(first, len(content) - 1399, apart):
    content[at:at + 1400] = os.urandom(1400)
open(path, "wb").write(content)
EDIT
}

printf '%-28s %10s %10s  %10s %10s  %8s %8s %8s %8s\n' line up down 'tow: up' down sent anew saved left
on() {
    local line=$1 latency=$2 up=$3 down=$4 length=$5
    export TOW_HOME="$work/$line"
    head -c "$length" /dev/urandom >"$work/file"
    "$lab" set "$name" line forth "rate=${up}bit" "delay=${latency}ms" queue=10s
    "$lab" set "$name" line back "rate=${down}bit" "delay=${latency}ms" queue=10s
    client init "$place" >"$work/id" 2>"$work/init.err"
    client put "$work/file" --json >"$work/put"
    rm -r "$TOW_HOME"/*/vaults/*/blocks
    client get file -o "$work/back" --overwrite
    for first in 1000 2600; do
        edit "$first" 12000
        client put "$work/file" --json >"$work/put"
    done
    edit $((length - 1500)) 12000
    client put "$work/file" --json >"$work/put"
    client get file -o "$work/back" --overwrite
    cmp "$work/file" "$work/back"
    python3 - "$work/put" "$line" "$up" "$down" <<'SHOW'
import json, sys
told = [json.loads(line) for line in open(sys.argv[1])][-1]
rates = [int(rate) // 8 for rate in sys.argv[3:]]
columns = [told[key] for key in ("up", "down", "uploaded", "rewritten", "saved", "left")]
print("{:<28} {:>10} {:>10}  {:>10} {:>10}  {:>8} {:>8} {:>8} {:>8}".format(sys.argv[2], *rates, *(value or 0 for value in columns)))
SHOW
}

on telephone 100 56000 56000 24000
on cable-384-128 30 128000 384000 60000
on 100M-down-1M-up 10 1000000 100000000 200000
on 1M-both 10 1000000 1000000 200000
on 100M-both 5 100000000 100000000 1000000
