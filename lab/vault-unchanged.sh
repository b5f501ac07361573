#!/usr/bin/env bash
# Seconds of `tow vault put` of a tree in which nothing changed.
#
#   lab/vault-unchanged.sh
#
# FILES files (default 20,000) of 500 to 20,000 bytes are put until no file is read any more; then they are put RUNS times (default 3) as they
# are, and RUNS times with --checksum, which reads all. Needs python3 and GNU time. TOW names the program (default: target/release/tow).
set -euo pipefail
cd "$(dirname "$0")/.."
tow=$(realpath "${TOW:-target/release/tow}")
files=${FILES:-20000} runs=${RUNS:-3}
work=$(mktemp -d)
started=
trap '[ -z "$started" ] || kill "$started" 2>/dev/null; rm -rf "$work"' EXIT

python3 - "$work/tree" "$files" <<'MAKE'
import os, random, sys
random.seed(1)
for number in range(int(sys.argv[2])):
    folder = f"{sys.argv[1]}/{number // 100:04}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{number % 100:02}", "wb") as file:
        file.write(random.randbytes(random.randrange(500, 20_000)))
MAKE

TOW_HOME=$work/server "$tow" -q vault serve --public --listen 127.0.0.1:0 >"$work/place" 2>"$work/server.err" &
started=$!
for _ in $(seq 100); do [ ! -s "$work/place" ] || break; sleep 0.1; done
export TOW_HOME=$work/client TOW_VAULT_PASSPHRASE="a passphrase"
"$tow" -q vault init "$(head -n 1 "$work/place")" >"$work/id" 2>"$work/init.err"
for _ in 1 2; do "$tow" -q vault put "$work/tree" --json >"$work/told"; done
echo "$files files, $(du -sb "$work/tree" | cut -f 1) bytes with their directories"
for how in "" --checksum; do
    for _ in $(seq "$runs"); do
        # shellcheck disable=SC2086 # no word, or one
        /usr/bin/time -f "%e s, %U s user, %S s system, %M KiB" -o "$work/time" "$tow" -q vault put "$work/tree" $how --json >"$work/told"
        echo "put ${how:-unchanged}: $(cat "$work/time"), $(python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readlines()[-1])["read"])' "$work/told") bytes read"
    done
done
