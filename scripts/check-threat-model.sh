#!/usr/bin/env bash
# docs/threat-model.md ticks a line only if a test fails without the defence. So each ticked line names one at least,
# behind a dash, and whatever a line names there is here: a test, a fuzz target, a test vector or a path of this
# repository. Tests that the prose of other lines names must be here, too.
#   scripts/check-threat-model.sh [FILE]    checks another file instead, to see this script fail
# Needs nothing but bash, find, grep, sed and awk.
set -euo pipefail
cd "$(dirname "$0")/.."
document=${1:-docs/threat-model.md}

# Functions that are run as tests: below an attribute that says so, other attributes and comments between, or listed
# as situations of the program end to end.
tests() {
    find crates examples lab -name target -prune -o -name '*.rs' -print0 | xargs -0 awk '
        FNR == 1 { is_test = 0; is_list = 0 }
        /^situations!\[/ { is_list = 1; next }
        is_list && /\];/ { is_list = 0 }
        is_list { gsub(/[ \t]/, ""); sub(/\/\/.*/, ""); gsub(/,/, "\n"); print; next }
        /^[ \t]*#\[([a-z_]+::)*test[](]/ { is_test = 1; next }
        /^[ \t]*(#|\/\/)/ { next }
        is_test && match($0, /fn [A-Za-z0-9_]+/) { print substr($0, RSTART + 3, RLENGTH - 3) }
        { is_test = 0 }
    '
}

fuzz_targets() {
    sed -n 's|.*\bname: "\([a-z0-9_]*\)".*|\1|p' fuzz/src/lib.rs
}

vectors() {
    find docs/formats/vectors -type f | sed 's|.*/||'
}

# Each item of a list as one line: the number of its first line, then its text.
items() {
    awk '
        /^- \[[ x]\] / { if (text != "") print text; text = FNR " " $0; next }
        /^  / && text != "" { sub(/^ +/, " "); text = text $0; next }
        { if (text != "") print text; text = "" }
        END { if (text != "") print text }
    ' "$document"
}

# What stands in backticks.
quoted() {
    grep -o '`[^`]*`' | tr -d '`' || true
}

known=$( { tests; fuzz_targets; vectors; } | LC_ALL=C sort -u)
is_known() {
    grep -qxF -- "$1" <<<"$known" && return
    case $1 in
        */*) [ -e "$1" ] ;;
        *) return 1 ;;
    esac
}

failures=0
fail() {
    echo "check-threat-model: $document:$*" >&2
    failures=$((failures + 1))
}

ticked=0
while read -r line text; do
    # The names that count end with the sentence; what follows is prose, in which only the long ones are names of tests.
    names=$(sed -n 's/.* — //p' <<<"$text" | sed 's/\. [A-Z`].*//' | quoted)
    mentioned=$(quoted <<<"$text" | grep -xE '[a-z0-9]+(_[a-z0-9]+){2,}' || true)
    case $text in
        '- [x] '*)
            ticked=$((ticked + 1))
            [ -n "$names" ] || fail "$line: is ticked and names no test"
            ;;
        *) names= ;;
    esac
    while IFS= read -r name; do
        [ -z "$name" ] || is_known "$name" || fail "$line: '$name' is no test, fuzz target, vector or file here"
    done < <(printf '%s\n%s\n' "$names" "$mentioned" | LC_ALL=C sort -u)
done < <(items)

if [ "$failures" -gt 0 ]; then
    echo "check-threat-model: $failures names are missing" >&2
    exit 1
fi
echo "check-threat-model: the tests that $ticked ticked lines name are here"
