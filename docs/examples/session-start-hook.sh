#!/usr/bin/env bash
# A session-start hook: remembers where the session works, and greets once per session.
#
#   session-start-hook.sh SESSION

set -uo pipefail
# shellcheck source=/dev/null
source "$(icctl lib-path 2>/dev/null)" 2>/dev/null || exit 0

session=${1:?a session}
branch=$(git rev-parse --abbrev-ref HEAD 2>/dev/null) || branch=none

# JSON without jq: the branch of git may hold quotes and backslashes.
branch=${branch//\\/\\\\} branch=${branch//\"/\\\"}
intercore_state_set session "$session" "{\"branch\":\"$branch\",\"pid\":$PPID}" 24h

# Several guards, one call: which of them are due?
due=
intercore_sentinel_check_many -v due "greeting:$session:0" "news:$session:86400"
while IFS=$'\t' read -r name _ verdict; do
    [[ $verdict == allowed ]] || continue
    case $name in
        greeting) echo "welcome, session $session on $branch" ;;
        news) echo "see CHANGELOG.md for what is new" ;;
    esac
done <<<"$due"
