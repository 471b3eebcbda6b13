#!/usr/bin/env bash
# A stop guard: an agent that has left something open is asked once to go on.
#
# Claude Code, Codex: Stop.  Gemini: AfterAgent.  Cursor: stop.
#
# What is open is a row of state, which the agent, another hook or you set and delete:
#
#   icctl state set open-work SESSION --value '"the tests are red"' --ttl=1d
#   icctl state delete open-work SESSION
#
# It blocks at most once in ten minutes per session, so that no agent goes round in circles.
# Blocking is exit 2 with the reason on stderr; for Cursor, a message to follow up with on stdout.
# Whatever is wrong with intercore, the agent may stop: exit 0.

set -uo pipefail
# shellcheck source=/dev/null
source "$(icctl lib-path 2>/dev/null)" 2>/dev/null || exit 0

intercore_event
[[ -n $INTERCORE_SESSION ]] || exit 0 # sessions without an id would share one row
cd -- "${INTERCORE_CWD:-.}" 2>/dev/null || exit 0

open=
intercore_state_get -v open open-work "$INTERCORE_SESSION" || exit 0
[[ -n $open ]] || exit 0
intercore_sentinel_check stop-guard "$INTERCORE_SESSION" 600 || exit 0

if [[ $INTERCORE_AGENT == cursor ]]; then
    # A payload is JSON: it can stand in JSON as it is, with its quotes escaped once more.
    open=${open//\\/\\\\} open=${open//\"/\\\"}
    printf '{"followup_message": "Not finished yet: %s"}\n' "$open"
    exit 0
fi
printf 'Not finished yet: %s\n' "$open" >&2
exit 2
