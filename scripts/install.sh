#!/usr/bin/env bash
# Puts the program and what belongs to it in their places: install.sh PROGRAM PREFIX [DESTDIR]
# The manual pages and completions are printed by the program itself.
set -euo pipefail
program=$1 prefix=$2 root=${3-}
here=$(cd "$(dirname "$0")/.." && pwd)
share="$root$prefix/share"

install -D -m 0755 "$program" "$root$prefix/bin/tow"
# It looks for no home to print these, but wants one to be named.
tow() { env -i HOME=/nonexistent "$program" "$@"; }

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
tow man --write-to "$pages"
for page in "$pages"/*.1; do
    install -D -m 0644 "$page" "$share/man/man1/$(basename "$page")"
done

# Completions: shell, folder and name there.
while read -r shell file; do
    tow completions "$shell" >"$pages/completions"
    install -D -m 0644 "$pages/completions" "$share/$file"
done <<'FILES'
bash bash-completion/completions/tow
zsh zsh/site-functions/_tow
fish fish/vendor_completions.d/tow.fish
FILES

for unit in tow.service tow.socket tow-peers.socket tow-rendezvous.service tow-relay.service tow-vault.service; do
    sed "s|/usr/local/bin/tow|$prefix/bin/tow|" "$here/dist/systemd/$unit" >"$pages/unit"
    install -D -m 0644 "$pages/unit" "$root$prefix/lib/systemd/user/$unit"
done
install -D -m 0644 "$here/dist/config.toml" "$share/doc/tow/config.toml"
echo "installed under $root$prefix; the systemd units are for: systemctl --user"
