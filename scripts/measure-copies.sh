#!/usr/bin/env bash
# Measures tow cp and tow sync beside rsync: seconds of each, in turn, in one run, and the memory of
# tow. Prints the table of docs/results/copies.md. Needs rsync, ssh and sshd; starts an sshd of its own on
# 127.0.0.1, and ends it.
#
#   scripts/measure-copies.sh [DIR]     DIR takes some 6 GB; best on a tmpfs. Default: $TMPDIR
#
# SMALL=1 measures with a hundredth of the data, to try the script. MANY=N sets how many files the one directory
# has (default 1000000): a tmpfs may not have inodes for three times as many.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

cargo build --release --quiet --package towpath
target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
tow=$target/release/tow
work=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/tow-copies.XXXXXX")
cleanup() {
    [ ! -s "$work/sshd.pid" ] || kill "$(cat "$work/sshd.pid")" || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
export TOW_HOME=$work/here

port=$((20000 + $$ % 20000))
for key in host user; do ssh-keygen -qt ed25519 -N '' -f "$key"; done
mkdir -p /run/sshd 2>/dev/null || true
cat > sshd_config <<EOF
Port $port
ListenAddress 127.0.0.1
HostKey $work/host
AuthorizedKeysFile $work/user.pub
StrictModes no
PidFile $work/sshd.pid
EOF
cat > ssh_config <<EOF
Host there
  HostName 127.0.0.1
  Port $port
  User $(id -un)
  IdentityFile $work/user
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
EOF
"$(command -v sshd)" -f sshd_config
rsh="ssh -F $work/ssh_config"
there=(-e "$rsh" --tow-path "TOW_HOME=$work/there $tow")

scale() { if [ -n "${SMALL:-}" ]; then echo $(($1 / 100)); else echo "$1"; fi; }

# Seconds and, for tow, the largest resident set of the process started here.
seconds= peak=
run() {
    local begin end child
    begin=$(date +%s.%N)
    "$@" > /dev/null &
    child=$!
    peak=0
    while kill -0 "$child" 2>/dev/null; do
        peak=$(awk -v p="$peak" '/VmHWM/ { if ($2 > p) p = $2 } END { print p }' "/proc/$child/status" 2>/dev/null || echo "$peak")
        sleep 0.02
    done
    wait "$child"
    end=$(date +%s.%N)
    seconds=$(awk -v a="$begin" -v b="$end" 'BEGIN { printf "%.2f", b - a }')
}
row() { # WHAT, then the words of rsync, "--", the words of tow
    local what=$1 theirs=()
    shift
    while [ "$1" != -- ]; do theirs+=("$1"); shift; done
    shift
    run rsync "${theirs[@]}"
    local rsync_seconds=$seconds
    run "$tow" "$@"
    echo "| $what | $rsync_seconds | $seconds | $((peak / 1024)) MiB |"
}

files=$(scale 100000) many=${MANY:-$(scale 1000000)}
for d in $(seq 100); do mkdir -p "small/$d"; done
seq "$files" | awk '{ f = "small/" (1 + $1 % 100) "/" $1; print "some text of file " $1 > f; close(f) }'
mkdir many
(cd many && seq "$many" | xargs touch)
head -c "$(scale 1073741824)" /dev/urandom > big
mkdir r t

echo "| what | rsync, s | tow, s | memory of tow |"
echo "|---|---|---|---|"
row "$files files of 20 bytes, local" -aHAX small/ r/local/ -- sync small/ t/local/
row "the same again, nothing to do" -aHAX small/ r/local/ -- sync small/ t/local/
row "$files files, push over ssh" -aHAX -e "$rsh" small/ "there:$work/r/push/" -- sync "${there[@]}" small/ "there:$work/t/push/"
row "the same again" -aHAX -e "$rsh" small/ "there:$work/r/push/" -- sync "${there[@]}" small/ "there:$work/t/push/"
row "$files files, pull over ssh" -aHAX -e "$rsh" "there:$work/small/" r/pull/ -- sync "${there[@]}" "there:$work/small/" t/pull/
row "$many empty files in one directory, local" -aHAX many/ r/many/ -- sync many/ t/many/
row "the same again, with --delete" -aHAX --delete many/ r/many/ -- sync --delete many/ t/many/
row "1 GiB, push, ssh and TLS" -aHAX -e "$rsh" big "there:$work/r/a" -- sync "${there[@]}" big "there:$work/t/a"
row "1 GiB, push, ssh alone" -aHAX -e "$rsh" big "there:$work/r/b" -- sync --via ssh "${there[@]}" big "there:$work/t/b"
rm -rf "$work/there" "$work/here" t/*
row "1 GiB, pull, ssh and TLS" -aHAX -e "$rsh" "there:$work/big" r/c -- sync "${there[@]}" "there:$work/big" t/c
