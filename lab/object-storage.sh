#!/usr/bin/env bash
# Puts and gets 1 GiB and 20,000 small objects, through a daemon whose bytes lie in a bucket and by rclone, at the same
# server (versitygw) in one run. Prints the table of docs/results/dot.md.
#
#   lab/object-storage.sh [DIR]     DIR takes some 8 GB; best on a tmpfs. Default: $TMPDIR
#
# MIB=N, COUNT=N and SIZE=BYTES change what is measured, AT_ONCE=N how many small ones are under way, RUNS=N how often;
# MIB=0 leaves the large one out. The small ones go to the daemon as an application's would: over its local socket, from
# AT_ONCE threads of a program in Python, each of which keeps its connection, as rclone's would. What Python takes is in
# tow's seconds. The server keeps no connections, to tow or to rclone, unless KEEP_ALIVE=1 (--keep-alive of versitygw).
# TOW=PROGRAM measures another build, with no cargo. Needs rclone, curl and python3; scripts/test-tools.sh gets the server.
# Ends all that it starts.
set -euo pipefail
cd "$(dirname "$0")/.."
mib=${MIB:-1024} count=${COUNT:-20000} size=${SIZE:-8192} at_once=${AT_ONCE:-16} runs=${RUNS:-3}

tow=${TOW:-}
if [ -z "$tow" ]; then
    cargo build --release --quiet --package towpath
    tow=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/tow
fi
tow=$(realpath "$tow")
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

# rclone refuses to start with it.
unset AWS_CA_BUNDLE
port=$((20000 + $$ % 20000))
url=http://127.0.0.1:$port
mkdir -p buckets/tow buckets/rclone small tow-small tickets home
ROOT_ACCESS_KEY=key ROOT_SECRET_KEY=secret "$server" ${KEEP_ALIVE:+--keep-alive} --port "127.0.0.1:$port" posix buckets >server.log 2>&1 &
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
    "$@" >/dev/null 2>>talk || { cat talk >&2; return 1; }
    end=$(date +%s.%N)
    echo "$end $begin" | awk '{ printf "%.2f", $1 - $2 }'
}
row() { # what, seconds of tow, seconds of rclone
    echo "$1 $2 $3" | awk '{ printf "| %s | %s | %s | %.2f |\n", $1, $2, $3, $2 / $3 }' | tr _ ' '
}

put_large() { "$tow" put - <large >ticket; }
get_large() { "$tow" get --no-search "$(cat ticket)" -o - >large.tow; }
small() { python3 small.py "$1" "$count" "$at_once"; }
put_small() { small put; }
get_small() { small get; }
cat >small.py <<'EOF'
"""Puts or gets the small objects over the daemon's socket, some at once, each worker on a connection that it keeps."""
import concurrent.futures, json, socket, sys

what, count, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Way:
    """A connection that is kept from one request to the next, as HTTP clients do."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect("home/run/tow.sock")
        self.reader = self.socket.makefile("rb")

    def call(self, head, body=b""):
        self.socket.sendall(f"{head} HTTP/1.1\r\nHost: tow\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        status, length = self.reader.readline(), None
        assert b" 200 " in status, status
        while (line := self.reader.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if length is not None:
            return self.reader.read(length)
        parts = []
        while size := int(self.reader.readline(), 16):
            parts.append(self.reader.read(size))
            self.reader.readline()
        self.reader.readline()
        return b"".join(parts)


def put(way, number):
    with open(f"small/{number}", "rb") as file:
        events = [json.loads(line) for line in way.call("POST /v1/put-stream", file.read()).splitlines()]
    assert events[-1]["event"] == "summary", events
    with open(f"tickets/{number}", "w") as file:
        file.write(events[0]["ticket"])


def get(way, number):
    with open(f"tickets/{number}") as file:
        content = way.call(f"GET /v1/content?ticket={file.read()}")
    with open(f"tow-small/{number}", "wb") as file:
        file.write(content)


def work(first):
    way = Way()
    for number in range(first, count, at_once):
        (put if what == "put" else get)(way, number)


with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
    list(pool.map(work, range(at_once)))
EOF

echo "| | tow, s | rclone, s | ratio |"
echo "|---|---|---|---|"
for run in $(seq "$runs"); do
    # New bytes each time: what is there already is not put again.
    head -c $((mib << 20)) /dev/urandom >large
    python3 - "$count" "$size" <<'EOF'
import os, sys
count, size = map(int, sys.argv[1:])
for number in range(count):
    with open(f"small/{number}", "wb") as file:
        file.write(os.urandom(size))
EOF
    if [ "$mib" -gt 0 ]; then
        put=$(seconds put_large)
        other=$(seconds "${rclone[@]}" copyto large s:rclone/large)
        row "run_$run:_put_${mib}_MiB" "$put" "$other"
        get=$(seconds get_large)
        other=$(seconds "${rclone[@]}" copyto s:rclone/large large.rclone)
        row "run_$run:_get_${mib}_MiB" "$get" "$other"
        cmp large large.tow
        cmp large large.rclone
    fi
    put=$(seconds put_small)
    other=$(seconds "${rclone[@]}" copy --no-traverse small s:rclone/small)
    row "run_$run:_put_$count" "$put" "$other"
    get=$(seconds get_small)
    other=$(seconds "${rclone[@]}" copy s:rclone/small small.rclone)
    row "run_$run:_get_$count" "$get" "$other"
    diff -rq small small.rclone
    diff -rq small tow-small
    rm -rf buckets/rclone/* small.rclone large.* tow-small tickets
    mkdir tow-small tickets
    curl -s --unix-socket home/run/tow.sock -X POST http://tow/v1/gc >/dev/null || true
done
