#!/usr/bin/env bash
# What a new version of a vault costs, beside other ways to send it: the workloads of the paper's Table 2, made here.
#
#   lab/vault.sh
#   NETWORKS=1 lab/vault.sh      seconds and bytes over the four lines of the paper's Table 1: a put of the new version (Figure 6), and a get by
#                                another machine that has the old one (Figure 7). Needs root and towpath-lab (LAB names it)
#
#   document   700 KB of which half is text and half is noise, 15 words replaced all over it
#   release    the files that changed between two revisions of this repository, OLD and NEW (default below)
#   mbox       70 KB of text that grows by 25 %
#
# Prints for each: the new version's bytes, what was uploaded, of it padding, and what these send: all of it, blocks of 4 KiB that changed,
# and xdelta3 -9 -S none with the old version at hand (the ideal). Needs python3, git and xdelta3. TOW names the program (default: target/release/tow).
set -euo pipefail
cd "$(dirname "$0")/.."
tow=$(realpath "${TOW:-target/release/tow}")
old=${OLD:-ab1f8dd0} new=${NEW:-e70c3f76}
work=$(mktemp -d)
started=
trap '[ -z "$started" ] || kill "$started" 2>/dev/null; rm -rf "$work"' EXIT

python3 - "$work" <<'MAKE'
import os, random, sys
random.seed(4)
words = [bytes(random.choice(b"abcdefghijklmnopqrstuvwxyz") for _ in range(random.randint(2, 11))) for _ in range(6000)]
def text(size):
    out = bytearray()
    while len(out) < size:
        out += random.choice(words) + random.choice([b" ", b" ", b" ", b", ", b".\n"])
    return out[:size]
def write(name, version, content):
    os.makedirs(f"{sys.argv[1]}/{version}", exist_ok=True)
    open(f"{sys.argv[1]}/{version}/{name}", "wb").write(content)
document = text(350_000) + random.randbytes(350_000)
write("document", "old", document)
for place in sorted(random.sample(range(690_000), 15), reverse=True):
    document[place:place + 8] = b"Springfield"
write("document", "new", document)
mbox = text(70_000)
write("mbox", "old", mbox)
write("mbox", "new", mbox + text(17_500))
MAKE
for version in old new; do
    mkdir "$work/$version/release"
    git diff --name-only --diff-filter=M -z "$old" "$new" | xargs -0 git archive "${!version}" -- | tar x -C "$work/$version/release"
done

serve() {
    TOW_HOME=$work/server exec "$@" "$tow" -q vault serve --public --listen "$at" >"$work/place" 2>"$work/server.err"
}
wait_for() {
    for _ in $(seq 100); do [ ! -s "$1" ] || return 0; sleep 0.1; done
    echo "vault: nothing came: $1" >&2
    return 1
}
export TOW_VAULT_PASSPHRASE="a passphrase"

# Prints seconds, and bytes of packets from and to the client, of a command there.
measured() {
    ip netns exec "towpath-$name-client" python3 - "$@" <<'WATCH'
import subprocess, sys, time
def passed():
    lines = [line.split(":") for line in open("/proc/net/dev") if ":" in line]
    counts = [rest.split() for device, rest in lines if device.strip() != "lo"]
    return sum(int(c[8]) for c in counts), sum(int(c[0]) for c in counts)
before, begun = passed(), time.time()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
took, after = time.time() - begun, passed()
print(f"{took:.2f} {after[0] - before[0]} {after[1] - before[1]}")
WATCH
}

# Seconds for so many bytes by the paper's formula: latency in ms, bits a second.
computed() { python3 -c "print(f'{$1 / 1000 + 8 * $3 / $2:.2f}')"; }

# One workload over one line.
over() {
    local what=$1 line=$2 latency=$3 up=$4 down=$5
    "$lab" set "$name" line both rate=1gbit delay=1ms
    export TOW_HOME=$work/$line-$what
    ip netns exec "towpath-$name-client" "$tow" -q vault init "$(head -n 1 "$work/place")" >"$work/id" 2>"$work/init.err"
    ip netns exec "towpath-$name-client" "$tow" -q vault put "$work/old/$what" --json >"$work/first"
    ip netns exec "towpath-$name-client" env TOW_HOME="$TOW_HOME-reader" "$tow" -q vault join "$(head -n 1 "$work/place")" "$(head -n 1 "$work/id")" >"$work/joined"
    ip netns exec "towpath-$name-client" env TOW_HOME="$TOW_HOME-reader" "$tow" -q vault get "$what" -o "$work/copy"
    "$lab" set "$name" line forth "rate=${up}bit" "delay=${latency}ms" queue=10s
    "$lab" set "$name" line back "rate=${down}bit" "delay=${latency}ms" queue=10s
    local put get
    put=$(measured "$tow" -q vault put "$work/new/$what" --json)
    get=$(TOW_HOME=$TOW_HOME-reader measured "$tow" -q vault get "$what" -o "$work/copy2")
    diff -r "$work/new/$what" "$work/copy2"
    rm -rf "$work/copy" "$work/copy2"
    local whole ideal
    read -r whole ideal <"$work/sizes-$what"
    # shellcheck disable=SC2086 # three words each
    printf '%-9s %-9s %8s %8s %8s  %8s %8s %8s  %8s %8s\n' "$line" "$what" $put $get \
        "$(computed "$latency" "$up" "$whole")" "$(computed "$latency" "$up" "$ideal")"
}

networks() {
    lab=$(realpath "${LAB:-target/release/towpath-lab}")
    "$lab" up lab/scenarios/vault.toml >"$work/lab" &
    lab_pid=$!
    for _ in $(seq 100); do grep -q '^run:' "$work/lab" && break; sleep 0.1; done
    name=$(sed -n 's/^lab \(.*\) is up.*/\1/p' "$work/lab")
    at=$(awk '$1 == "server" { print $2 }' "$work/lab"):7799
    serve ip netns exec "towpath-$name-server" &
    started=$!
    wait_for "$work/place"
    printf '%-9s %-9s %8s %8s %8s  %8s %8s %8s  %8s %8s\n' line what 'put s' up down 'get s' up down 'whole s' 'ideal s'
    for line in "cellular 100 10000 10000" "telephone 100 56000 56000" "cable 30 128000 384000" "lan 10 1000000 1000000"; do
        # shellcheck disable=SC2086 # four words
        for what in document release mbox; do over "$what" $line; done
    done
    kill "$started" "$lab_pid"
    wait 2>/dev/null || true
    started=
}

for what in document release mbox; do
    python3 - "$work" "$what" >"$work/sizes-$what" <<'SIZES'
import os, subprocess, sys
work, what = sys.argv[1:]
top = f"{work}/new/{what}"
files = [top] if os.path.isfile(top) else [os.path.join(d, f) for d, _, fs in os.walk(top) for f in fs]
size = delta = 0
for path in files:
    subprocess.run(["xdelta3", "-9", "-S", "none", "-f", "-e", "-s", path.replace("/new/", "/old/", 1), path, f"{work}/delta"], check=True)
    size, delta = size + os.path.getsize(path), delta + os.path.getsize(f"{work}/delta")
print(size, delta)
SIZES
done
if [ -n "${NETWORKS:-}" ]; then
    networks
    exit
fi

at=127.0.0.1:0
serve &
started=$!
wait_for "$work/place"
export TOW_HOME=$work/client
"$tow" -q vault init "$(head -n 1 "$work/place")" >"$work/id" 2>"$work/init.err"

printf '%-9s %8s %9s %8s %8s %9s %8s %6s %6s\n' what bytes uploaded padding whole 'block 4K' xdelta3 ours ideal
for what in document release mbox; do
    "$tow" -q vault put "$work/old/$what" --json >"$work/first"
    "$tow" -q vault put "$work/new/$what" --json >"$work/second"
    "$tow" -q vault get "$what" -o "$work/back-$what"
    diff -r "$work/new/$what" "$work/back-$what"
    python3 - "$work" "$what" <<'COMPARE'
import json, os, subprocess, sys
work, what = sys.argv[1:]
told = [json.loads(line) for line in open(f"{work}/second")][-1]
def files(version):
    top = f"{work}/{version}/{what}"
    return {"": top} if os.path.isfile(top) else {os.path.relpath(os.path.join(d, f), top): os.path.join(d, f) for d, _, fs in os.walk(top) for f in fs}
old, new = files("old"), files("new")
size = blocks = delta = 0
for name, path in new.items():
    now, before = open(path, "rb").read(), open(old[name], "rb").read()
    size += len(now)
    blocks += sum(len(now[at:at + 4096]) for at in range(0, len(now), 4096) if now[at:at + 4096] != before[at:at + 4096])
    subprocess.run(["xdelta3", "-9", "-S", "none", "-f", "-e", "-s", old[name], path, f"{work}/delta"], check=True)
    delta += os.path.getsize(f"{work}/delta")
part = lambda sent: f"{1 - sent / size:.3f}"
print(f"{what:<9} {size:8} {told['uploaded']:9} {told['padding']:8} {size:8} {blocks:9} {delta:8} {part(told['uploaded'])} {part(delta)}")
COMPARE
done
