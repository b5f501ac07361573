#!/usr/bin/env bash
# Which routers two machines may be behind, and still find a way to each other: every pair of kinds, or the one that is named.
# A sender behind the one and a receiver behind the other know nothing but a rendezvous server, which is a relay, too. Round trip 40 ms, 100 Mbit/s
# between each two of the three (lab/scenarios/nat.toml).
#
#   lab/nat.sh                            every pair, 4 MiB
#   lab/nat.sh restricted symmetric       one pair (the sender's router first)
#   MB=40 lab/nat.sh symmetric symmetric
#   MB=200 KILL=2 lab/nat.sh symmetric symmetric      the server is killed and started again every 2 s; prints what the sender's router
#                                                     sent (SENT=1 without kills)
#   MB=200 GONE=5 lab/nat.sh symmetric symmetric      after 5 s the server is killed for good; the ticket names a second relay
#   MB=200 OPENS=5 lab/nat.sh symmetric symmetric     after 5 s the sender's router lets in whatever comes, and it is looked how long
#                                                     bytes still come by the relay
#
#   MB=100 MOVES=3 lab/nat.sh cone cone               after 3 s both machines get another address, and it is looked when bytes come again
#
#   CODE=1 lab/nat.sh open open                       the sender shares by a code, and it is looked when the first 64 KiB come to the
#                                                     receiver after the code was typed
#   CODE=1 WORMHOLE=wormhole TWIST=twist lab/nat.sh open open      the same with magic-wormhole and its own two servers
#
#   MB=200 COST=1 lab/nat.sh symmetric symmetric      prints the server's processor time for a GiB, the relay's part above all
#   MB=200 BARE=32768 lab/nat.sh open open            instead of all this a bare loop of recv and send at the server, which does not wake for fewer
#                                                     bytes than these, and its processor time: what any relay costs here
#
# Kinds: open (no router), cone (whatever comes to the outer address is let in), restricted (only answers are let in, and a
# port is the same outside whomever it speaks to), symmetric (only answers, and each connection has another port outside).
# Needs root, ip and nft; TOW and LAB name the programs (default: tow and towpath-lab in target/release).
# Prints a line for each pair: seconds of the get, and the bytes by the way they came.
set -euo pipefail
cd "$(dirname "$0")/.."
tow=$(realpath "${TOW:-target/release/tow}")
lab=$(realpath "${LAB:-target/release/towpath-lab}")
mb=${MB:-4} limit=${LIMIT:-40}
work=$(mktemp -d /dev/shm/nat.XXXXXX)
started=()

stop() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    started=()
    for side in left right; do ip netns del "tow-inner-$side" 2>/dev/null || true; done
    rm -rf "${work:?}"/*
}
trap 'stop; rmdir "$work"' EXIT

wait_for() {
    for _ in $(seq 100); do
        [ ! -s "$1" ] || return 0
        sleep 0.1
    done
    echo "nat: nothing came: $1" >&2
    return 1
}

network() {
    "$lab" up lab/scenarios/nat.toml >"$work/lab" &
    started+=($!)
    for _ in $(seq 100); do grep -q '^run:' "$work/lab" && break; sleep 0.1; done
    name=$(sed -n 's/^lab \(.*\) is up.*/\1/p' "$work/lab")
}
address() { awk -v host="$1" '$1 == host { print $2 }' "$work/lab"; }

# Puts a machine behind HOST, which becomes its router of this kind; the machine's namespace is in $inner then.
behind() {
    local host=$1 kind=$2 number=$3 router=towpath-$name-$1
    inner=$router
    [ "$kind" != open ] || return 0
    inner=tow-inner-$host
    ip netns add "$inner"
    ip link add lan netns "$router" type veth peer name wan netns "$inner"
    ip -n "$router" addr add "192.168.$number.1/24" dev lan
    ip -n "$router" link set lan up
    ip -n "$inner" link set lo up
    ip -n "$inner" link set wan up
    ip -n "$inner" addr add "192.168.$number.2/24" dev wan
    ip -n "$inner" route add default via "192.168.$number.1"
    ip netns exec "$router" sysctl -qw net.ipv4.ip_forward=1
    rules "$host" "$kind" "$number"
}

# What HOST's router does from now on.
rules() {
    local host=$1 kind=$2 number=$3 router=towpath-$name-$1 how=persistent comes=drop inward=
    [ "$kind" != symmetric ] || how=fully-random
    if [ "$kind" = cone ]; then
        comes=accept
        inward="iifname != \"lan\" ip daddr $(address "$host") dnat to 192.168.$number.${own:-2}"
    fi
    ip netns exec "$router" nft flush ruleset
    ip netns exec "$router" nft -f - <<RULES
table ip nat {
    chain pre { type nat hook prerouting priority -100; $inward; }
    chain post { type nat hook postrouting priority 100; ip saddr 192.168.0.0/16 snat to $(address "$host") $how; }
}
table ip filter {
    chain in { type filter hook input priority 0; iifname != { "lan", "lo" } ct state new drop; }
    chain through { type filter hook forward priority 0; iifname != "lan" ct state new $comes; }
}
RULES
}

# The server, or at another port a second one.
serve() {
    local port=${1:-4433}
    TOW_HOME=$work/server-$port exec ip netns exec "towpath-$name-server" "$tow" \
        rendezvous --relay --public --listen "$(address server):$port"
}

# Kills the server and starts it again, every so many seconds, until it is killed itself.
plague() {
    trap 'kill -9 $server; exit' TERM
    while sleep "$1"; do
        kill -9 "$server"
        wait "$server" 2>/dev/null || true
        serve >/dev/null 2>&1 &
        server=$!
    done
}

# MiB that left the sender's router by the lab's links.
sent() {
    ip netns exec "towpath-$name-left" awk '/link[0-9]+:/ { sum += $10 } END { printf "%.1f", sum / 1048576 }' /proc/net/dev
}

# Opens the sender's router after so many seconds. Prints when bytes came from the sender to the relay last, more than a KiB in a tenth of a
# second, and how many came since the router opened.
opens() {
    sleep "$1"
    rules left cone 1
    ip netns exec "towpath-$name-server" python3 - "$(address left)" <<'WATCH'
import subprocess, sys, time
route = subprocess.run(["ip", "route", "get", sys.argv[1]], capture_output=True, text=True).stdout.split()
device = route[route.index("dev") + 1]
def came():
    for line in open("/proc/net/dev"):
        if line.strip().startswith(device + ":"):
            return int(line.split(":")[1].split()[0])
begun, first, last, seen = time.time(), came(), 0.0, came()
while time.time() < begun + 8:
    time.sleep(0.1)
    now = came()
    if now - seen > 1024:
        last = time.time() - begun
    seen = now
print(f"by the relay until {last:.1f} s after the way opened: {(seen - first) / 2**20:.2f} MiB since")
WATCH
}

# Gives both machines, which are behind routers, another address after so many seconds, and prints when bytes came to the receiver
# again, and how many came in all.
moves() {
    sleep "$1"
    local host number=0 own=3
    for host in left right; do
        number=$((number + 1))
        ip -n "tow-inner-$host" addr del "192.168.$number.2/24" dev wan
        ip -n "tow-inner-$host" addr add "192.168.$number.3/24" dev wan
        ip -n "tow-inner-$host" route add default via "192.168.$number.1"
        rules "$host" "${kinds[$((number - 1))]}" "$number"
    done
    ip netns exec tow-inner-right python3 - "$mb" <<'WATCH'
import sys, time
def came():
    for line in open("/proc/net/dev"):
        if line.strip().startswith("wan:"):
            return int(line.split(":")[1].split()[0])
begun, again, seen, quiet = time.time(), None, came(), 0
while time.time() < begun + 30 and quiet < 60:
    time.sleep(0.05)
    now = came()
    moving = now - seen > 100_000
    again = again or moving and time.time() - begun
    quiet = 0 if moving or not again else quiet + 1
    seen = now
print(f"bytes come again {again or 99:.1f} s after both moved; {seen / 2**20:.1f} MiB came in all for a file of {sys.argv[1]}")
WATCH
}

# Waits for the first 64 KiB that come to the receiver, and prints how long after the program began that was; the program follows.
first_bytes() {
    ip netns exec "$inner" python3 - "$@" <<'WATCH'
import os, subprocess, sys, time
def came():
    lines = [line.split(":") for line in open("/proc/net/dev") if ":" in line]
    return sum(int(rest.split()[0]) for name, rest in lines if name.strip() != "lo")
before, begun = came(), time.time()
program = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
while came() - before < 65536 and program.poll() is None:
    time.sleep(0.002)
took = time.time() - begun
print(f"the first 64 KiB came after {took:.2f} s; status {program.wait()}")
WATCH
}

# Processor time of process $1 so far, in seconds.
processor_time() { awk '{ sum += $1 } END { print sum / 1e9 }' "/proc/$1"/task/*/schedstat; }

# Passes MB MiB on from the sender at $1 to the receiver at $2 by a loop at the server, and prints what that cost.
bare() {
    ip netns exec "$2" python3 -c '
import socket, sys
listener = socket.create_server((sys.argv[1], 5001))
stream, space = listener.accept()[0], bytearray(1 << 18)
while stream.recv_into(space): pass' "$(address right)" &
    ip netns exec "towpath-$name-server" python3 - "$(address server)" "$(address right)" "$BARE" <<'LOOP' &
import socket, sys, time
came = socket.create_server((sys.argv[1], 5000)).accept()[0]
goes, space = socket.create_connection((sys.argv[2], 5001)), bytearray(1 << 18)
came.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, int(sys.argv[3]))
wakes = total = 0
before = time.process_time()
while count := came.recv_into(space):
    goes.sendall(memoryview(space)[:count])
    wakes, total = wakes + 1, total + count
cost = (time.process_time() - before) * 2**30 / total
print(f"a bare loop: {cost:.2f} s of processor time for a GiB, {total / wakes / 1024:.1f} KiB at once")
LOOP
    local loop=$!
    sleep 1
    ip netns exec "$1" python3 -c '
import os, socket, sys
stream, block = socket.create_connection((sys.argv[1], 5000)), os.urandom(1 << 20)
for _ in range(int(sys.argv[2])): stream.sendall(block)' "$(address server)" "$mb"
    wait "$loop"
}

# A get by a code: $inner is the receiver's namespace, $1 the sender's.
by_code() {
    local left=$1 code
    if [ -n "${WORMHOLE:-}" ]; then
        local at
        at=$(address server)
        env -C "$work" ip netns exec "towpath-$name-server" "$TWIST" wormhole-mailbox --port "tcp:4000:interface=$at" >"$work/mailbox" 2>&1 &
        started+=($!)
        ip netns exec "towpath-$name-server" "$TWIST" transitrelay --port "tcp:4001:interface=$at" >"$work/transit" 2>&1 &
        started+=($!)
        sleep 3
        local servers=(--relay-url "ws://$at:4000/v1" --transit-helper "tcp:$at:4001")
        ip netns exec "$left" "$WORMHOLE" "${servers[@]}" send --code 7-otter-lagoon "$work/file" >"$work/code" 2>&1 &
        started+=($!)
        sleep 3
        first_bytes "$WORMHOLE" "${servers[@]}" receive --accept-file -o "$work/copy" 7-otter-lagoon
        return
    fi
    TOW_HOME=$work/left ip netns exec "$left" "$tow" share --code "$work/file" >"$work/code" 2>"$work/share.err" &
    started+=($!)
    wait_for "$work/code"
    code=$(head -n 1 "$work/code")
    sleep 1
    TOW_HOME=$work/right first_bytes "$tow" get --no-search "$code" -o "$work/copy"
}

pair() {
    stop
    kinds=("$1" "$2")
    network
    behind left "$1" 1
    local left=$inner
    behind right "$2" 2
    local right=$inner
    if [ -n "${BARE:-}" ]; then
        bare "$left" "$right"
        stop
        return
    fi
    head -c "$((mb << 20))" /dev/urandom >"$work/file"
    serve >"$work/place" 2>"$work/server.err" &
    server=$!
    started+=($server)
    wait_for "$work/place"
    TOW_RENDEZVOUS=$(head -n 1 "$work/place")
    export TOW_RENDEZVOUS
    mkdir -p "$work/left"
    local relays="\"$TOW_RENDEZVOUS\""
    if [ -n "${GONE:-}" ]; then
        serve 4434 >"$work/second" 2>"$work/second.err" &
        started+=($!)
        wait_for "$work/second"
        relays="$relays, \"$(head -n 1 "$work/second")\""
    fi
    mkdir -p "$work/right"
    # A relay that a ticket alone names is dialled at public addresses only, which the lab has not.
    for side in left ${GONE:+right}; do echo "rendezvous.relays = [$relays]" >"$work/$side/config.toml"; done
    if [ -n "${CODE:-}" ]; then
        inner=$right
        by_code "$left"
        cmp "$work/file" "$work/copy"
        stop
        return
    fi
    TOW_HOME=$work/left ip netns exec "$left" "$tow" share -vv "$work/file" >"$work/ticket" 2>"$work/share.err" &
    started+=($!)
    wait_for "$work/ticket"
    sleep 1
    local begun status=0
    if [ -n "${KILL:-}" ]; then
        plague "$KILL" >/dev/null 2>&1 &
        started+=($!)
    fi
    if [ -n "${GONE:-}" ]; then
        { sleep "$GONE" && kill -9 "$server"; } &
        started+=($!)
    fi
    if [ -n "${OPENS:-}" ]; then
        opens "$OPENS" >"$work/opens" &
        started+=($!)
    fi
    if [ -n "${MOVES:-}" ]; then
        moves "$MOVES" >"$work/moves" &
        started+=($!)
    fi
    begun=$(date +%s.%N)
    TOW_HOME=$work/right ip netns exec "$right" timeout "$limit" "$tow" get -vv --no-search --json "$(head -n 1 "$work/ticket")" \
        -o "$work/copy" >"$work/get" 2>"$work/get.err" || status=$?
    local seconds how="no way in $limit s"
    seconds=$(echo "$(date +%s.%N) - $begun" | bc)
    if [ "$status" = 0 ] && cmp -s "$work/file" "$work/copy"; then
        how=$(python3 - "$work/get" <<'READ'
import json, sys
last = [json.loads(line) for line in open(sys.argv[1])][-1]
print(", ".join(f"{s['kind']}{' ' + s['path'] if s.get('path') else ''} {s['bytes']}" for s in last["sources"]))
READ
        )
    fi
    printf '%-11s %-11s %6.2f s  %s\n' "$1" "$2" "$seconds" "$how"
    [ -z "${KILL:-}${SENT:-}" ] || echo "the sender's router sent $(sent) MiB"
    [ -z "${COST:-}" ] || echo "the server: $(echo "$(processor_time "$server") * 1024 / $mb" | bc -l | cut -c-5) s of processor time for a GiB"
    [ -z "${OPENS:-}" ] || { sleep 4; cat "$work/opens"; }
    [ -z "${MOVES:-}" ] || { sleep 4; cat "$work/moves"; }
    [ -z "${KEEP:-}" ] || cp -r "$work"/*.err "$work/get" "$KEEP"
    stop
}

if [ $# = 2 ]; then
    pair "$1" "$2"
    exit
fi
for left in open cone restricted symmetric; do
    for right in open cone restricted symmetric; do
        pair "$left" "$right"
    done
done
