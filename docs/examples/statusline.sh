#!/usr/bin/env bash
# A statusline: one call to icctl, however much is shown.
#
#   statusline.sh                                 (Claude Code: statusLine)
#   statusline.sh [--watch] SESSION [DIRECTORY]
#
# Prints one line about the session, or with --watch a new line whenever it changes.
# Without SESSION, the agent's JSON on stdin tells session and directory; then the exit status is
# always 0, because an agent shows nothing at all after another one.
# DIRECTORY is the project's; the current directory if left out.
#
# This is for a line of your own; icctl statusline --from=claude has one ready, and is faster.
#
# icctl prints assignments of variables named INTERCORE_STATUS_..., all of them every time, with
# nothing but text in single quotes: they can be evaluated whatever the payloads hold.
# Without a database, and without a daemon, the variables are empty and the line is short.
#
# Exit status, with SESSION: that of icctl; 3 for a mistake in the arguments.
# Needs bash 4.4 or newer.

set -u

main() {
    local watch=()
    if [[ ${1-} == --watch ]]; then
        watch=(--watch)
        shift
    fi
    if (($# > 2)) || [[ $# == 0 && ${#watch[@]} != 0 ]]; then
        echo "usage: ${0##*/} [[--watch] SESSION [DIRECTORY]]" >&2
        exit 3
    fi
    if (($# == 0)); then
        # shellcheck source=/dev/null
        source "$(icctl lib-path 2>/dev/null)" 2>/dev/null || exit 0
        intercore_event
        set -- "$INTERCORE_SESSION" "${INTERCORE_CWD:-.}"
        trap 'exit 0' EXIT
    fi
    local line
    # Not a pipeline: if this shell is killed, its end of the pipe closes, and icctl ends as well.
    exec 3< <(icctl statusline --session "$1" --project "${2-.}" --format=sh "${watch[@]}")
    while IFS= read -r line <&3; do
        eval "$line"
        show
    done
    wait $!
}

# The most urgent thing first; what is empty is left out.
show() {
    local parts=()
    if [[ $INTERCORE_STATUS_DISPATCH_ALIVE == 1 ]]; then
        parts+=("$INTERCORE_STATUS_DISPATCH${INTERCORE_STATUS_DISPATCH_ACTIVITY:+ ($INTERCORE_STATUS_DISPATCH_ACTIVITY)}")
    fi
    if [[ -n $INTERCORE_STATUS_COORDINATION_COUNT ]]; then
        parts+=("$INTERCORE_STATUS_COORDINATION_COUNT agents${INTERCORE_STATUS_COORDINATION:+: $INTERCORE_STATUS_COORDINATION}")
    fi
    # A bead that nobody touched for a day is no longer what the session is about.
    if [[ -n $INTERCORE_STATUS_BEAD ]] && ((INTERCORE_STATUS_BEAD_AGE < 86400)); then
        parts+=("$INTERCORE_STATUS_BEAD${INTERCORE_STATUS_BEAD_PHASE:+ [$INTERCORE_STATUS_BEAD_PHASE]}")
    fi
    [[ -n $INTERCORE_STATUS_RUN ]] && parts+=("run $INTERCORE_STATUS_RUN [$INTERCORE_STATUS_RUN_PHASE]")
    [[ -n $INTERCORE_STATUS_LANE ]] && parts+=("lane $INTERCORE_STATUS_LANE")
    [[ -n $INTERCORE_STATUS_PRESSURE ]] && parts+=("pressure $INTERCORE_STATUS_PRESSURE")
    [[ -n $INTERCORE_STATUS_BUDGET ]] && parts+=("$INTERCORE_STATUS_BUDGET% of the budget")
    local text
    text=$(printf ' | %s' "${parts[@]}")
    printf '%s\n' "${text# | }"
}

main "$@"
