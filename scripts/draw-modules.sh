#!/usr/bin/env bash
# Draws a crate's top modules as SVG on standard output: an arrow means "uses", modules that use each other in a ring are red.
# Arrows that follow from others are left out. Needs Graphviz.
#   scripts/draw-modules.sh CRATE > CRATE.svg
set -euo pipefail
cd "$(dirname "$0")/.."

graph=$("${CARGO:-cargo}" run --quiet --locked --package towpath-gate -- --dot "$1" | sed -E 's/::[a-z_:0-9]*"/"/g')
edges=$(awk '$2 == "->" && $1";" != $3 { print $1, $2, $3 }' <<<"$graph" | sort -u)
# Who can reach itself through others is in a ring.
rings=$(awk '{ gsub(/[";]/, ""); to[$1] = to[$1] " " $3; all[$1] }
    function reaches(from, goal,    next_, i, n) {
        n = split(to[from], next_, " ")
        for (i = 1; i <= n; i++) {
            if (next_[i] == goal) return 1
            if (!(next_[i] in seen)) { seen[next_[i]]; if (reaches(next_[i], goal)) return 1 }
        }
        return 0
    }
    END { for (module in all) { delete seen; if (reaches(module, module)) printf "\"%s\" [color=red, fontcolor=red];\n", module } }' \
    <<<"$edges")
{
    echo 'digraph modules { rankdir=LR; ranksep=1; nodesep=0.1; node [shape=box, fontname="sans-serif", height=0.25]; edge [arrowsize=0.5, color="#00000080"];'
    echo "$edges"
    echo '}'
} | tred 2>/dev/null | sed "\$d" | { cat; echo "$rings"; echo '}'; } | dot -Tsvg
