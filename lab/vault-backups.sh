#!/usr/bin/env bash
# Seconds and memory of a vault beside backup programs: first put, put of what did not change, restore, check.
#
#   lab/vault-backups.sh
#   OTHERS=restic FILES=100000 MB=10240 lab/vault-backups.sh      beside restic alone: some 40 GB of disk
#
# FILES files (default 10,000) with MB mebibytes in all (default 1,024), half of each text and half noise, on this machine's disk. The vault is on a server
# on loopback, restic and borg write to a folder. Each row is one run. Needs python3, GNU time, restic and borg. TOW names the program (default: target/release/tow).
set -euo pipefail
cd "$(dirname "$0")/.."
tow=$(realpath "${TOW:-target/release/tow}")
files=${FILES:-10000} mb=${MB:-1024} others=" ${OTHERS-restic borg} "
work=$(mktemp -d "${WORK:-$PWD/target}/backups.XXXXXX")
started=
trap '[ -z "$started" ] || kill "$started" 2>/dev/null; wait 2>/dev/null || true; rm -rf "$work"' EXIT

python3 - "$work/tree" "$files" "$mb" <<'MAKE'
import os, random, sys
top, files, size = sys.argv[1], int(sys.argv[2]), (int(sys.argv[3]) << 20) // int(sys.argv[2])
random.seed(1)
words = [random.randbytes(3).hex().encode() for _ in range(4000)]
for number in range(files):
    folder = f"{top}/{number // 100:04}"
    os.makedirs(folder, exist_ok=True)
    length = random.randrange(size // 2, size * 3 // 2)
    text = b" ".join(random.choices(words, k=length // 14))
    with open(f"{folder}/{number % 100:02}", "wb") as file:
        file.write(text + random.randbytes(length - len(text)))
MAKE
export TOW_HOME=$work/client TOW_VAULT_PASSPHRASE="a passphrase" RESTIC_PASSWORD="a passphrase" BORG_PASSPHRASE="a passphrase"
export RESTIC_CACHE_DIR=$work/restic-cache BORG_BASE_DIR=$work/borg-base
TOW_HOME=$work/server "$tow" -q vault serve --public --listen 127.0.0.1:0 >"$work/place" 2>"$work/server.err" &
started=$!
for _ in $(seq 100); do [ ! -s "$work/place" ] || break; sleep 0.1; done
"$tow" -q vault init "$(head -n 1 "$work/place")" >"$work/id" 2>"$work/init.err"
restic -q -r "$work/restic" init >"$work/init.out"
[[ $others != *" borg "* ]] || borg init -e repokey-blake2 "$work/borg"

row() {
    local what=$1
    shift
    [[ $what = tow* || $others = *" ${what%% *} "* ]] || return 0
    sync
    /usr/bin/time -f "%e s, %U s user, %S s system, %M KiB" -o "$work/time" "$@" >"$work/out" 2>"$work/err" ||
        { tail -n 3 "$work/err" "$work/time" >&2; return 1; }
    printf '%-20s %s\n' "$what" "$(tail -n 1 "$work/time")"
}
echo "$files files, $(du -sb "$work/tree" | cut -f 1) bytes with their directories"
for turn in first again; do
    row "tow put $turn" "$tow" -q vault put "$work/tree"
    row "restic put $turn" restic -q -r "$work/restic" backup "$work/tree"
    row "borg put $turn" borg create "$work/borg::$turn" "$work/tree"
done
row "tow restore" "$tow" -q vault get tree -o "$work/from-tow"
diff -r "$work/tree" "$work/from-tow"
# An ext4 without a journal gives away no inode that was freed a minute ago, and looks for others one by one.
rm -rf "$work/from-tow"
sync
sleep 65
row "restic restore" restic -q -r "$work/restic" restore latest --target "$work/from-restic"
mkdir "$work/from-borg"
row "borg restore" env -C "$work/from-borg" borg extract "$work/borg::again"
row "tow check" "$tow" -q vault check
row "restic check" restic -q -r "$work/restic" check --read-data
row "borg check" borg check --verify-data "$work/borg"
for where in server restic borg; do [ ! -d "$work/$where" ] || echo "stored by $where: $(du -sb "$work/$where" | cut -f 1)"; done
echo "the server's memory: $(awk '/VmHWM/ { print $2, $3 }' "/proc/$started/status")"
