#!/usr/bin/env bash
# old-bash.sh TARGET: put the oldest bash that Debian's packages still offer at TARGET, to test the
# library with it; nothing is installed.  Exits 1 where there is none.
set -euo pipefail
target=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
# shellcheck disable=SC2016 # apt expands it
uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | head -n 1)
[[ -n $uri ]]
apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/sources" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Get::List-Cleanup=0)
for suite in wheezy jessie stretch buster bullseye; do
    echo "deb $uri $suite main" >"$work/sources"
    if (cd "$work" && "${apt[@]}" update && "${apt[@]}" download "bash/$suite") >"$work/log" 2>&1; then
        dpkg-deb --fsys-tarfile "$work"/bash_*.deb | tar -xO ./bin/bash >"$work/bash"
        chmod +x "$work/bash"
        "$work/bash" --version | head -n 1
        mkdir -p "$(dirname "$target")"
        mv "$work/bash" "$target"
        exit 0
    fi
done
exit 1
