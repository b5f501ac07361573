#!/usr/bin/env bash
# What a new version of a vault costs, beside other ways to send it: the workloads of the paper's Table 2, made here.
#
#   lab/vault.sh
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

TOW_HOME=$work/server "$tow" -q vault serve --public --listen 127.0.0.1:0 >"$work/place" 2>"$work/server.err" &
started=$!
for _ in $(seq 100); do [ ! -s "$work/place" ] || break; sleep 0.1; done
export TOW_HOME=$work/client TOW_VAULT_PASSPHRASE="a passphrase"
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
