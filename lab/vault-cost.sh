#!/usr/bin/env bash
# What a new version of one large file costs the client, as in §5.3 of Eaton et al.: processor time for boundaries, summary and update, and bytes of the summary.
#
#   lab/vault-cost.sh
#
# A file of MB mebibytes (default 1,024), half text and half noise, lies on a disk in memory and is put. Then it is changed in 15 places and put again, RUNS times
# (default 3), to a server on loopback. Each put reads all of the file, cuts it, makes its summary and hash, and finds and sends what changed. Prints seconds of the
# client's processor time, and what the folder of summaries has. Needs python3 and GNU time. TOW names the program (default: target/release/tow).
set -euo pipefail
cd "$(dirname "$0")/.."
tow=$(realpath "${TOW:-target/release/tow}")
mb=${MB:-1024}
work=$(mktemp -d -p /dev/shm vault-cost.XXXXXX)
started=
trap '[ -z "$started" ] || kill "$started" 2>/dev/null; wait 2>/dev/null || true; rm -rf "$work"' EXIT

change() {
    python3 - "$work/file" "$mb" "$1" <<'CHANGE'
import os, random, sys
path, size, version = sys.argv[1], int(sys.argv[2]) << 20, int(sys.argv[3])
random.seed(version)
if version == 0:
    words = [random.randbytes(3).hex().encode() for _ in range(4000)]
    with open(path, "wb") as file:
        while file.tell() < size // 2:
            file.write(b" ".join(random.choices(words, k=100_000)))
        while file.tell() < size:
            file.write(random.randbytes(1 << 20))
else:
    with open(path, "r+b") as file:
        for place in random.sample(range(size - 100), 15):
            file.seek(place)
            file.write(b"Springfield")
CHANGE
}

TOW_HOME=$work/server "$tow" -q vault serve --public --listen 127.0.0.1:0 >"$work/place" 2>"$work/server.err" &
started=$!
for _ in $(seq 100); do [ ! -s "$work/place" ] || break; sleep 0.1; done
head -c 64 /dev/urandom >"$work/key"
export TOW_HOME=$work/client
"$tow" -q vault init --key-file "$work/key" "$(head -n 1 "$work/place")" >"$work/id" 2>"$work/init.err"
change 0
for version in $(seq 0 "${RUNS:-3}"); do
    [ "$version" = 0 ] || change "$version"
    /usr/bin/time -f "%U %S %e" -o "$work/time" "$tow" -q vault --key-file "$work/key" put "$work/file" --json >"$work/told"
    python3 - "$work/time" "$work/told" "$version" "$(stat -c %s "$work/file")" <<'SHOW'
import json, sys
user, system, took = (float(word) for word in open(sys.argv[1]).read().split())
told, gib = json.loads(open(sys.argv[2]).readlines()[-1]), int(sys.argv[4]) / (1 << 30)
what = "first put" if sys.argv[3] == "0" else "a new version"
print(f"{what}: {user / gib:.2f} s user and {system / gib:.2f} s system a GiB, {took:.2f} s in all, {told['read']} bytes read, {told['uploaded']} uploaded")
SHOW
done
python3 - "$(cat "$work"/client/*/vaults/*/summaries/* | wc -c)" "$(stat -c %s "$work/file")" <<'SUMMARY'
import sys
summary, size = map(int, sys.argv[1:])
print(f"summary: {summary} bytes of {size}, {summary / size * 1000:.2f} MB a GB")
SUMMARY
