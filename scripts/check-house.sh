#!/usr/bin/env bash
# The rules of the house that no compiler checks: which crate may know which, what the lowest one may
# use, where unsafe code may be, that each file opens with what it is about, and that the fuzz targets are complete.
# Needs nothing but bash, grep, sed and awk. Why the rules are so: docs/design/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

failures=0
fail() {
    echo "check-house: $*" >&2
    failures=$((failures + 1))
}

# Each crate with the crates of this workspace it may know: all of them below it.
below() {
    case $1 in
        content | api | simnet | byte-store | lan | crew | vault-difference) echo "" ;;
        object-storage) echo "byte-store" ;;
        link | files | codes | vault-format) echo "content" ;;
        vault-protocol) echo "content link vault-format" ;;
        vault-server) echo "content byte-store link vault-format vault-protocol" ;;
        rendezvous | relay) echo "content link" ;;
        rendezvous-nats) echo "content rendezvous" ;;
        handover) echo "content lan codes link rendezvous" ;;
        store) echo "content byte-store" ;;
        transfer | disk-search) echo "content store" ;;
        transfer-conformance) echo "content store transfer" ;;
        protocol-messages) echo "content link store transfer processors" ;;
        processors) echo "content store transfer" ;;
        protocol) echo "content link store transfer processors protocol-messages" ;;
        reuse) echo "content disk-search link store files transfer protocol" ;;
        dealer) echo "transfer" ;;
        plugins) echo "content disk-search link relay store transfer dealer protocol reuse mirror" ;;
        targets) echo "content api store files transfer" ;;
        ssh) echo "content api link files protocol plugins targets" ;;
        sync-messages) echo "content api link store files transfer protocol ssh" ;;
        sync-sender) echo "content api link store files transfer protocol reuse targets sync-messages" ;;
        sync) echo "content disk-search api link store files transfer processors protocol reuse mirror plugins targets ssh sync-messages sync-sender" ;;
        config) echo "content byte-store files store protocol plugins" ;;
        limits) echo "content api config" ;;
        confinement) echo "content config" ;;
        words) echo "content api byte-store link store files transfer ssh sync-messages" ;;
        indexing) echo "content disk-search api store files reuse targets config words" ;;
        mirror) echo "content link store transfer protocol" ;;
        service) echo "content disk-search api link rendezvous relay store files transfer processors protocol reuse mirror plugins targets ssh sync config limits confinement words indexing peer-server byte-store object-storage" ;;
        peer-server) echo "content api link rendezvous relay store files transfer protocol plugins ssh config limits words" ;;
        standalone) echo "content api byte-store store files codes link rendezvous rendezvous-nats relay handover mirror ssh config peer-server words vault-protocol vault-server" ;;
        vault-holders) echo "content link transfer dealer vault-format vault-protocol" ;;
        vault) echo "content crew files link vault-difference vault-format vault-protocol vault-holders" ;;
        doctor) echo "content api lan link rendezvous relay config peer-server" ;;
        api-server) echo "content api store words service" ;;
        cli) echo "api content config confinement words service standalone doctor vault api-server" ;;
        *) return 1 ;;
    esac
}

# From the ground up: tests of a crate may use any crate that stands before it.
order="content api crew simnet byte-store object-storage lan codes link vault-difference vault-format vault-protocol vault-server rendezvous rendezvous-nats relay handover store files disk-search transfer transfer-conformance dealer processors protocol-messages protocol reuse mirror vault-holders vault plugins targets ssh sync-messages sync-sender sync config limits confinement words indexing peer-server service standalone doctor api-server cli"

# Names in the dependency sections of a manifest: those of the program, or with "dev" those of its tests.
dependencies() {
    awk -v dev="${2:-}" '
        /^\[/ { use = /dependencies/ && ((dev == "dev") == /dev-dependencies/)
                if (use && match($0, /dependencies\.[A-Za-z0-9_-]+/)) print substr($0, RSTART + 13, RLENGTH - 13); next }
        use && /^[A-Za-z0-9_-]+[ .=]/ { sub(/[ .=].*/, ""); print }
    ' "$1"
}

for manifest in crates/*/Cargo.toml; do
    # Folders have an underscore where packages have a hyphen.
    crate=$(basename "$(dirname "$manifest")" | tr _ -)
    if ! allowed=$(below "$crate"); then
        fail "$manifest: '$crate' is new; say in scripts/check-house.sh which crates lie below it"
        continue
    fi
    # Renaming a dependency would hide it from this script.
    if grep -qE '(^|[{,])[[:space:]]*package[[:space:]]*=' "$manifest"; then
        fail "$manifest: a dependency is renamed"
    fi
    for name in $(dependencies "$manifest"); do
        [[ $name != towpath* || " $allowed " == *" ${name#towpath-} "* ]] ||
            fail "$manifest: '$crate' must not know '$name'"
    done
    before=" $order "
    before="${before%%" $crate "*} "
    for name in $(dependencies "$manifest" dev); do
        [[ $name != towpath* || $before == *" ${name#towpath-} "* ]] ||
            fail "$manifest: tests of '$crate' must not use '$name', which is not below it"
    done
    if ! grep -A1 '^\[lints\]' "$manifest" | grep -q '^workspace = true'; then
        fail "$manifest: does not take the lints of the workspace"
    fi
done

# The lowest crate decides and names; it has no I/O, no clock and no async.
for name in $(dependencies crates/content/Cargo.toml); do
    case $name in
        blake3 | fastcdc | ring | thiserror) ;;
        *) fail "crates/content/Cargo.toml: '$name' is not on the list of what content may use" ;;
    esac
done
impure=$(grep -rnE 'std::(fs|net|os|time|thread|process|env)\b|\basync fn\b|\.await\b' crates/content/src \
    --include='*.rs' | grep -vE '^[^:]*/(tests/[^:]*|tests|vectors)\.rs:' || true)
if [ -n "$impure" ]; then
    fail "crates/content must have no I/O, clock, threads or async:"
    echo "$impure" >&2
fi

unsafe=$(grep -rnE '(allow|expect)\([^)]*unsafe_code' crates lab --include='*.rs' | grep -vE '^crates/(link/src|files/src/metadata|disk_search/src|vault_difference/src/boundaries)/kernel\.rs:' || true)
if [ -n "$unsafe" ]; then
    fail "unsafe code is allowed in kernel.rs of crates/link/src, crates/files/src/metadata, crates/disk_search/src and crates/vault_difference/src/boundaries only:"
    echo "$unsafe" >&2
fi

while IFS= read -r file; do
    case $file in */tests.rs | */tests/*) continue ;; esac
    head -n 1 "$file" | grep -q '^//! ' || fail "$file: does not open with a '//!' comment that says what it is about"
done < <(find crates/*/src gate/src lab/src fuzz/src -name '*.rs' | LC_ALL=C sort)

# Each fuzz target has a program, and each program and folder of kept inputs a target.
targets=$(sed -n 's|.*\bname: "\([a-z0-9_]*\)".*|\1|p' fuzz/src/lib.rs | LC_ALL=C sort)
differs() {
    names=$(LC_ALL=C sort -u | LC_ALL=C comm "$1" - <(echo "$targets") | tr -d '\t' | paste -sd ' ')
    [ -z "$names" ] || fail "$2: $names"
}
differs -3 "fuzz/src/lib.rs and fuzz/fuzz_targets differ" \
    < <(find fuzz/fuzz_targets -name '*.rs' | sed 's|.*/||; s|\.rs$||')
differs -3 "fuzz/src/lib.rs and fuzz/Cargo.toml differ" \
    < <(sed -n 's|^path = "fuzz_targets/\(.*\)\.rs"$|\1|p' fuzz/Cargo.toml)
differs -23 "fuzz/corpus has folders of no target" \
    < <(find fuzz/corpus -mindepth 1 -maxdepth 1 | sed 's|.*/||')

if [ "$failures" -gt 0 ]; then
    echo "check-house: $failures of the house rules are broken" >&2
    exit 1
fi
echo "check-house: crates, purity, unsafe code, file heads and fuzz targets are as they should be"
