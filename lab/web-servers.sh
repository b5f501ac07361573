#!/usr/bin/env bash
# Files on plain web servers (nginx), in the lab's network and on this machine:
#   sum      a sender of 100 Mbit/s and a mirror of 300 Mbit/s, alone, together, and the mirror dies half way
#   similar  50 MB of which 1 % changed in a hundred places, by a .tow and by zsync, at 1.544 Mbit/s
#   local    1 GiB from nginx on this machine, by a .tow and by aria2, unshaped
#
#     lab/web-servers.sh [sum|similar|local]...      all by default
#
# Needs root, nginx, zsync and aria2. TOW and LAB name the programs (default: tow and towpath-lab in target/release). RUNS is 3 by default.
set -euo pipefail

tow=$(realpath "${TOW:-target/release/tow}")
lab=$(realpath "${LAB:-target/release/towpath-lab}")
runs=${RUNS:-3}
work=$(mktemp -d /dev/shm/web-servers.XXXXXX)
started=()
tidy() {
    for pid in "${started[@]}"; do kill "$pid" 2> /dev/null; done
    wait 2> /dev/null
    rm -rf "$work"
}
trap 'tidy || true' EXIT
mkdir -p "$work/www" "$work/get"

now() { date +%s.%N; }
since() { awk -v start="$1" -v end="$(now)" 'BEGIN { printf "%.2f", end - start }'; }
network_up() {
    [ -z "${name:-}" ] || return 0
    "$lab" up lab/scenarios/web-servers.toml > "$work/lab" &
    started+=($!)
    for _ in $(seq 100); do ! grep -q '^run:' "$work/lab" || break; sleep 0.1; done
    name=$(sed -n 's/^lab \(.*\) is up.*/\1/p' "$work/lab")
}
address() { awk -v host="$1" '$1 == host { print $2 }' "$work/lab"; }
on() { local host=$1; shift; "$lab" exec "$name" "$host" "$@"; }

# nginx over www, listening at an address; `ON HOST` in front runs it there. Its process is in $server.
serve() {
    local listen=$1 own=$work/nginx$1
    shift
    mkdir -p "$own"
    cat > "$own/conf" << EOF
daemon off; worker_processes 2; pid $own/pid; error_log $own/error; user root; events { }
http {
    access_log off; sendfile on;
    client_body_temp_path $own/a; proxy_temp_path $own/b; fastcgi_temp_path $own/c; uwsgi_temp_path $own/d; scgi_temp_path $own/e;
    server { listen $listen:8080; root $work/www; }
}
EOF
    "$@" nginx -c "$own/conf" -e "$own/error" &
    started+=($!)
    for _ in $(seq 100); do [ ! -s "$own/pid" ] || break; sleep 0.1; done
    server=$(cat "$own/pid")
}
get() { TOW_HOME=$work/home$RANDOM on receiver "$tow" get --no-search "$@" 2>&1 | grep -E '^tow:' | head -n 1 > "$work/said"; }
fresh() { rm -rf "$work"/get/* "$work"/home[0-9]*; }

sum() {
    network_up
    head -c 200000000 /dev/urandom > "$work/www/big"
    local oid ticket start both
    oid=$("$tow" publish "$work/www/big" 2> /dev/null)
    TOW_HOME=$work/sender on sender "$tow" share --listen "$(address sender):7000" "$work/www/big" > "$work/ticket" 2> /dev/null &
    local share=$!
    started+=("$share")
    for _ in $(seq 200); do [ ! -s "$work/ticket" ] || break; sleep 0.1; done
    sleep 2
    ticket=$(cat "$work/ticket")
    serve "$(address mirror)" on mirror
    local url
    url=http://$(address mirror):8080/big
    for _ in $(seq "$runs"); do
        fresh; start=$(now); get "$ticket" -o "$work/get/big"; local by_sender; by_sender=$(since "$start")
        fresh; start=$(now); get "$oid" --from "$url.tow" -o "$work/get/big"; local by_mirror; by_mirror=$(since "$start")
        fresh; start=$(now); get "$ticket" --from "$url" -o "$work/get/big"; both=$(since "$start")
        cmp "$work/www/big" "$work/get/big"
        awk -v s="$by_sender" -v m="$by_mirror" -v b="$both" 'BEGIN { printf "sum: sender %.2f s, mirror %.2f s, both %.2f s: %.2f of the sum of what each brings alone\n", s, m, b, 1 / (b * (1 / s + 1 / m)) }'
    done
    fresh; start=$(now); get "$ticket" --from "$url" -o "$work/get/big" &
    local getting=$!
    sleep 2
    kill -KILL "$server" $(pgrep -P "$server")
    local killed
    killed=$(now)
    wait "$getting"
    cmp "$work/www/big" "$work/get/big"
    echo "sum: the mirror killed after 2 s: $(since "$start") s in all, $(since "$killed") s from then on; $(cat "$work/said")"
    kill "$share"
}

# Bytes that came to the receiver over a link so far.
came() { on receiver cat /proc/net/dev | awk -F: -v link="$1" '{ gsub(/ /, "", $1) } $1 == link { split($2, counts, " "); printf "%.0f\n", counts[1] }'; }

similar() {
    network_up
    python3 - "$work" << 'EOF'
import random, sys
random.seed(7)
old = random.randbytes(50_000_000)
open(sys.argv[1] + "/old", "wb").write(old)
new = bytearray(old)
for _ in range(100):
    at = random.randrange(0, len(new) - 6000)
    new[at:at + 5000] = random.randbytes(5000 + random.choice([0, 0, 7, -11]))
open(sys.argv[1] + "/www/new", "wb").write(new)
EOF
    (cd "$work/www" && "$tow" publish new > "$work/oid" 2> /dev/null && zsyncmake new 2> /dev/null)
    serve "$(address slow)" on slow
    local url link before start
    url=http://$(address slow):8080
    link=$(on receiver ip route get "$(address slow)" | grep -oE "dev [^ ]+" | cut -d" " -f2)
    for _ in $(seq "$runs"); do
        fresh; cp "$work/old" "$work/get/new-1"
        before=$(came "$link"); start=$(now)
        (cd "$work/get" && TOW_HOME=$work/home1 on receiver "$tow" get "$(cat "$work/oid")" --from "$url/new.tow" -o new > /dev/null 2>&1)
        echo "similar: tow $(since "$start") s, $(($(came "$link") - before)) bytes"
        cmp "$work/www/new" "$work/get/new"
        fresh; cp "$work/old" "$work/get/old"
        before=$(came "$link"); start=$(now)
        (cd "$work/get" && on receiver zsync -q -i old "$url/new.zsync" > /dev/null 2>&1)
        echo "similar: zsync $(since "$start") s, $(($(came "$link") - before)) bytes"
        cmp "$work/www/new" "$work/get/new"
    done
}

local_gib() {
    head -c 1073741824 /dev/urandom > "$work/www/gib"
    local oid start
    oid=$("$tow" publish "$work/www/gib" 2> /dev/null)
    serve 127.0.0.1
    for _ in $(seq "$runs"); do
        fresh; start=$(now)
        TOW_HOME=$work/home2 "$tow" get --no-search "$oid" --from http://127.0.0.1:8080/gib.tow -o "$work/get/gib" > /dev/null 2>&1
        local ours; ours=$(since "$start")
        cmp "$work/www/gib" "$work/get/gib"
        fresh; start=$(now)
        aria2c -q -d "$work/get" http://127.0.0.1:8080/gib
        local aria; aria=$(since "$start")
        fresh; start=$(now)
        aria2c -q -x 4 -s 4 --file-allocation=none -d "$work/get" http://127.0.0.1:8080/gib
        echo "local: tow $ours s, aria2 $aria s, aria2 by four connections $(since "$start") s"
    done
}

[ $# -gt 0 ] || set -- sum similar local
for one in "$@"; do
    case $one in
        sum) sum ;;
        similar) similar ;;
        local) local_gib ;;
        *) echo "web-servers.sh: no such thing: $one" >&2; exit 2 ;;
    esac
done
