#!/usr/bin/env bash
# Feeds every parser random and changed valid inputs for some seconds each (default 2): a quick look
# that needs nothing but the stable compiler. For a long one: `cargo +nightly fuzz run --features
# libfuzzer NAME` in fuzz/, with `cargo install cargo-fuzz`.
set -euo pipefail
cd "$(dirname "$0")/.."

# The workspace's target directory, so that what is built there is not built again.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
exec "${CARGO:-cargo}" run --quiet --locked --manifest-path fuzz/Cargo.toml --bin smoke -- "${1:-2}" ${2:+"$2"}
