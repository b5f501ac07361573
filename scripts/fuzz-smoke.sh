#!/usr/bin/env bash
# Feeds every parser of bytes from outside the inputs that are kept for it (fuzz/corpus) and then random and changed
# valid ones: a quick look that needs nothing but the stable compiler.
#   scripts/fuzz-smoke.sh [SECONDS [SEED [NAME...]]]    SECONDS for each; without, all take a minute together
#   scripts/fuzz-smoke.sh --seeds FOLDER                valid inputs as files, for libFuzzer
# For a long one, with `cargo install cargo-fuzz`, in fuzz/: `cargo +nightly fuzz run --features libfuzzer NAME
# target/corpus/NAME corpus/NAME`, after `--seeds fuzz/target/corpus`. What is new comes into the first folder, which is
# no part of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

# The workspace's target directory, so that what is built there is not built again.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
exec "${CARGO:-cargo}" run --quiet --locked --manifest-path fuzz/Cargo.toml --bin smoke -- "$@"
