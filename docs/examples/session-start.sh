#!/usr/bin/env bash
# Tells a session that starts where the project stands: the run under way, its phase, and which work
# other sessions have claimed, or reserved to edit.
#
# Claude Code, Codex, Gemini: SessionStart.  Cursor: sessionStart.
#
# What it prints enters the model's context, in the dialect of the agent: text for Claude Code and
# Codex, JSON for Gemini and Cursor.  Where there is nothing to tell, it prints nothing.
# Commands that the agent runs later know the session, too: $CLAUDE_ENV_FILE, or "env" for Cursor.

set -uo pipefail
# shellcheck source=/dev/null
source "$(icctl lib-path 2>/dev/null)" 2>/dev/null || exit 0

intercore_event
cd -- "${INTERCORE_CWD:-.}" 2>/dev/null || exit 0
if [[ -n $INTERCORE_SESSION && -n ${CLAUDE_ENV_FILE-} && $INTERCORE_AGENT == claude ]]; then
    printf 'export INTERCORE_SESSION=%q\n' "$INTERCORE_SESSION" >>"$CLAUDE_ENV_FILE" 2>/dev/null
fi

# JSON without jq: a string between quotes.
quoted() {
    local text=$1
    text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//$'\n'/\\n} text=${text//$'\t'/\\t}
    printf '"%s"' "${text//[[:cntrl:]]/ }"
}

run='' phase='' claims='' held='' context=''
if intercore_run_current -v run 2>/dev/null && intercore_run_phase -v phase "$run" 2>/dev/null; then
    context="This project works on run $run, which is in the phase $phase."
fi
intercore_lease_list -v claims 2>/dev/null
while IFS=$'\t' read -r name scope owner _; do
    [[ -n $owner && $owner != "$INTERCORE_SESSION" ]] || continue
    context+="${context:+$'\n'}Session $owner has claimed $name $scope: leave it alone."
done <<<"$claims"
intercore_coordination_list -v held 2>/dev/null
while IFS=$'\t' read -r _ owner _ _ files _; do
    [[ -n $owner && $owner != "$INTERCORE_SESSION" ]] || continue
    context+="${context:+$'\n'}Session $owner is editing $files: leave it alone."
done <<<"$held"
[[ -n $context ]] || exit 0

case $INTERCORE_AGENT in
    gemini)
        printf '{"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": %s}}\n' \
            "$(quoted "$context")" ;;
    cursor)
        printf '{"additional_context": %s, "env": {"INTERCORE_SESSION": %s}}\n' \
            "$(quoted "$context")" "$(quoted "$INTERCORE_SESSION")" ;;
    *) printf '%s\n' "$context" ;;
esac
