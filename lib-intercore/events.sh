# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Events.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_events_tail RUN [ARGUMENT...], intercore_events_tail_all [ARGUMENT...]
# Prints the events of a run, or all, as `icctl events tail` does.  0 also if unavailable; 2 could not
# tell.  Not through a helper: whose cursor moves must know that the lines have been written.
_intercore_events_tail() { _intercore_events_print tail ${1+"$@"}; }
_intercore_events_tail_all() { _intercore_events_print tail --all ${1+"$@"}; }

# intercore_events_cursor_get [-v VAR] CONSUMER
# Prints where a consumer is, as JSON; nothing if it has no cursor, or unavailable: 0.  2 could not
# tell.
_intercore_events_cursor_get() {
    local _intercore_to=- _intercore_status=0
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_call "$_intercore_to" events cursor get -- "${1-}" || _intercore_status=$?
    [[ $_intercore_status != 1 ]] || return 0
    _intercore_default 0 "$_intercore_status"
}

# intercore_events_cursor_set CONSUMER PHASE DISPATCH
# Says that a consumer has seen the events up to these ids.  0 done, or unavailable; 2 not done.
_intercore_events_cursor_set() {
    local _intercore_status=0
    _intercore_call . events cursor set "--phase=${2-}" "--dispatch=${3-}" -- "${1-}" ||
        _intercore_status=$?
    _intercore_default 0 "$_intercore_status"
}

# intercore_events_cursor_reset CONSUMER
# Forgets where a consumer was; prints reset or not found.  0 done, or unavailable; 2 not done.
_intercore_events_cursor_reset() {
    local _intercore_status=0
    _intercore_call - events cursor reset -- "${1-}" || _intercore_status=$?
    _intercore_default 0 "$_intercore_status"
}

# intercore_events_emit [-v VAR] TYPE CONTEXT [RUN]
# Records what came of a finding of a review, and prints the event's id.  0 also if unavailable, with
# nothing; 2 not recorded.
_intercore_events_emit() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 0 events emit "--type=${1-}" "--context=${2-}" ${3:+"--run=$3"}
}

# intercore_events_list_review [-v VAR] [SINCE] [LIMIT]
# Prints what came of findings, a JSON object a line; nothing if there is none, or unavailable: 0.  2
# could not tell.
_intercore_events_list_review() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 0 events list-review ${1:+"--since=$1"} ${2:+"--limit=$2"}
}

_intercore_events_print() {
    local _intercore_status=0
    _intercore_find || return 0
    (_intercore_become --if-database "--timeout=$INTERCORE_TIMEOUT" events "$@") ||
        _intercore_status=$?
    _intercore_default 0 "$_intercore_status"
}
