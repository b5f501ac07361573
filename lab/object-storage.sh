#!/usr/bin/env bash
# Puts and gets 1 GiB and 20,000 small objects, through a daemon whose bytes lie in a bucket and by rclone, at the same
# server (versitygw) in one run. Prints the table of docs/results/dot.md.
#
#   lab/object-storage.sh [DIR]     DIR takes some 8 GB; best on a tmpfs. Default: $TMPDIR
#
# MIB=N, COUNT=N and SIZE=BYTES change what is measured, AT_ONCE=N how many small ones are under way, RUNS=N how often.
# The small ones go to the daemon as an application's would: over its local socket, by curl. Needs rclone, curl and
# python3; scripts/test-tools.sh gets the server. Ends all that it starts.
set -euo pipefail
cd "$(dirname "$0")/.."
mib=${MIB:-1024} count=${COUNT:-20000} size=${SIZE:-8192} at_once=${AT_ONCE:-16} runs=${RUNS:-3}

cargo build --release --quiet --package towpath
target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
tow=$target/release/tow
server=target/test-tools/versitygw
[ -x "$server" ] || server=$(command -v versitygw)
server=$(realpath "$server")
work=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/tow-objects.XXXXXX")
started=
cleanup() {
    # shellcheck disable=SC2086 # a list of numbers
    [ -z "$started" ] || kill $started 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"

port=$((20000 + $$ % 20000))
url=http://127.0.0.1:$port
mkdir -p buckets/tow buckets/rclone small tow-small home
ROOT_ACCESS_KEY=key ROOT_SECRET_KEY=secret "$server" --port "127.0.0.1:$port" posix buckets >server.log 2>&1 &
started=$!
export TOW_HOME=$work/home AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret
cat >home/config.toml <<EOF
[store]
bytes = "s3://tow/measured"
bytes_endpoint = "$url"
EOF
for _ in $(seq 100); do
    curl -s -o /dev/null "$url" && break
    sleep 0.1
done
"$tow" daemon --listen 127.0.0.1:0 2>daemon.log &
started="$started $!"
for _ in $(seq 100); do
    [ -S home/run/tow.sock ] && break
    sleep 0.1
done
export RCLONE_CONFIG_S_TYPE=s3 RCLONE_CONFIG_S_PROVIDER=Other RCLONE_CONFIG_S_ENDPOINT=$url \
    RCLONE_CONFIG_S_ACCESS_KEY_ID=key RCLONE_CONFIG_S_SECRET_ACCESS_KEY=secret RCLONE_S3_NO_CHECK_BUCKET=true
rclone=(rclone --config "" --transfers "$at_once" --checkers "$at_once")

seconds() {
    local begin end
    begin=$(date +%s.%N)
    "$@" >/dev/null
    end=$(date +%s.%N)
    echo "$end $begin" | awk '{ printf "%.2f", $1 - $2 }'
}
row() { # what, seconds of tow, seconds of rclone
    echo "$1 $2 $3" | awk '{ printf "| %s | %s | %s | %.2f |\n", $1, $2, $3, $2 / $3 }' | tr _ ' '
}

put_large() { "$tow" put - <large >ticket; }
get_large() { "$tow" get --no-search "$(cat ticket)" -o - >large.tow; }
curl_all() { curl -s --fail-with-body --unix-socket home/run/tow.sock --parallel --parallel-max "$at_once" -K "$1"; }
put_small() { curl_all puts; }
get_small() { curl_all gets; }

echo "| | tow, s | rclone, s | ratio |"
echo "|---|---|---|---|"
for run in $(seq "$runs"); do
    # New bytes each time: what is there already is not put again.
    head -c $((mib << 20)) /dev/urandom >large
    python3 - "$count" "$size" <<'EOF'
import os, sys
count, size = map(int, sys.argv[1:])
with open("puts", "w") as puts:
    for number in range(count):
        with open(f"small/{number}", "wb") as file:
            file.write(os.urandom(size))
        puts.write(f'{"next" if number else ""}\nurl = "http://tow/v1/put-stream"\nrequest = "POST"\n'
                   f'data-binary = "@small/{number}"\noutput = "tow-small/{number}.put"\n')
EOF
    put=$(seconds put_large)
    other=$(seconds "${rclone[@]}" copyto large s:rclone/large)
    row "run_$run:_put_${mib}_MiB" "$put" "$other"
    get=$(seconds get_large)
    other=$(seconds "${rclone[@]}" copyto s:rclone/large large.rclone)
    row "run_$run:_get_${mib}_MiB" "$get" "$other"
    cmp large large.tow
    cmp large large.rclone
    put=$(seconds put_small)
    other=$(seconds "${rclone[@]}" copy --no-traverse small s:rclone/small)
    row "run_$run:_put_$count" "$put" "$other"
    python3 - "$count" <<'EOF'
import json, sys
with open("gets", "w") as gets:
    for number in range(int(sys.argv[1])):
        with open(f"tow-small/{number}.put") as events:
            ticket = json.loads(events.readline())["ticket"]
        gets.write(f'{"next" if number else ""}\nurl = "http://tow/v1/content?ticket={ticket}"\n'
                   f'output = "tow-small/{number}"\n')
EOF
    get=$(seconds get_small)
    other=$(seconds "${rclone[@]}" copy s:rclone/small small.rclone)
    row "run_$run:_get_$count" "$get" "$other"
    diff -rq small small.rclone
    rm -f tow-small/*.put
    diff -rq small tow-small
    rm -rf buckets/rclone/* small.rclone large.* tow-small/*
    curl -s --unix-socket home/run/tow.sock -X POST http://tow/v1/gc >/dev/null || true
done
