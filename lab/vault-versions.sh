#!/usr/bin/env bash
# What many versions of one file cost: seconds of the first and last puts and of restores, and bytes on the server beside the sum of deltas.
#
#   lab/vault-versions.sh
#
# A file of BYTES bytes (default 4 MiB, half text and half noise) is put VERSIONS times (default 10,000), each time with a small edit somewhere.
# The sum of deltas is what the puts uploaded behind the first: blocks, updates and signed roots. Needs python3. TOW names the program
# (default: target/release/tow).
set -euo pipefail
cd "$(dirname "$0")/.."
tow=$(realpath "${TOW:-target/release/tow}")
work=$(mktemp -d)
started=
trap '[ -z "$started" ] || kill "$started" 2>/dev/null; rm -rf "$work"' EXIT

TOW_HOME=$work/server "$tow" -q vault serve --public --listen 127.0.0.1:0 >"$work/place" 2>"$work/server.err" &
started=$!
for _ in $(seq 100); do [ ! -s "$work/place" ] || break; sleep 0.1; done
head -c 64 /dev/urandom >"$work/key"
export TOW_HOME=$work/client
"$tow" -q vault init --key-file "$work/key" "$(head -n 1 "$work/place")" >"$work/id" 2>"$work/init.err"

python3 - "$tow" "$work" "${VERSIONS:-10000}" "${BYTES:-4194304}" <<'RUN'
import json, os, random, subprocess, sys, time

tow, work, versions, length = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
random.seed(1)
words = [bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz", k=random.randrange(2, 10))) for _ in range(4000)]
text = b" ".join(random.choice(words) for _ in range(length // 12))[: length // 2]
content = bytearray(text + random.randbytes(length - len(text)))
path = f"{work}/file"


def call(*arguments):
    began = time.monotonic()
    ended = subprocess.run([tow, "-q", "vault", "--key-file", f"{work}/key", *arguments, "--json"], check=True, capture_output=True)
    return json.loads(ended.stdout.splitlines()[-1]), time.monotonic() - began


def stored():
    return call("gc")[0]["stored_bytes"]


def restored(version, expected):
    took = [call("restore", "file", "--version", str(version), "-o", f"{work}/back", "--overwrite")[1] for _ in range(3)]
    assert open(f"{work}/back", "rb").read() == expected, f"version {version} came back with other bytes"
    return ", ".join(f"{seconds:.3f}" for seconds in took)


def mean(seconds):
    return f"{sum(seconds) / len(seconds):.3f}"


puts, deltas = [], 0
for number in range(1, versions + 1):
    if number > 1:
        at, gone = random.randrange(len(content)), random.randrange(40)
        content[at : at + gone] = random.choice(words) * random.randrange(1, 6)
    with open(path, "wb") as file:
        file.write(content)
    told, seconds = call("put", path, "--as", "file")
    assert told["is_new"] and told["version"] == number, told
    if number == 1:
        first, base = bytes(content), stored()
    else:
        puts.append(seconds)
        deltas += told["uploaded"]
        actions = told["actions"] + (actions if number > 2 else 0)
    if number % 1000 == 0:
        print(f"{number} versions: {(stored() - base) / deltas:.3f} of the deltas", flush=True)
some = min(100, len(puts))
grown = stored() - base
print(f"{versions} versions of {length} bytes")
print(f"put: first {some} {mean(puts[:some])} s each, last {some} {mean(puts[-some:])} s")
print(f"restore: version 1 {restored(1, first)} s; version {versions} {restored(versions, bytes(content))} s")
print(f"deltas: {deltas} bytes ({deltas // len(puts)} each), of them updates and signed roots {actions}")
print(f"stored behind version 1: {grown} bytes ({grown // len(puts)} each), {grown / deltas:.3f} of the deltas")
RUN
