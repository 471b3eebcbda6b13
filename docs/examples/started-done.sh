#!/usr/bin/env bash
# Run a command once per session, and finish it after a crash.
#
#   started-done.sh SESSION COMMAND [ARGUMENT]...
#
# A sentinel alone is not enough for work that must complete.
# `icctl sentinel check` makes its claim before the work begins.
# If the process dies after it was told "allowed", the claim stands and every retry is throttled.
#
# So the work keeps a row of state beside the sentinel:
#
#   no row     nobody got as far as starting
#   "started"  with the process that started; if that process is gone, it crashed
#   "done"     nothing is left to do
#
# Every change of the row names the version that it replaces (--if-version).
# Of two retries that find the same crash, one writes version N+1 and the other is refused.
# No row counts as version 0, so the first run and a retry cannot both start either.
#
# What this promises: COMMAND runs until it has succeeded once, and never twice at the same time.
# What it cannot promise: a crash after COMMAND succeeded and before "done" was written repeats it.
# COMMAND should therefore bear to be repeated.
# If only this script is killed, COMMAND may outlive it, and a retry would not know.
#
# The process is known by its pid, its start time and the boot, because pids are used again.
# This needs Linux, and callers that see each other's processes in /proc.
#
# The row is kept for ever, like the sentinel: a "done" that expired would look like a crash.
# To run again on purpose:
#
#   icctl state delete started-done SESSION; icctl sentinel reset started-done SESSION
#
# Exit status: that of COMMAND if it ran; 0 if there was nothing to do; 2 if icctl could not tell.

set -u

name='started-done'

main() {
    if (($# < 2)); then
        echo "usage: ${0##*/} SESSION COMMAND [ARGUMENT]..." >&2
        exit 3
    fi
    session=$1
    shift
    icctl sentinel check "$name" "$session" --interval=0 >/dev/null
    case $? in
        0) start 0 "first run" ;;
        1) resume ;;
        *) exit 2 ;;
    esac
    finish "$@"
}

# Somebody was here before us: leave, or take over what a dead process left.
resume() {
    local row payload version pid
    row=$(icctl state get "$name" "$session" --json)
    case $? in
        0) ;;
        1) start 0 "claimed, but never started" && return ;;
        *) exit 2 ;;
    esac
    if ! [[ $row =~ \"payload\":\"([^\"]*)\".*\"version\":([0-9]+) ]]; then
        echo "$name: the row of $session was written by something else: $row" >&2
        exit 2
    fi
    payload=${BASH_REMATCH[1]} version=${BASH_REMATCH[2]}
    if [[ $payload == "done" ]]; then
        leave "done already"
    fi
    pid=${payload#started }
    pid=${pid%% *}
    if [[ $payload == "started $(identity "$pid")" ]]; then
        leave "process $pid is at it"
    fi
    start "$version" "process $pid did not finish"
}

# start VERSION REASON: become the one who runs, or leave if another process was faster.
start() {
    local answer
    answer=$(icctl state set "$name" "$session" --value "\"started $(identity $$)\"" \
        --if-version "$1" --json 2>&1)
    case $? in
        0) ;;
        1) leave "another process was faster" ;;
        *) echo "$answer" >&2 && exit 2 ;;
    esac
    [[ $answer =~ \"version\":([0-9]+) ]] && started=${BASH_REMATCH[1]}
    echo "running: $2"
}

finish() {
    "$@"
    local status=$?
    if ((status != 0)); then
        echo "failed: exit $status; the next run tries again"
        exit "$status"
    fi
    icctl state set "$name" "$session" --value '"done"' --if-version "$started" || exit 2
    echo "done"
}

leave() {
    echo "skipped: $1"
    exit 0
}

# identity PID: pid, start time and boot of a living process; nothing for one that is gone.
identity() {
    local stat fields boot
    { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return
    # The second field is the program's name, which may hold spaces and parentheses.
    read -ra fields <<<"${stat##*) }"
    [[ ${fields[0]} == [ZX] ]] && return
    read -r boot </proc/sys/kernel/random/boot_id
    echo "$1 ${fields[19]} $boot"
}

main "$@"
