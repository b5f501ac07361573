#!/usr/bin/env bash
# Feeds every parser of bytes from outside the inputs that are kept for it (fuzz/corpus) and then random and changed
# valid ones: a quick look that needs nothing but the stable compiler.
#   scripts/fuzz-smoke.sh [SECONDS [SEED [NAME...]]]    SECONDS for each; without, all take a minute together
#   scripts/fuzz-smoke.sh --seeds FOLDER                valid inputs as files, for libFuzzer
# `cargo test` runs it too, and builds the same program.
# For a long one, with `cargo install cargo-fuzz`, in fuzz/: `cargo +nightly fuzz run --features libfuzzer NAME
# ../target/corpus/NAME corpus/NAME`, after `--seeds target/corpus`. What is new comes into the first folder, which is
# no part of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-$PWD/target}"
"${CARGO:-cargo}" test --quiet --workspace --locked --no-run --test smoke
exec "$target/debug/smoke" "$@"
