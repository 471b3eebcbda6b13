#!/usr/bin/env bash
# An edit hook: counts edits per session, and reminds at most every five minutes.
#
#   edit-hook.sh SESSION FILE

set -uo pipefail
# shellcheck source=/dev/null
source "$(icctl lib-path 2>/dev/null)" 2>/dev/null || exit 0

session=${1:?a session} file=${2:?a file}

# A counter per hour: its first edit starts the hour.
edits=0
intercore_state_incr -v edits edits "$session" 1 1h || exit 0

# 0 allowed, 1 throttled; 2 could not tell: then rather no reminder than many.
if intercore_sentinel_check edit_remind "$session" 300; then
    echo "$edits edits within the hour, the last in $file: time to commit?"
fi
