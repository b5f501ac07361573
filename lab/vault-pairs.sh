#!/usr/bin/env bash
# Bytes of a new version of a published package, put as a tree: what the vault uploads, beside deltas of its files and backup programs.
#
#   lab/vault-pairs.sh [PAIR...]      such as "typescript 6.0.2 6.0.3"; default: the ten of lab/scenarios/delta-versions.toml
#
# Prints for each pair: bytes that were uploaded with the old blocks cached on this machine, of them padding; uploaded with the summary alone;
# the sum of `xdelta3 -9 -S none` of the files that differ, new ones without a source (the ideal); and by what the folders of restic and of borg
# (with zstd) grew. borg's index is not counted, as it is made anew on the server. Then the ratios, and their medians.
# Another machine gets what was put, and it is compared. Needs python3, xdelta3, restic, borg, rclone, and towpath-lab, which fetches and unpacks
# the packages (LAB names it, CACHE its folder). TOW names the program (default: target/release/tow).
set -euo pipefail
cd "$(dirname "$0")/.."
tow=$(realpath "${TOW:-target/release/tow}") lab=$(realpath "${LAB:-target/release/towpath-lab}")
cache=$(realpath -m "${CACHE:-target/lab-data}")
pairs=("$@")
[ $# -gt 0 ] || mapfile -t pairs < <(sed -n '/^data/,/^]/s/^ *"\(.*\) unpacked",$/\1/p' lab/scenarios/delta-versions.toml)
work=$(mktemp -d "${WORK:-$PWD/target}/pairs.XXXXXX")
started=
trap '[ -z "$started" ] || kill "$started" 2>/dev/null; wait 2>/dev/null || true; rm -rf "$work"' EXIT
export RESTIC_PASSWORD="a passphrase" BORG_PASSPHRASE="a passphrase"

# What a vault of its own uploads for NEW where OLD was put: JSON of the put. With FORGET the machine's blocks go in between.
vault() {
    local old=$1 new=$2 forget=$3 place
    rm -rf "$work/vault"
    mkdir "$work/vault"
    TOW_HOME=$work/vault/server "$tow" -q vault serve --public --listen 127.0.0.1:0 >"$work/vault/place" 2>"$work/vault/server.err" &
    started=$!
    for _ in $(seq 100); do [ ! -s "$work/vault/place" ] || break; sleep 0.1; done
    place=$(head -n 1 "$work/vault/place")
    client init "$place" >"$work/vault/id" 2>"$work/vault/init.err"
    client put "$old" --as tree --json >"$work/vault/first"
    [ -z "$forget" ] || rm -r "$work"/vault/client/*/vaults/*/blocks
    client put "$new" --as tree --json | tail -n 1 >"$work/put$forget"
    if [ -n "$forget" ]; then
        reader join "$place" "$(head -n 1 "$work/vault/id")" >"$work/vault/joined"
        reader get tree -o "$work/vault/back"
        diff -r --no-dereference "$new" "$work/vault/back"
    fi
    kill "$started"
    wait "$started" 2>/dev/null || true
    started=
}
client() { TOW_HOME=$work/vault/client "$tow" -q vault --key-file "$work/key" "$@"; }
reader() { TOW_HOME=$work/vault/reader "$tow" -q vault --key-file "$work/key" "$@"; }

crypt() {
    RCLONE_CONFIG=/dev/null RCLONE_CONFIG_CRYPT_TYPE=crypt RCLONE_CONFIG_CRYPT_REMOTE=$work/crypt \
        RCLONE_CONFIG_CRYPT_PASSWORD=$(rclone obscure "a passphrase") rclone --links --log-level ERROR "$@"
}
grown() { du -sb "$1" | cut -f 1; }
backups() {
    local old=$1 new=$2 restic borg written
    rm -rf "$work/restic" "$work/borg"
    export RESTIC_CACHE_DIR=$work/restic-cache BORG_BASE_DIR=$work/borg-base
    restic -q -r "$work/restic" init >"$work/init.out"
    borg init -e repokey-blake2 "$work/borg" 2>"$work/borg.err"
    (cd "$old" && restic -q -r "$work/restic" backup . && borg create -C zstd "$work/borg::old" .)
    restic=$(grown "$work/restic") borg=$(grown "$work/borg/data")
    (cd "$new" && restic -q -r "$work/restic" backup . && borg create -C zstd "$work/borg::new" .)
    (cd "$old" && crypt sync . crypt:)
    sleep 0.1 # a mark is older than what is written behind it by a tick of the clock
    touch "$work/mark"
    (cd "$new" && crypt sync . crypt:)
    written=$(find "$work/crypt" -type f -cnewer "$work/mark" -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }')
    echo "$(($(grown "$work/restic") - restic)) $(($(grown "$work/borg/data") - borg)) $written" >"$work/backups"
    rm -rf "$work/restic" "$work/borg" "$work/restic-cache" "$work/borg-base" "$work/crypt"
}

ideal() {
    python3 - "$1" "$2" "$work/delta" <<'IDEAL'
import filecmp, os, subprocess, sys
old, new, delta = sys.argv[1:]
total = 0
for folder, _, names in os.walk(new):
    for name in names:
        path = os.path.join(folder, name)
        before = os.path.join(old, os.path.relpath(path, new))
        if os.path.islink(path):
            continue
        has = os.path.isfile(before)
        if has and filecmp.cmp(before, path, shallow=False):
            continue
        subprocess.run(["xdelta3", "-q", "-9", "-S", "none", "-f", "-e", *(["-s", before] if has else []), path, delta], check=True)
        total += os.path.getsize(delta)
print(total)
IDEAL
}

head -c 64 /dev/urandom >"$work/key"
columns='%-38s %10s %7s %12s %10s %10s %10s %10s  %6s %6s %6s %6s\n'
# shellcheck disable=SC2059 # a format of its own
printf "$columns" pair uploaded padding 'summary only' xdelta3 restic borg rclone ideal of-s restic borg
for pair in "${pairs[@]}"; do
    read -r name older newer <<<"$pair"
    "$lab" data --cache "$cache" "$pair unpacked" >"$work/data"
    old=$cache/$name-$older new=$cache/$name-$newer
    vault "$old" "$new" ""
    vault "$old" "$new" -forgotten
    backups "$old" "$new"
    read -r restic borg rclone <"$work/backups"
    python3 - "$pair" "$work" "$(ideal "$old" "$new")" "$restic" "$borg" "$rclone" "$columns" <<'ROW'
import json, sys
pair, work, ideal, restic, borg, rclone = sys.argv[1:7]
ours, summary = (json.load(open(f"{work}/put{end}")) for end in ("", "-forgotten"))
sent, alone = ours["uploaded"], summary["uploaded"]
ratios = [sent / int(ideal), alone / int(ideal), sent / int(restic), sent / int(borg)]
print(sys.argv[7].replace("\\n", "") % (pair, sent, ours["padding"], alone, ideal, restic, borg, rclone, *(f"{ratio:.2f}" for ratio in ratios)), flush=True)
open(f"{work}/ratios", "a").write(" ".join(map(str, [*ratios[:2], sent / min(int(restic), int(borg))])) + "\n")
ROW
done
python3 - "$work/ratios" <<'MEDIANS'
import statistics, sys
ideal, alone, best = zip(*(map(float, line.split()) for line in open(sys.argv[1])))
for what, ratios in ("ideal", ideal), ("ideal, summary only", alone), ("best of restic and borg", best):
    print(f"of the {what}: median {statistics.median(ratios):.2f}, at most {max(ratios):.2f}")
MEDIANS
