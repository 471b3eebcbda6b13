#!/usr/bin/env bash
# A Stop hook that acts once per session, however many hooks stop at the same time.
#
# Reads the event from stdin, as agents send it: {"session_id": "...", ...}.
# Exit status 0: an agent takes 2 for "do not stop".

set -uo pipefail
# shellcheck source=/dev/null
source "$(icctl lib-path 2>/dev/null)" 2>/dev/null || exit 0

event=$(cat)
session=$(printf '%s' "$event" | sed -n 's/.*"session_id"[[:space:]]*:[[:space:]]*"\([^"]*\)".*/\1/p')
[[ -n $session ]] || exit 0 # sessions without an id would share one guard

# All stop hooks share this guard; whoever claims it acts, the others leave here.
intercore_check_or_die "$INTERCORE_STOP_DEDUP_SENTINEL" "$session" 0 "/tmp/clavain-stop-$session"

intercore_state_incr -v turns turns "$session" 1 24h || turns='?'
intercore_cleanup_stale
echo "session $session stopped after turn $turns"
