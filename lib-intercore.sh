# shellcheck shell=bash
# lib-intercore.sh: intercore for bash hooks.  Use it by: source "$(icctl lib-path)"
#
# Sourcing prints nothing, runs nothing, and defines only intercore_*, _intercore_* and INTERCORE_*.
# What all of them promise stands behind the core, where bash does not read it.

# shellcheck disable=SC2034 # for those who source this
INTERCORE_LIB_VERSION=2.0.0 INTERCORE_STOP_DEDUP_SENTINEL=stop
# The total time of a call: hooks are often killed after five seconds.
: "${INTERCORE_TIMEOUT:=3s}"

_intercore_unavailable=69
# A shell that sources this twice keeps what there is, but no other shell may inherit it.
if [[ ${_intercore_shell-} != "$$" ]]; then
    _intercore_shell=$$
    _intercore_program= # what INTERCORE_BIN, `_intercore_asked`, came to
    _intercore_asked=
    _intercore_helper=  # its pid; before, `next` if the next call starts it; `none` if there can be none
    _intercore_pipes=   # its directory
    _intercore_world=   # what it was started with
    _intercore_busy=    # a call is on its way: a trap must not write in between
    _intercore_heard=   # the agent's event was read: stdin has it only once
fi

# --- one command ---

# _intercore_call TO ARGUMENT...
# Run icctl; TO says where its stdout goes: `-` nowhere else, `.` is dropped, or a variable's name.
# What `_intercore_stdin` holds is its input.  `_intercore_alone` asks for a process of its own, and
# `unlimited` for one without a deadline.  The status is icctl's, or 69 if it is unavailable.
_intercore_call() {
    local _intercore_to=$1 _intercore_out='' _intercore_status=0
    shift
    if [[ $_intercore_to != [-.] ]]; then
        if [[ $_intercore_to == *[!a-zA-Z0-9_]* ]] && ! _intercore_late element check "$_intercore_to"; then
            printf '%s\n' "intercore: not the name of a variable: $_intercore_to" >&2
            return 3
        fi
        printf -v "$_intercore_to" '' || return 3
    fi
    [[ -n $_intercore_program && $_intercore_asked == "${INTERCORE_BIN-}" ]] || _intercore_find ||
        return "$_intercore_unavailable"
    if [[ ${_intercore_alone-} == unlimited ]]; then
        set -- --if-database "$@"
    else
        set -- --if-database "--timeout=$INTERCORE_TIMEOUT" "$@"
    fi
    if [[ -n $_intercore_helper && -z ${_intercore_alone-} ]] && _intercore_is_helped "$@"; then
        _intercore_ask "$@" || _intercore_status=$?
        [[ $_intercore_to != - || -z $_intercore_out ]] || printf '%s\n' "$_intercore_out" ||
            _intercore_status=2
    else
        # Not the first call: most hooks make no other, and a helper costs as much as half of it.
        [[ -n $_intercore_helper || -n ${_intercore_alone-} ]] || _intercore_helper=next
        case $_intercore_to in
            -) (_intercore_become "$@") || _intercore_status=$? ;;
            .) (_intercore_become "$@") >/dev/null || _intercore_status=$? ;;
            *) _intercore_out=$(_intercore_become "$@") || _intercore_status=$? ;;
        esac
    fi
    [[ $_intercore_to == [-.] ]] || printf -v "$_intercore_to" '%s' "$_intercore_out"
    return "$_intercore_status"
}

# Find the program: INTERCORE_BIN, or icctl or ic on the PATH or in ~/.local/bin.
_intercore_find() {
    [[ -z $_intercore_program || $_intercore_asked != "${INTERCORE_BIN-}" ]] || return 0
    local _intercore_name _intercore_path _intercore_file
    for _intercore_name in ${INTERCORE_BIN:+"$INTERCORE_BIN"} icctl ic; do
        _intercore_path=${PATH-}:${HOME-}/.local/bin:
        [[ $_intercore_name != */* ]] || _intercore_path=:
        while [[ -n $_intercore_path ]]; do
            _intercore_file=${_intercore_path%%:*}/$_intercore_name
            [[ $_intercore_name != */* ]] || _intercore_file=$_intercore_name
            [[ $_intercore_file == /* ]] || _intercore_file=${PWD-}/$_intercore_file
            if [[ -f $_intercore_file && -x $_intercore_file ]]; then
                : "${INTERCORE_BIN:=$_intercore_file}"
                _intercore_program=$_intercore_file _intercore_asked=$INTERCORE_BIN
                return 0
            fi
            _intercore_path=${_intercore_path#*:}
        done
        [[ -z ${INTERCORE_BIN-} ]] || return 1
    done
    return 1
}

# Become the program: only for subshells.
_intercore_become() {
    export INTERCORE_DB INTERCORE_MODE INTERCORE_SOCKET INTERCORE_LOCK_DIR INTERCORE_SESSION \
        CLAUDE_SESSION_ID
    if [[ -n ${_intercore_stdin-} ]]; then
        exec "$_intercore_program" "$@" <<<"$_intercore_stdin"
    else
        exec "$_intercore_program" "$@"
    fi
}

# The session of this shell, in `_intercore_id`: the first of these variables that is set, as for
# icctl (SESSION_VARIABLES in icd/app/invocation.py).
_intercore_whose() {
    _intercore_id=${INTERCORE_SESSION:-${CLAUDE_SESSION_ID:-${CLAUDE_CODE_SESSION_ID:-}}}
    : "${_intercore_id:=${CODEX_THREAD_ID:-${GEMINI_SESSION_ID:-}}}"
}

# --- the helper: see icctl/helper.c for what is written and read ---

# Whether a call goes through a helper.
_intercore_is_helped() {
    [[ $BASHPID == "$$" && $_intercore_shell == "$$" && -z $_intercore_busy ]] || return 1
    [[ $_intercore_helper != none && . -ef ${PWD-} && ${BASH_XTRACEFD-} != [89] ]] || return 1
    local _intercore_all="$*"
    (( ${#_intercore_all} < 14000 )) || return 1 # a pipe holds 64 KiB, a character has up to 4 bytes
    [[ -e /proc/$_intercore_helper &&
        $_intercore_world == "${INTERCORE_SOCKET-} ${INTERCORE_MODE-} $_intercore_program" ]] ||
        _intercore_late helper ready 2>/dev/null # if it cannot be read, a process does as well
}

# --- is it there? ---

# intercore_available
# 0 a program is found and the database answers; 1 otherwise, with a line on stderr if it is broken.
intercore_available() {
    _intercore_call . health || return 1
}

# --- state ---

# intercore_state_set KEY SCOPE JSON [TTL]
# 0 written, or unavailable; 2 not written, whatever the reason; 3 a mistake in the arguments.
intercore_state_set() {
    local _intercore_value=${3-} _intercore_stdin='' _intercore_status=0
    # A command line holds 128 KiB in one word, a pipe 64 KiB at once; a character has up to 4 bytes.
    if (( ${#_intercore_value} < 12000 )); then
        _intercore_value=--value=$_intercore_value
    else
        _intercore_stdin=$_intercore_value _intercore_value=
    fi
    _intercore_call . state set ${4:+"--ttl=$4"} ${_intercore_value:+"$_intercore_value"} \
        -- "${1-}" "${2-}" || _intercore_status=$?
    [[ $_intercore_status != 1 ]] || return 2 # bash itself could not pass the value on
    _intercore_default 0 "$_intercore_status"
}

# intercore_state_get [-v VAR] KEY SCOPE
# Prints the payload, or nothing if there is none or it is unavailable: 0.  2 could not tell.
intercore_state_get() {
    local _intercore_to=- _intercore_status=0
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_call "$_intercore_to" state get -- "$@" || _intercore_status=$?
    [[ $_intercore_status != 1 ]] || return 0
    _intercore_default 0 "$_intercore_status"
}

# --- sentinels: throttle guards ---

# intercore_sentinel_check NAME SCOPE INTERVAL
# 0 allowed, or unavailable; 1 throttled; 2 or more: could not tell.
intercore_sentinel_check() {
    _intercore_call . sentinel check --interval="${3-}" -- "${1-}" "${2-}" || _intercore_default 0 "$?"
}

# intercore_sentinel_check_or_legacy NAME SCOPE INTERVAL FILE
# As intercore_sentinel_check; unavailable: FILE is the guard, claimed by mkdir, aged by its mtime.
intercore_sentinel_check_or_legacy() {
    local _intercore_status=0
    _intercore_call . sentinel check --interval="${3-}" -- "${1-}" "${2-}" || _intercore_status=$?
    [[ $_intercore_status == "$_intercore_unavailable" ]] || return "$_intercore_status"
    _intercore_late legacy claim "${4-}" "${3-}"
}

# intercore_check_or_die NAME SCOPE INTERVAL [FILE]
# Throttled: ends the calling script with `exit 0`.  Else 0, also if it could not tell: a hook goes
# on rather than block its user, and the reason stands on stderr.
intercore_check_or_die() {
    local _intercore_status=0
    if [[ -n ${4-} ]]; then
        intercore_sentinel_check_or_legacy "$@" || _intercore_status=$?
    else
        intercore_sentinel_check "$@" || _intercore_status=$?
    fi
    [[ $_intercore_status != 1 ]] || exit 0
    return 0
}

# --- what the functions share ---

# The status of a call, or a default if it is unavailable.
_intercore_default() {
    [[ $2 == "$_intercore_unavailable" ]] && return "$1"
    return "$2"
}

# _intercore_remove STATUS GLOB: unavailable: remove the legacy files.  0 always.
_intercore_remove() {
    [[ $1 != "$_intercore_unavailable" || -z $2 ]] || _intercore_late legacy remove "$2" || return 0
}

# _intercore_answer DEFAULT ARGUMENT...
# What icctl prints goes where `_intercore_to` says; its status, or the default if it is unavailable.
_intercore_answer() {
    local _intercore_otherwise=$1 _intercore_status=0
    shift
    _intercore_call "$_intercore_to" "$@" || _intercore_status=$?
    _intercore_default "$_intercore_otherwise" "$_intercore_status"
}

_intercore_mtime() {
    command stat -c %Y -- "$1" 2>/dev/null
}

# --- the parts: what few hooks use is read when it is called; see ADR 15 ---

_intercore_known= # parts that have been read; none of this version when this is sourced
_intercore_core=1 # raised when a part could not do with the core of another version

# _intercore_late PART NAME ARGUMENT...: run _intercore_PART_NAME, which is in a part.
_intercore_late() {
    local _intercore_function=_intercore_$1_$2
    # A shell that was handed the variables under `set -a` need not have been handed the functions.
    if [[ ${_intercore_known-} != *" $1 "* ]] || ! declare -F "$_intercore_function" >/dev/null; then
        if ! _intercore_read "$1"; then
            printf '%s\n' "intercore: bash cannot read lib-intercore/$1.sh; are there too many open files, or was intercore removed?" >&2
            return 2
        fi
        _intercore_known+=" $1 "
    fi
    shift 2
    "$_intercore_function" "$@"
}

# Read a part as it was written: without what the caller's aliases would make of it.
_intercore_read() {
    local _intercore_status=0 _intercore_aliases=-u
    if shopt -q expand_aliases; then _intercore_aliases=-s; fi
    shopt -u expand_aliases
    _intercore_bring "$1" 2>/dev/null || _intercore_status=$?
    shopt "$_intercore_aliases" expand_aliases
    return "$_intercore_status"
}

# From beside this file, or else from its own end.  If another version was installed meanwhile, all
# of that one: parts of two would not fit.
_intercore_bring() {
    if [[ -n ${_intercore_parts-} ]]; then
        _intercore_parse <"$_intercore_parts/$1.sh" && return
        local _intercore_whole=yes
        command source "$_intercore_parts.sh" || return
    fi
    "_intercore_text_$1"
}

# Parse stdin.  `source` opens it by its name, which is not there in every sandbox.
_intercore_parse() {
    command source /dev/stdin && return
    local _intercore_text=''
    IFS= read -r -d '' _intercore_text || :
    [[ -n $_intercore_text ]] && eval "$_intercore_text"
}

intercore_state_incr() { _intercore_late state incr "$@"; }
intercore_state_delete_all() { _intercore_late state delete_all "$@" || return 0; }
intercore_sentinel_check_many() { _intercore_late sentinel check_many "$@"; }
intercore_sentinel_reset_or_legacy() { _intercore_late sentinel reset_or_legacy "$@" || return 0; }
intercore_sentinel_reset_all() { _intercore_late sentinel reset_all "$@" || return 0; }
intercore_cleanup_stale() { _intercore_late sentinel clean "$@" || return 0; }
intercore_event() { _intercore_late event take "$@" || return 0; }
intercore_events_tail() { _intercore_late events tail "$@"; }
intercore_events_tail_all() { _intercore_late events tail_all "$@"; }
intercore_events_cursor_get() { _intercore_late events cursor_get "$@"; }
intercore_events_cursor_set() { _intercore_late events cursor_set "$@"; }
intercore_events_cursor_reset() { _intercore_late events cursor_reset "$@"; }
intercore_events_emit() { _intercore_late events emit "$@"; }
intercore_events_list_review() { _intercore_late events list_review "$@"; }
intercore_lock_available() { :; }
intercore_lock() { _intercore_late lock take "$@"; }
intercore_unlock() { _intercore_late lock release "$@" || return 0; }
intercore_lock_clean() { _intercore_late lock clean "$@" || return 0; }
intercore_lease_acquire() { _intercore_late lease acquire "$@"; }
intercore_lease_renew() { _intercore_late lease renew "$@"; }
intercore_lease_release() { _intercore_late lease release "$@"; }
intercore_lease_list() { _intercore_late lease list "$@"; }
intercore_coordination_reserve() { _intercore_late coordination reserve "$@"; }
intercore_coordination_check() { _intercore_late coordination check "$@"; }
intercore_coordination_release() { _intercore_late coordination release "$@"; }
intercore_coordination_list() { _intercore_late coordination list "$@"; }
intercore_lane_create() { _intercore_late lane create "$@"; }
intercore_lane_sync() { _intercore_late lane sync "$@"; }
intercore_lane_status() { _intercore_late lane show status "$@"; }
intercore_lane_members() { _intercore_late lane show members "$@"; }
intercore_run_create() { _intercore_late run pass 2 run create "$@"; }
intercore_run_list() { _intercore_late run pass 2 run list "$@"; }
intercore_run_status() { _intercore_late run pass 2 run status "$@"; }
intercore_run_snapshot() { _intercore_late run pass 2 run snapshot "$@"; }
intercore_run_set() { _intercore_late run pass 2 run set "$@"; }
intercore_run_agent_list() { _intercore_late run pass 3 run agent list "$@"; }
intercore_run_agent_update() { _intercore_late run pass 3 run agent update "$@"; }
intercore_run_current() { _intercore_late run current "$@"; }
intercore_run_phase() { _intercore_late run phase "$@"; }
intercore_run_advance() { _intercore_late run advance "$@"; }
intercore_run_skip() { _intercore_late run skip "$@"; }
intercore_run_agent_add() { _intercore_late run agent_add "$@"; }
intercore_run_artifact_add() { _intercore_late run artifact_add "$@"; }
intercore_run_action_add() { _intercore_late run action_add "$@"; }
intercore_run_action_list() { _intercore_late run action_list "$@"; }
intercore_run_action_update() { _intercore_late run action_update "$@"; }
intercore_run_action_delete() { _intercore_late run action_delete "$@"; }
intercore_run_tokens() { _intercore_late run pass 3 run tokens --json "$@"; }
intercore_run_budget() { _intercore_late run pass 3 run budget --json "$@"; }
intercore_run_rollback() { _intercore_late run rollback "$@"; }
intercore_run_rollback_dry() { _intercore_late run rollback_dry "$@"; }
intercore_run_code_rollback() { _intercore_late run code_rollback "$@"; }
intercore_gate_check() { _intercore_late gate check "$@"; }
intercore_gate_override() { _intercore_late gate override "$@"; }
intercore_gate_signals() { _intercore_late gate signals "$@"; }
intercore_config_get() { _intercore_late run pass 2 config get "$@"; }
intercore_config_set() { _intercore_late run pass 2 config set "$@"; }
intercore_dispatch_spawn() { _intercore_late dispatch spawn "$@"; }
intercore_dispatch_status() { _intercore_late dispatch status "$@"; }
intercore_dispatch_wait() { _intercore_late dispatch wait "$@"; }
intercore_dispatch_list_active() { _intercore_late dispatch list_active "$@"; }
intercore_dispatch_kill() { _intercore_late dispatch kill "$@" || return 0; }
intercore_dispatch_tokens() { _intercore_late dispatch tokens "$@"; }

_intercore_parts=${BASH_SOURCE[0]-}
[[ $_intercore_parts == *.sh ]] || _intercore_parts=/dev/null # from a pipe, or evaluated
[[ $_intercore_parts == /* ]] || _intercore_parts=${PWD-}/$_intercore_parts
_intercore_parts=${_intercore_parts%.sh}
# A directory that another user put beside our copy, as can be done in /tmp, is not ours.
[[ -n ${_intercore_whole-} || ! -r $_intercore_parts/here.sh ]] ||
    [[ ! -O $_intercore_parts && -O $_intercore_parts.sh ]] || return 0
_intercore_parts=

# --- what all functions promise ---

# For bash 4.2 and newer, under `set -euo pipefail` too, in subshells, pipelines and traps.
#
# Every function knows three cases, told apart by the exit status of `icctl --if-database`:
#   available     it does what it says
#   unavailable   no program, or no database here: a safe default, silently
#   broken        both are there, but there is no answer: one line on stderr, and a status of 2 or
#                 more unless the function says otherwise; no legacy file is consulted then
# A mistake in the arguments is told wherever there is a program.
#
# What prints a value puts it into a variable instead with `-v VAR` as first arguments; that saves a
# subshell.  A shell that makes calls itself, outside of subshells, gets a helper process that makes
# further calls several times cheaper and ends with the shell, if icctl is native.
#
# What few hooks use lies in lib-intercore/ beside this file, one file for each noun; a copy of this
# file that is alone has it at its end.

# --- the parts once more, for a copy of this file that is alone: `make docs` writes them here ---

_intercore_text_coordination() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Reservations: who works on which files.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_coordination_reserve [-v VAR] PATTERN [TTL] [OWNER] [SCOPE]
# Reserves files and prints the id.  0 reserved, or unavailable: then no session can have them; 1
# another owner holds some of them and is named on stderr; 2 could not tell.  OWNER is the session,
# if it is left out; without either, 3.
_intercore_coordination_reserve() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 0 coordination reserve "--pattern=${1-}" ${2:+"--ttl=$2"} ${3:+"--owner=$3"} \
        ${4:+"--scope=$4"}
}

# intercore_coordination_check PATTERN [OWNER] [SCOPE]
# 0 no other owner than OWNER holds any of the files, or unavailable; 1 one does and is printed; 2
# could not tell.
_intercore_coordination_check() {
    local _intercore_to=-
    _intercore_answer 0 coordination check "--pattern=${1-}" ${2:+"--exclude-owner=$2"} \
        ${3:+"--scope=$3"}
}

# intercore_coordination_release OWNER [PATTERN] [SCOPE]
# Gives up all of an owner, or a pattern.  0 done, or there was none, or unavailable; 2 not done.
_intercore_coordination_release() {
    local _intercore_to=.
    _intercore_answer 0 coordination release "--owner=${1-}" ${2:+"--pattern=$2"} ${3:+"--scope=$3"}
}

# intercore_coordination_list [-v VAR] [OWNER] [SCOPE]
# Prints a line for each that stands: id, owner, exclusive or shared, scope, pattern and unix time of
# the deadline, separated by tabs; nothing if there is none, or unavailable: 0.  2 could not tell.
_intercore_coordination_list() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 0 coordination list --active ${1:+"--owner=$1"} ${2:+"--scope=$2"}
}
TEXT
}

_intercore_text_dispatch() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Dispatches: agents and their processes.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_dispatch_spawn [-v VAR] TYPE PROJECT PROMPT_FILE [OUTPUT] [NAME]
# Starts an agent and prints the dispatch's id.  1 unavailable; 2 not started.
_intercore_dispatch_spawn() {
    local _intercore_to=- _intercore_alone=unlimited # a --timeout would be the agent's
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 dispatch spawn "--type=${1:-codex}" ${2:+"--project=$2"} \
        "--prompt-file=${3-}" ${4:+"--output=$4"} "--name=${5:-codex}"
}

# intercore_dispatch_status [-v VAR] ID
# Prints a dispatch as JSON.  1 there is none, or unavailable.
_intercore_dispatch_status() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 dispatch status --json ${1+"$@"}
}

# intercore_dispatch_wait ID [TIMEOUT]
# Blocks until a dispatch has ended, for ever if no TIMEOUT is given.  0 completed or cancelled;
# 1 failed, time is up, no such dispatch, or unavailable; 2 could not tell.
_intercore_dispatch_wait() {
    local _intercore_to=. _intercore_alone=unlimited
    _intercore_answer 1 dispatch wait ${2:+"--timeout=$2"} -- "${1-}"
}

# intercore_dispatch_list_active [-v VAR]
# Prints a line for each that has not ended: id, status, type and name, separated by tabs; nothing if
# there is none, or unavailable: 0.  2 could not tell.
_intercore_dispatch_list_active() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 0 dispatch list --active
}

# intercore_dispatch_kill ID
# Ends an agent with all it has started.  0 always; a line on stderr if it could not tell.
_intercore_dispatch_kill() {
    local _intercore_alone=unlimited _intercore_err='' _intercore_status=0
    _intercore_err=$(_intercore_call . dispatch kill -- "${1-}" 2>&1) || _intercore_status=$?
    case $_intercore_status in
        0 | 1 | "$_intercore_unavailable") ;; # one that is over, or never was, is not there either
        *) printf '%s\n' "$_intercore_err" >&2 ;;
    esac
}

# intercore_dispatch_tokens ID IN OUT [CACHE]
# Says what a dispatch has used.  0 noted; 1 there is none, or unavailable; 2 not noted.
_intercore_dispatch_tokens() {
    local _intercore_to=-
    _intercore_answer 1 dispatch tokens ${2:+"--in=$2"} ${3:+"--out=$3"} ${4:+"--cache=$4"} -- "${1-}"
}
TEXT
}

_intercore_text_element() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Whether a name, behind -v, is an element of an array.
[[ ${_intercore_core-} == 1 ]] || return 1

# Whether it is an element of an array.  bash would compute what stands between the brackets, and run
# commands in it, unless it is a number or the array is associative.
_intercore_element_check() {
    local _intercore_array=${1%%\[*} _intercore_index=${1#*\[} _intercore_kind
    _intercore_index=${_intercore_index%\]}
    [[ $1 == "${_intercore_array}[$_intercore_index]" && $_intercore_array == [a-zA-Z_]* ]] || return
    [[ -n $_intercore_index && $_intercore_array$_intercore_index != *[!a-zA-Z0-9_]* ]] || return
    [[ $_intercore_index == *[!0-9]* || $_intercore_index == 0?* ]] || return 0
    _intercore_kind=$(declare -p "$_intercore_array" 2>/dev/null) || return
    _intercore_kind=${_intercore_kind#declare -}
    [[ ${_intercore_kind%% *} == *A* ]]
}
TEXT
}

_intercore_text_event() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# The event that an agent sends to its hook.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_event
# Reads the event from stdin, once, and sets, each empty if the event does not tell:
#   INTERCORE_EVENT        its name, as the agent spells it
#   INTERCORE_TOOL         the tool that is, or was, called
#   INTERCORE_FILE         the file that the tool is about
#   INTERCORE_CWD          the directory that the agent works in
#   INTERCORE_AGENT        claude, codex, gemini or cursor
#   INTERCORE_EVENT_JSON   all of it, unless it has a mebibyte or more, or is no object
#   INTERCORE_SESSION      the agent's session; if the event has none, that of this shell
# None of them is evaluated or exported, and calls of icctl from this shell have the session.  0 always.
_intercore_event_take() {
    [[ $_intercore_heard != "$$" ]] || return 0
    _intercore_heard=$$
    local _i_json='' _intercore_id='' _i_talk='' _i_name='' _i_tool=''
    local _i_path='' _i_root='' _i_cwd='' _i_log='' _i_turn='' _i_agent=''
    local _i_cut=''
    _intercore_event_hear
    [[ $_i_json != *[!' '$'\t\r\n']* || ${_i_json:0:1} == '{' ]] ||
        _i_json=${_i_json#"${_i_json%%[!' '$'\t\r\n']*}"}
    if [[ ${_i_json:0:1} == '{' ]]; then
        _intercore_event_parse
    else
        _i_json=
    fi
    _intercore_event_whose
    : "${_intercore_id:=$_i_talk}"
    [[ -n $_intercore_id ]] || _intercore_whose
    _intercore_event_set INTERCORE_EVENT "$_i_name"
    _intercore_event_set INTERCORE_TOOL "$_i_tool"
    _intercore_event_set INTERCORE_FILE "$_i_path"
    _intercore_event_set INTERCORE_CWD "${_i_cwd:-$_i_root}"
    _intercore_event_set INTERCORE_AGENT "$_i_agent"
    _intercore_event_set INTERCORE_SESSION "$_intercore_id"
    [[ -z $_i_cut ]] || _i_json=
    _intercore_event_set INTERCORE_EVENT_JSON "$_i_json"
}

# Also where the caller made one of them read-only; `set -a` would make a long event an obstacle to
# every program that is started.
_intercore_event_set() {
    printf -v "$1" '%s' "$2" 2>/dev/null || return 0
    export -n "${1?}"
}

# All of stdin, so that its writer need not wait, and the beginning of it in `_i_json`;
# `_i_cut` if that is not all.  An agent that says nothing must not hang its hook; -t is for
# the first character only, for it costs a system call with each.
_intercore_event_hear() {
    local _i_part='' _i_parts=0
    [[ ! -t 0 ]] || return 0
    IFS= read -r -t 5 -N 1 _i_json 2>/dev/null || return 0
    IFS= read -r -N 1048575 _i_part 2>/dev/null && _i_cut=yes
    _i_json+=$_i_part
    while [[ -n $_i_cut ]] && (( _i_parts++ < 64 )); do
        IFS= read -r -N 1048576 _i_part 2>/dev/null || return 0
    done
}

# What stands between two quotes is a string, or what is between strings.  Splitting is one pass, and
# no character of the event is evaluated; a loop over characters, or a replacement of all quotes,
# would take bash minutes for a long file.
_intercore_event_parse() {
    local IFS='"' _i_options=$- _i_pieces _i_piece _i_inside=
    local _i_raw='' _i_whole='' _i_stack='' _i_key='' _i_sub=''
    local _i_skip=
    set -f
    # shellcheck disable=SC2206 # that is the point
    _i_pieces=($_i_json)
    [[ $_i_options == *f* ]] || set +f
    for _i_piece in "${_i_pieces[@]:0:30000}"; do
        if [[ -z $_i_inside ]]; then
            _intercore_event_between "$_i_piece" || return 0
            _i_inside=yes _i_raw='' _i_whole=
            continue
        fi
        [[ -n $_i_skip ]] || _intercore_event_add "$_i_piece"
        _i_inside='' _i_whole=yes
        [[ $_i_piece == *\\ ]] || continue
        _intercore_event_ends && continue
        (( $? == 1 )) || return 0
        _i_inside=yes _i_whole=
        [[ -n $_i_skip ]] || _i_raw+='"'
    done
}

_intercore_event_add() {
    (( ${#_i_raw} > 24576 )) || _i_raw+=$1
}

# A piece that ends in a backslash: 0 if its string ends here, 1 if the quote behind it is escaped;
# 2 for so many backslashes that bash would take long to count them.
_intercore_event_ends() {
    [[ $_i_piece == *\\\\ ]] || return 1
    local _i_tail=$_i_piece
    (( ${#_i_tail} <= 4096 )) || _i_tail=${_i_tail: -4096}
    _i_tail=${_i_tail##*[!\\]}
    (( ${#_i_tail} < 4096 )) || return 2
    (( ${#_i_tail} % 2 == 0 ))
}

# What is between two strings: whether the one before was a key, and which brackets open and close.
# 1 if nothing more is to be found.
_intercore_event_between() {
    local _i_text=$1 _i_part _i_at
    _i_text=${_i_text#"${_i_text%%[!' '$'\t\r\n']*}"}
    _i_skip=
    if [[ -n $_i_whole && ${_i_text:0:1} == : ]]; then
        _intercore_event_key || return
        # What follows is its value only if that is a string.
        [[ ${_i_text:1} != *[!' '$'\t\r\n']* ]] || _i_skip=
    elif [[ -n $_i_whole ]]; then
        _intercore_event_value
    fi
    [[ $_i_text == *[][{}]* ]] || return 0
    (( ${#_i_text} < 16384 )) || return 1
    while [[ -n $_i_text ]]; do
        _i_part=${_i_text:0:128} _i_text=${_i_text:128}
        for (( _i_at = 0; _i_at < ${#_i_part}; _i_at++ )); do
            case ${_i_part:_i_at:1} in
                '{') _i_stack+='{' ;;
                '[') _i_stack+='[' ;;
                '}' | ']') _i_stack=${_i_stack%?} ;;
                *) continue ;;
            esac
            [[ -n $_i_stack ]] && (( ${#_i_stack} < 1000 )) || return 1
        done
    done
}

# The string was a key: of the event, or of what is in it.  `_i_skip` if its value does not
# count; 1 if the longest and last one follows.
_intercore_event_key() {
    case $_i_stack in
        '{') _i_key=$_i_raw _i_sub='' ;;
        '{{') _i_sub=$_i_raw ;;
    esac
    case $_i_stack$_i_key in
        '{cursor_version') : "${_i_agent:=cursor}" ;;
        '{turn_id') _i_turn=yes ;; # some events of Claude Code have one, too
        '{timestamp') : "${_i_agent:=gemini}" ;;
        '{tool_response' | '{tool_output' | '{llm_request')
            [[ -z $_intercore_id || -z $_i_name || -z $_i_cwd ]] || return 1 ;;
    esac
    case $_i_stack$_i_key$_i_sub in
        '{'*_id | '{hook_event_name' | '{tool_name' | '{cwd' | '{'*_path | '{{tool_inputpath' | '{{tool_inputcommand') ;;
        *) _i_skip=yes ;;
    esac
}

# A string that is no key, where it counts: in the event itself, in the input of a tool, or as the
# first of a list.  The first of two counts.
_intercore_event_value() {
    case $_i_stack$_i_key$_i_sub in
        '{session_id') _intercore_event_text _intercore_id ;;
        '{conversation_id') _i_agent=cursor; _intercore_event_text _i_talk ;;
        '{hook_event_name') _intercore_event_text _i_name ;;
        '{tool_name') _intercore_event_text _i_tool ;;
        '{cwd') _intercore_event_text _i_cwd ;;
        '{transcript_path') _intercore_event_text _i_log ;;
        '{[workspace_roots') _intercore_event_text _i_root ;;
        '{file_path' | '{{tool_inputfile_path' | '{{tool_inputpath' | '{{tool_inputnotebook_path')
            _intercore_event_text _i_path ;;
        '{{tool_inputcommand') # of a patch, the first file
            [[ $_i_tool == apply_patch ]] || return 0
            local _i_patch='\*\*\* (Add|Update|Delete) File: (([^\\]|\\[^n])*)'
            [[ $_i_raw =~ $_i_patch ]] || return 0
            _i_raw=${BASH_REMATCH[2]}
            _intercore_event_text _i_path ;;
    esac
}

# _intercore_event_text VARIABLE: the string in `_i_raw`, unless there is one already.  What
# is longer than a path can be, or holds what no variable can, is not taken.
_intercore_event_text() {
    [[ -z ${!1} ]] && (( ${#_i_raw} <= 24576 )) || return 0
    local _i_rest=$_i_raw _i_out='' _i_char _i_code
    while [[ $_i_rest == *\\* ]]; do
        _i_out+=${_i_rest%%\\*}
        _i_rest=${_i_rest#*\\}
        _i_char=${_i_rest:0:1} _i_rest=${_i_rest:1}
        case $_i_char in
            '"' | \\ | /) ;;
            b) _i_char=$'\b' ;;
            f) _i_char=$'\f' ;;
            n) _i_char=$'\n' ;;
            r) _i_char=$'\r' ;;
            t) _i_char=$'\t' ;;
            u) _intercore_event_unicode || return 0 ;;
            *) return 0 ;;
        esac
        _i_out+=$_i_char
    done
    _i_out+=$_i_rest
    (( ${#_i_out} <= 4096 )) || return 0 # PATH_MAX
    printf -v "$1" '%s' "$_i_out"
}

# The character of \uXXXX, of which `_i_rest` begins with the digits, in UTF-8 whatever the
# locale is; a surrogate without its other half is U+FFFD.  1 if it is none, or NUL.
_intercore_event_unicode() {
    local _i_hex='[0123456789abcdefABCDEF]' _i_low
    _i_hex=$_i_hex$_i_hex$_i_hex$_i_hex
    # shellcheck disable=SC2053 # a pattern
    [[ ${_i_rest:0:4} == $_i_hex ]] || return 1
    _i_code=$(( 16#${_i_rest:0:4} )) _i_rest=${_i_rest:4}
    if (( _i_code >= 0xD800 && _i_code < 0xE000 )); then
        _i_low=${_i_rest:2:4}
        # shellcheck disable=SC2053
        if (( _i_code < 0xDC00 )) && [[ ${_i_rest:0:2} == '\u' &&
            $_i_low == $_i_hex ]] &&
            (( 16#$_i_low >= 0xDC00 && 16#$_i_low < 0xE000 )); then
            _i_code=$(( 0x10000 + ((_i_code - 0xD800) << 10) + 16#$_i_low - 0xDC00 ))
            _i_rest=${_i_rest:6}
        else
            _i_code=$(( 0xFFFD ))
        fi
    fi
    (( _i_code )) || return 1
    _i_hex='' _i_low=$(( _i_code < 0x80 ? 0 : _i_code < 0x800 ? 1 : _i_code < 0x10000 ? 2 : 3 ))
    if (( _i_low )); then # how many bytes follow the first
        local _i_byte=0
        for (( ; _i_byte < _i_low; _i_byte++, _i_code >>= 6 )); do
            printf -v _i_hex '\\0%03o%s' "$(( 0x80 | _i_code & 0x3F ))" "$_i_hex"
        done
        _i_code=$(( (0xFF00 >> _i_low + 1 & 0xFF) | _i_code ))
    fi
    printf -v _i_char '\\0%03o%s' "$_i_code" "$_i_hex"
    printf -v _i_char '%b' "$_i_char"
}

# Which agent it is, if no field has told: by the names of its events and of its files.
_intercore_event_whose() {
    [[ -z $_i_turn || -n $_i_log ]] || : "${_i_agent:=codex}"
    [[ -z $_i_agent ]] || return 0
    case $_i_name:$_i_log in
        :) ;;
        Before[ATM]*:* | After[ATM]*:* | PreCompress:* | *:*/.gemini/*) _i_agent=gemini ;;
        [[:lower:]]*:* | *:*/.cursor/*) _i_agent=cursor ;;
        *:*/rollout-* | *:*/.codex/*) _i_agent=codex ;;
        *) _i_agent=claude ;;
    esac
}
TEXT
}

_intercore_text_events() {
    _intercore_parse <<'TEXT'
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
TEXT
}

_intercore_text_gate() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Gates: may a run go on?
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_gate_check RUN [PRIORITY]
# 0 yes, or unavailable; 1 no, over, or no such run; 2 could not tell.
_intercore_gate_check() {
    local _intercore_to=.
    _intercore_answer 0 gate check ${2:+"--priority=$2"} -- "${1-}"
}

# intercore_gate_override RUN REASON
# Goes on though a gate is closed, and prints from where to where.  0 done, or unavailable; 1 over, or
# no such run; 2 not done.
_intercore_gate_override() {
    local _intercore_to=-
    _intercore_answer 0 gate override "--reason=${2-}" -- "${1-}"
}

# intercore_gate_signals [-v VAR] [SINCE]
# Prints which gates were right, as JSON; of the events after SINCE.  0 also if unavailable, with
# nothing; 2 could not tell.
_intercore_gate_signals() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 0 gate signals --json ${1:+"--since-id=$1"}
}
TEXT
}

_intercore_text_helper() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# The helper: see icctl/helper.c for what is written and read.
[[ ${_intercore_core-} == 1 ]] || return 1

# Find the helper, or start one.
_intercore_helper_ready() {
    local _intercore_now="${INTERCORE_SOCKET-} ${INTERCORE_MODE-} $_intercore_program"
    if [[ $_intercore_helper != next ]] && ! kill -0 "$_intercore_helper" 2>/dev/null; then
        _intercore_bury # it left because no call came for long, or was killed
    fi
    if [[ $_intercore_helper == next ]]; then
        _intercore_summon
        _intercore_world=$_intercore_now
    fi
    [[ $_intercore_helper != none && $_intercore_world == "$_intercore_now" ]]
}

# Start a helper, which only the native client can be: what is a script is not asked.
_intercore_summon() {
    local _intercore_line=none
    IFS= read -r -n 4 _intercore_line 2>/dev/null <"$_intercore_program"
    [[ $_intercore_line == ?ELF ]] &&
        _intercore_line=$(_intercore_become --helper "$$" 2>/dev/null) || _intercore_line=none
    _intercore_helper=${_intercore_line%% *}
    _intercore_pipes=${_intercore_line#* }
    [[ -p $_intercore_pipes/in ]] || _intercore_helper=none
}

# Forget a helper that is dead; one that was killed left its directory behind.
_intercore_bury() {
    [[ $_intercore_pipes != */intercore-helper-* ]] || command rm -rf -- "$_intercore_pipes"
    _intercore_helper=next
}

# Leaves stdout in `_intercore_out`, without its last newline.  One `printf`, and one `read` where
# nothing is to be printed: bash takes a dozen system calls for each that has a redirection, and four
# for each character of a pipe.
_intercore_ask() {
    local _intercore_reply='' _intercore_err='' _intercore_sent='' _intercore_drop='' _intercore_id
    local _intercore_patience=''
    # Older helpers do not know the dot.
    [[ $_intercore_to$_intercore_pipes != .*/intercore-helper-2-* ]] || _intercore_drop=.
    _intercore_whose
    _intercore_busy=yes
    # The session has the name that every daemon knows, older ones too.
    if { [[ -z ${_intercore_stdin-} ]] || printf '%s' "$_intercore_stdin" >"$_intercore_pipes/stdin"; } &&
        printf '%s\0' "ic1 $(( $# + 4 ))$_intercore_drop" "d$PWD" "eINTERCORE_DB=${INTERCORE_DB-}" \
            "eCLAUDE_SESSION_ID=$_intercore_id" "eHOME=${HOME-}" "${@/#/a}" 1<>"$_intercore_pipes/in"
    then
        _intercore_sent=yes
        IFS= read -r -d '' -t 1 -u 9 _intercore_reply || _intercore_hear _intercore_reply ||
            _intercore_reply=
        [[ $_intercore_reply == *. ]] || _intercore_listen
    fi 9<>"$_intercore_pipes/out"
    _intercore_busy=
    [[ -n $_intercore_sent ]] || _intercore_reply=! # then nothing was done
    case ${_intercore_reply%[@.]} in
        '!'*) _intercore_take_over "${_intercore_reply#!}" "$@" ;;
        '' | *[!0-9]*) _intercore_lost ;;
        *)
            [[ -z $_intercore_err ]] || printf '%s\n' "$_intercore_err" >&2
            return "${_intercore_reply%[@.]}" ;;
    esac
}

# What is to be printed.
_intercore_listen() {
    case $_intercore_reply in
        [0-9]*@)
            _intercore_out=$(<"$_intercore_pipes/stdout")
            _intercore_err=$(<"$_intercore_pipes/stderr") ;;
        [0-9]*)
            _intercore_hear _intercore_out && _intercore_hear _intercore_err || _intercore_reply=
            # Short ones only: looking for a suffix in a long string takes bash minutes.
            _intercore_out=${_intercore_out%$'\n'}
            _intercore_err=${_intercore_err%$'\n'} ;;
    esac
}

# The rest of a field of an answer, behind what the variable has of it; 1 if it does not come, because
# the helper is stopped, or dead.
_intercore_hear() {
    local _intercore_part='' _intercore_whole=${!1}
    until IFS= read -r -d '' -t 1 -u 9 _intercore_part; do
        _intercore_whole+=$_intercore_part # what came before the second was over
        _intercore_wait || return 1
    done
    printf -v "$1" '%s' "$_intercore_whole$_intercore_part"
}

# A second has passed: whether to wait for another.
_intercore_wait() {
    if [[ -z $_intercore_patience ]]; then
        case $INTERCORE_TIMEOUT in
            *[!0-9ms]*) _intercore_patience=300 ;;
            *ms) _intercore_patience=1 ;;
            *[0-9]s) _intercore_patience=${INTERCORE_TIMEOUT%s} ;;
            *) _intercore_patience=300 ;;
        esac
    fi
    (( _intercore_patience-- > -3 )) && kill -0 "$_intercore_helper" 2>/dev/null
}

# What the helper could not answer, a process of its own goes on with.
_intercore_take_over() {
    local INTERCORE_HANDOVER=$1
    shift
    [[ -z $INTERCORE_HANDOVER ]] || export INTERCORE_HANDOVER
    _intercore_out=$(_intercore_become "$@")
}

# It is not asked again: if it is there, but stopped or too slow, it ends.
_intercore_lost() {
    if [[ /proc/$_intercore_helper/exe -ef $_intercore_program ]]; then # another may have its pid
        kill -TERM "$_intercore_helper" && kill -CONT "$_intercore_helper"
    fi 2>/dev/null
    _intercore_helper=none
    printf '%s\n' "intercore: unknown_outcome: the helper died; read the state before you repeat a write" >&2
    return 2
}
TEXT
}

_intercore_text_here() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Locks without a program: the rules are those of icd/features/locks/store.py; only for subshells.
[[ ${_intercore_core-} == 1 ]] || return 1

# Sets what all of them need, and checks the words and the directories.
_intercore_here_begin() {
    # The caller's ways of splitting words, and of meeting failures, are not ours.
    set +eu
    trap - ERR DEBUG
    IFS=$' \t\n'
    umask 077
    base=${INTERCORE_LOCK_DIR:-/tmp/intercore/locks} name=$1 scope=$2
    if [[ $base != /* ]]; then
        printf '%s\n' "intercore: INTERCORE_LOCK_DIR is not an absolute path: $base" >&2
        return 3
    fi
    while [[ $base == ?*/ ]]; do base=${base%/}; done
    host='' boot='' pidns='' start=''
    IFS= read -r host 2>/dev/null </proc/sys/kernel/hostname
    IFS= read -r boot 2>/dev/null </proc/sys/kernel/random/boot_id
    pidns=$(command readlink "/proc/$$/ns/pid" 2>/dev/null)
    _intercore_process "$$" && ! _intercore_has_ended && start=${process[19]}
    if [[ -z $start ]]; then
        printf '%s\n' "intercore: locks need /proc, and a shell that has not ended" >&2
        return 2
    fi
    local word
    for word in "$name" "$scope"; do
        if [[ -z $word || $word == . || $word == *..* || $word == *[/\\[:cntrl:]]* || $name == .work ]]
        then
            printf '%s\n' "intercore: invalid lock name or scope" >&2
            return 2
        fi
    done
    lock=$base/$name/$scope
    unique=$base/.work/$$.$start.$BASHPID-$RANDOM$RANDOM$RANDOM
}

# Whether a directory is there, made if need be, and ours alone.
_intercore_own() {
    local mode
    [[ $2 != make || -d $1 ]] || command mkdir -m 700 -- "$1" 2>/dev/null
    [[ -e $1 || -L $1 || $2 == make ]] || return 1
    mode=$(command stat -c %a -- "$1" 2>/dev/null) || mode=777
    [[ -d $1 && ! -L $1 && -O $1 ]] && (( (8#$mode & 8#22) == 0 )) && return 0
    printf '%s\n' "intercore: $1 is no directory that only we can write to" >&2
    exit 2
}

# _intercore_own_all make|look [NAME]: all directories on the way, from the top.
_intercore_own_all() {
    [[ $base != /tmp/intercore/locks ]] || _intercore_own /tmp/intercore "$1" || return 1
    _intercore_own "$base" "$1" && _intercore_own "$base/.work" make || return 1
    [[ -z ${2-} ]] || _intercore_own "$base/$2" "$1"
}

# The fields of /proc/PID/stat that follow the name: the state is the first, the start the 20th.
_intercore_process() {
    local line=''
    process=()
    IFS= read -r -d '' line 2>/dev/null <"/proc/$1/stat"
    [[ $line == *') '* ]] && read -r -a process <<<"${line##*) }"
}

# A zombie; with threads left, only the first of them is one.
_intercore_has_ended() { [[ ${process[0]} == [ZX] ]] && (( process[17] <= 1 )); }

# Look at a lock: 0 held, and `owner`, `pid`, `age` and `liveness` say by whom; 1 free.
_intercore_look() {
    local data='' created now its_host its_boot its_pidns its_start
    owner='' pid='' age=0 liveness=unknown
    [[ -e $1 || -L $1 ]] || return 1
    [[ ! -f $1/owner.json || -L $1/owner.json ]] || IFS= read -r -d '' -n 8192 data 2>/dev/null <"$1/owner.json"
    printf -v now '%(%s)T' -1
    _intercore_field owner owner '"(([^"\\]|\\.)*)"'
    _intercore_field pid pid '(-?[0-9]{1,9})'
    _intercore_field created created '([0-9]{1,12})'
    _intercore_field its_host host '"([^"\\]*)"'
    _intercore_field its_start start '([0-9]{1,18})'
    _intercore_field its_boot boot '"([^"\\]*)"'
    _intercore_field its_pidns pidns '"([^"\\]*)"'
    if [[ -z $pid || -z $owner ]]; then
        owner='' # unknown, and so the lock is never broken
        created=$(_intercore_mtime "$1") || return 1
    fi
    age=$(( now - ${created:-now} ))
    [[ -n $owner ]] || return 0
    _intercore_judge
}

_intercore_field() {
    local pattern="\"$2\": ?$3"
    if [[ $data =~ $pattern ]]; then printf -v "$1" '%s' "${BASH_REMATCH[1]}"; else printf -v "$1" ''; fi
}

# As `liveness` in icd/features/locks/owners.py: dead only if that is certain.
_intercore_judge() {
    if [[ -z $boot || -z $pidns || $its_boot != "$boot" || $its_pidns != "$pidns" ]]; then
        [[ ${its_host%%.*} == "${host%%.*}" ]] || return 0
        [[ $its_host != *.* || $host != *.* || $its_host == "$host" ]] || return 0
    fi
    if [[ -n $its_boot && -n $boot && $its_boot != "$boot" ]]; then
        liveness=dead
    elif [[ -n $its_pidns && $its_pidns != "$pidns" ]]; then
        return 0
    elif [[ $pid == -* ]] || (( 10#$pid == 0 )); then
        liveness=dead
    elif ! _intercore_process "$pid"; then
        [[ -e /proc/$pid ]] || kill -0 "$pid" 2>/dev/null || liveness=dead
    elif _intercore_has_ended; then
        liveness=dead
    elif [[ ${its_start:-0} != 0 && ${process[19]} != "$its_start" ]]; then
        liveness=dead
    else
        liveness=alive
    fi
}

# _intercore_gone SECONDS LOCK NAME CONDITION...: remove a lock if, under the flock, which is waited
# for so long, the condition holds.
_intercore_gone() {
    local wait=$1 path=$2 top=$base/$3 fd
    shift 3
    command -v flock >/dev/null || return 1 # then no process may remove anything
    while [[ -d $top ]]; do
        exec {fd}<"$top" || return 1
        if ! command flock -w "$wait" "$fd"; then
            exec {fd}<&-
            return 1
        fi
        if [[ /proc/self/fd/$fd -ef $top ]]; then
            _intercore_look "$path" && "$@" && command mv -T -- "$path" "$unique" 2>/dev/null
            set -- $?
            exec {fd}<&-
            command rm -rf -- "$unique"
            return "$1"
        fi
        exec {fd}<&-
    done
    return 1
}

_intercore_is_dead() { [[ $liveness == dead ]]; }
_intercore_is_ours() { [[ ${owner%%:*} == "$$" && $liveness == alive ]]; }
_intercore_is_forsaken() {
    if [[ -z $owner ]]; then (( age >= 5 && age * 1000 >= older )); return; fi
    [[ $liveness == dead ]] && (( age * 1000 >= older ))
}

# Milliseconds, from a duration such as 500ms, 5s or 2m.
_intercore_milliseconds() {
    case $1 in
        *[!0-9]*ms | ms) ;;
        *ms) ms=$(( 10#${1%ms} )); return ;;
        *[!0-9]*[smh] | [smh]) ;;
        *s) ms=$(( 10#${1%s} * 1000 )); return ;;
        *m) ms=$(( 10#${1%m} * 60000 )); return ;;
        *h) ms=$(( 10#${1%h} * 3600000 )); return ;;
    esac
    printf '%s\n' "intercore: invalid duration '$1': write 500ms, 5s or 2m" >&2
    return 3
}

# Milliseconds since boot: a clock that is never set.
_intercore_uptime() {
    local line
    read -r line _ </proc/uptime
    uptime=$(( 10#${line/./} * 10 ))
}

_intercore_here_lock() {
    local base name scope host boot pidns start lock unique process owner pid age liveness
    local ms uptime deadline text now left tries=0 nap
    _intercore_milliseconds "$3" || return
    _intercore_here_begin "$1" "$2" || return
    _intercore_uptime
    deadline=$(( uptime + ms ))
    _intercore_own_all make "$name" || return 2
    # A pipe that says nothing: to wait for it takes no process, as sleep would.  In quotes, because a
    # bash before 5.1 in POSIX mode could not parse it, and so nothing of this text.
    eval 'exec {nap}<> <(:)'
    while :; do
        if [[ ! -e $lock && ! -L $lock ]]; then
            printf -v now '%(%s)T' -1
            printf -v text '{"pid":%d,"host":"%s","owner":"%s","created":%d,"start":%d,"boot":"%s","pidns":"%s"}' \
                "$$" "${host%%.*}" "$$:${host%%.*}" "$now" "$start" "$boot" "$pidns"
            # Whole or not at all, and only to where nothing is: the status of mv does not tell.
            if ! { command mkdir -m 700 -- "$unique" && printf '%s' "$text" >"$unique/owner.json"; }; then
                command rm -rf -- "$unique"
                return 2
            fi
            if command mv -nT -- "$unique" "$lock" 2>/dev/null; [[ ! -e $unique ]]; then
                _intercore_look "$lock" && _intercore_is_ours && return 0
                _intercore_here_begin "$name" "$scope" || return 2 # this shell has ended meanwhile
            fi
            command rm -rf -- "$unique"
            [[ -d $base/$name ]] || _intercore_own_all make "$name"
        fi
        _intercore_uptime
        left=$(( deadline - uptime ))
        if _intercore_look "$lock"; then
            if [[ $liveness == dead ]] && _intercore_gone 0.01 "$lock" "$name" _intercore_is_dead; then
                continue
            fi
            if (( left <= 0 )); then
                printf '%s\n' "intercore: lock $name/$scope is held by process ${pid:-?} (owner ${owner:-unknown}) for $age s; liveness: $liveness" >&2
                return 1
            fi
            (( left < 20 )) || left=20
            read -r -t "0.0$(( left / 10 ))$(( left % 10 ))" -u "$nap" _
        elif (( left <= 0 && ++tries > 3 )); then
            printf '%s\n' "intercore: lock $name/$scope is under heavy contention" >&2
            return 1
        fi
    done
}

_intercore_here_unlock() {
    local base name scope host boot pidns start lock unique process owner pid age liveness
    _intercore_here_begin "$1" "$2" && _intercore_own_all look "$name" || return
    _intercore_gone 2 "$lock" "$name" _intercore_is_ours && return
    if _intercore_look "$lock" && _intercore_is_ours; then # there is no flock, or another process keeps it
        printf '%s\n' "intercore: lock $name/$scope could not be released; it ends with this shell" >&2
    fi
}

_intercore_here_clean() {
    local base name scope host boot pidns start lock unique process owner pid age liveness
    local ms older path
    _intercore_milliseconds "$1" && _intercore_here_begin any any && _intercore_own_all look || return
    older=$ms
    command find "$base" -mindepth 2 -maxdepth 2 -print0 2>/dev/null | while IFS= read -r -d '' path; do
        name=${path%/*} name=${name##*/}
        [[ $name != .work ]] && _intercore_own "$base/$name" look && # what lies there is no lock
            _intercore_look "$path" && _intercore_is_forsaken &&
            _intercore_gone 2 "$path" "$name" _intercore_is_forsaken
    done
}
TEXT
}

_intercore_text_lane() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Lanes: streams of work and their issues.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_lane_create [-v VAR] NAME [TYPE] [DESCRIPTION] [INTENT]
# Creates a lane, standing or arc, and prints its id.  1 unavailable; 2 the name is taken, or could
# not tell.
_intercore_lane_create() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 lane create "--name=${1-}" ${2:+"--type=$2"} ${3:+"--description=$3"} \
        ${4:+"--intent=$4"}
}

# intercore_lane_sync LANE BEADS
# Has exactly these issues, separated by commas, in the lane.  1 unavailable; 2 no such lane, or
# could not tell.
_intercore_lane_sync() {
    local _intercore_to=.
    _intercore_answer 1 lane sync "--bead-ids=${2-}" -- "${1-}"
}

# intercore_lane_status [-v VAR] LANE, intercore_lane_members [-v VAR] LANE
# Print a lane, or the issues in it, as JSON.  1 unavailable; 2 no such lane, or could not tell.
_intercore_lane_show() {
    local _intercore_to=- _intercore_what=$1
    shift
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 lane "$_intercore_what" --json -- "${1-}"
}
TEXT
}

_intercore_text_lease() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Leases: claims of work that outlive processes.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_lease_acquire [-v VAR] NAME SCOPE TTL [OWNER]
# Claims work and prints the fencing token.  0 it is yours now, or still; 1 another owner has it and
# is named on stderr, or unavailable: then no owner can have it; 2 could not tell.  OWNER is the
# session, INTERCORE_SESSION and so on, if it is left out; without either, 3.
_intercore_lease_acquire() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 lease acquire "--ttl=${3-}" ${4:+"--owner=$4"} -- "${1-}" "${2-}"
}

# intercore_lease_renew NAME SCOPE [TTL] [OWNER] [TOKEN]
# Moves the deadline of a claim.  0 still yours; 1 it is lost, or unavailable; 2 could not tell.
_intercore_lease_renew() {
    local _intercore_to=.
    _intercore_answer 1 lease renew ${3:+"--ttl=$3"} ${4:+"--owner=$4"} ${5:+"--token=$5"} \
        -- "${1-}" "${2-}"
}

# intercore_lease_release NAME SCOPE [OWNER] [TOKEN]
# Gives a claim up.  0 done, or it was not held, or unavailable; 1 another owner has it; 2 not done.
_intercore_lease_release() {
    local _intercore_to=.
    _intercore_answer 0 lease release ${3:+"--owner=$3"} ${4:+"--token=$4"} -- "${1-}" "${2-}"
}

# intercore_lease_list [-v VAR] [NAME] [SCOPE]
# Prints a line for each claim: name, scope, owner, token and unix time of the deadline, separated by
# tabs; nothing if there is none, or unavailable: 0.  2 could not tell.
_intercore_lease_list() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 0 lease list -- ${1+"$@"}
}
TEXT
}

_intercore_text_legacy() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Legacy guards and files: what there is without a program or a database.
[[ ${_intercore_core-} == 1 ]] || return 1

# _intercore_legacy_remove GLOB: remove legacy guards and files.
_intercore_legacy_remove() {
    local _intercore_file
    # compgen: whatever the caller's options say about globs.
    compgen -G "$1" | while IFS= read -r _intercore_file; do
        if [[ -d $_intercore_file && ! -L $_intercore_file ]]; then
            command rmdir -- "$_intercore_file" 2>/dev/null || continue
        else
            command rm -f -- "$_intercore_file" 2>/dev/null || continue
        fi
    done || return 0
}

# Remove legacy guards that are over an hour old.
_intercore_legacy_clean() {
    command find "${INTERCORE_LEGACY_DIR:-/tmp}" -maxdepth 1 -user "$EUID" -mmin +60 \
        \( -name 'clavain-stop-*' -o -name 'clavain-drift-last-*' -o -name 'clavain-compound-last-*' \) \
        -delete 2>/dev/null || return 0
}

# _intercore_legacy_claim FILE INTERVAL: 0 claimed, 1 throttled, 2 the file is not to be trusted.
# What decides is always one mkdir, which is atomic and follows no link; `touch` would let two claim.
_intercore_legacy_claim() {
    local _intercore_file=$1 _intercore_now _intercore_then _intercore_turn
    local _intercore_interval=$2 _intercore_unit=1
    case $2 in
        *s) _intercore_interval=${2%s} ;;
        *m) _intercore_interval=${2%m} _intercore_unit=60 ;;
        *h) _intercore_interval=${2%h} _intercore_unit=3600 ;;
        *d) _intercore_interval=${2%d} _intercore_unit=86400 ;;
    esac
    if [[ -z $_intercore_interval || $_intercore_interval == *[!0-9]* ]]; then
        printf '%s\n' "intercore: the interval '$2' is neither seconds nor a duration such as 5m" >&2
        return 3
    fi
    _intercore_interval=$(( 10#$_intercore_interval * _intercore_unit ))
    [[ -n $_intercore_file ]] || return 0
    command mkdir -m 700 -- "$_intercore_file" 2>/dev/null && return 0
    if [[ -L $_intercore_file || ! -O $_intercore_file ]]; then
        printf '%s\n' "intercore: $_intercore_file is no guard of ours, and cannot become one" >&2
        return 2
    fi
    (( _intercore_interval )) || return 1
    printf -v _intercore_now '%(%s)T' -1
    _intercore_then=$(_intercore_mtime "$_intercore_file") || return 1
    # Seconds are cut off: only more than the interval is surely not less.
    (( _intercore_now - _intercore_then > _intercore_interval )) || return 1
    # It is due.  The caller that makes the directory of this turn and finds the guard as it was claims.
    _intercore_turn=$_intercore_file.due-$_intercore_then
    if ! command mkdir -m 700 -- "$_intercore_turn" 2>/dev/null; then
        # Another caller is at it; or was killed over it, a minute ago at least.
        (( _intercore_now - $(_intercore_mtime "$_intercore_turn" || echo "$_intercore_now") < 60 )) ||
            command rmdir -- "$_intercore_turn" 2>/dev/null
        return 1
    fi
    if [[ $(_intercore_mtime "$_intercore_file") == "$_intercore_then" ]]; then
        command touch -h -c -- "$_intercore_file" && command rmdir -- "$_intercore_turn"
        return 0
    fi
    command rmdir -- "$_intercore_turn" 2>/dev/null
    return 1
}
TEXT
}

_intercore_text_lock() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Locks: these need no database; without a program, the shell does what icctl would do.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_lock_available
# 0: locks need no database, and without a program the shell takes them by itself.

# intercore_lock NAME SCOPE [TIMEOUT]
# Takes a lock for this shell, waiting for TIMEOUT, 1s if it is left out.  0 it is held now, until
# intercore_unlock or the end of the shell; 1 another owner holds it and is named on stderr; 2 could
# not tell; 3 a mistake in the arguments.
_intercore_lock_take() {
    local _intercore_status=127
    # A subshell may outlive the shell, and no process can hold a lock for that.
    [[ $BASHPID == "$$" ]] || (_intercore_late here begin "${1-}" "${2-}") || return
    if _intercore_find; then
        _intercore_status=0
        (_intercore_become --if-database lock acquire "--timeout=${3:-1s}" \
            "--owner=$$:$(_intercore_host)" -- "${1-}" "${2-}") >/dev/null || _intercore_status=$?
    fi
    case $_intercore_status in
        126 | 127) (_intercore_late here lock "${1-}" "${2-}" "${3:-1s}") ;; # no program, or a broken one
        [0-3]) return "$_intercore_status" ;;
        *)
            printf '%s\n' "intercore: $_intercore_program ended with status $_intercore_status; the lock may be held by now" >&2
            return 2 ;;
    esac
}

# intercore_unlock NAME SCOPE
# Gives a lock of this shell back.  0 always; a line on stderr if it could not.
_intercore_lock_release() {
    local _intercore_status=127 _intercore_err=''
    if _intercore_find; then
        _intercore_status=0
        _intercore_err=$(_intercore_become --if-database lock release \
            "--owner=$$:$(_intercore_host)" -- "${1-}" "${2-}" 2>&1 >/dev/null) ||
            _intercore_status=$?
    fi
    case $_intercore_status in
        0 | 1) ;; # not held, or by another owner by now
        2 | 3) printf '%s\n' "$_intercore_err" >&2 ;;
        *) (_intercore_late here unlock "${1-}" "${2-}") || return 0 ;;
    esac
}

# intercore_lock_clean [OLDER_THAN]
# Removes locks whose owner is dead, taken 5s ago or OLDER_THAN; there is no need to, for the next
# caller that asks for one gets it.  0 always; a line on stderr if it could not.
_intercore_lock_clean() {
    local _intercore_status=127
    if _intercore_find; then
        _intercore_status=0
        (_intercore_become --if-database lock clean "--older-than=${1:-5s}") >/dev/null || _intercore_status=$?
    fi
    (( _intercore_status > 3 )) || return 0
    (_intercore_late here clean "${1:-5s}") || return 0
}

# As `hostname -s`; $HOSTNAME may have come from elsewhere with the environment.
_intercore_host() {
    local _intercore_line=''
    IFS= read -r _intercore_line 2>/dev/null </proc/sys/kernel/hostname
    printf '%s' "${_intercore_line%%.*}"
}
TEXT
}

_intercore_text_run() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Runs: what agents work on.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_run_create [-v VAR] ARGUMENT..., and so on
# Take the arguments of `icctl run create` and so on, and print what that prints; intercore_run_tokens
# and intercore_run_budget print JSON.  1 a negative result, such as a budget that is used up, or
# unavailable; 2 could not tell.
# _intercore_run_pass COUNT WORD... [-v VAR] ARGUMENT...: COUNT words of a command, then the caller's.
_intercore_run_pass() {
    local _intercore_to=- _intercore_words=("${@:2:$1}")
    shift "$(( $1 + 1 ))"
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 "${_intercore_words[@]}" ${1+"$@"}
}

# intercore_run_current [-v VAR] [PROJECT]
# Prints the run that is under way in a project, or here.  1 there is none, or unavailable.
_intercore_run_current() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 run current ${1:+"--project=$1"}
}

# intercore_run_phase [-v VAR] RUN
# Prints the phase that a run is in.  1 there is no such run, or unavailable.
_intercore_run_phase() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 run phase -- "${1-}"
}

# intercore_run_advance [-v VAR] RUN [PRIORITY] [IF_PHASE]
# Goes on to the next phase, if it is in IF_PHASE; prints what happened, as JSON.  0 advanced;
# 1 blocked, paused, over, in another phase, no such run, or unavailable; 2 could not tell.
_intercore_run_advance() {
    local _intercore_to=- _intercore_alone=yes # the process that advances starts the agents
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 run advance --json ${2:+"--priority=$2"} ${3:+"--if-phase=$3"} -- "${1-}"
}

# intercore_run_skip RUN PHASE REASON [ACTOR]
# Passes over a phase ahead.  0 noted; 1 not ahead, no such run, or unavailable.
_intercore_run_skip() {
    local _intercore_to=-
    _intercore_answer 1 run skip "--reason=${3-}" ${4:+"--actor=$4"} -- "${1-}" "${2-}"
}

# intercore_run_agent_add [-v VAR] RUN TYPE [NAME] [DISPATCH]
# Notes that an agent works on a run, and prints its id.  1 no such run, or unavailable.
_intercore_run_agent_add() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 run agent add ${2:+"--type=$2"} ${3:+"--name=$3"} ${4:+"--dispatch-id=$4"} \
        -- "${1-}"
}

# intercore_run_artifact_add [-v VAR] RUN PHASE FILE [TYPE]
# Notes what a run has produced, and prints the artifact's id.  1 no such run, or unavailable.
_intercore_run_artifact_add() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 run artifact add "--phase=${2-}" "--path=${3-}" ${4:+"--type=$4"} -- "${1-}"
}

# intercore_run_rollback [-v VAR] RUN PHASE [REASON], intercore_run_rollback_dry [-v VAR] RUN PHASE
# Goes back to an earlier phase, or only tells what that would do; prints it as JSON.  1 that is not
# behind, no such run, or unavailable.
_intercore_run_rollback() {
    local _intercore_to=- _intercore_alone=unlimited # and then ends processes, which takes its time
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 run rollback "--to-phase=${2-}" ${3:+"--reason=$3"} -- "${1-}"
}
_intercore_run_rollback_dry() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 run rollback --dry-run "--to-phase=${2-}" -- "${1-}"
}

# intercore_run_code_rollback [-v VAR] RUN [PHASE]
# Prints which files belong to the phases of a run, or to one of them, as JSON.  1 no such run, or
# unavailable.
_intercore_run_code_rollback() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 run rollback --layer=code ${2:+"--phase=$2"} -- "${1-}"
}

# intercore_run_action_add [-v VAR] RUN PHASE COMMAND [ARGS] [MODE]
# Notes what is to be done in a phase, ARGS as a JSON array, and prints its number as JSON.  1 it is
# there, no such run, or unavailable; 2 could not tell.
_intercore_run_action_add() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 run action add --json "--phase=${2-}" "--command=${3-}" ${4:+"--args=$4"} \
        ${5:+"--mode=$5"} -- "${1-}"
}

# intercore_run_action_list [-v VAR] RUN [PHASE]
# Prints the actions of a run, or of a phase, as JSON.  1 unavailable; 2 could not tell.
_intercore_run_action_list() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 run action list --json ${2:+"--phase=$2"} -- "${1-}"
}

# intercore_run_action_update RUN PHASE COMMAND [ARGS] [MODE] [PRIORITY]
# intercore_run_action_delete RUN PHASE COMMAND
# Change and delete an action.  0 done; 1 there is none, or unavailable; 2 could not tell.
_intercore_run_action_update() {
    local _intercore_to=.
    _intercore_answer 1 run action update "--phase=${2-}" "--command=${3-}" ${4:+"--args=$4"} \
        ${5:+"--mode=$5"} ${6:+"--priority=$6"} -- "${1-}"
}
_intercore_run_action_delete() {
    local _intercore_to=.
    _intercore_answer 1 run action delete "--phase=${2-}" "--command=${3-}" -- "${1-}"
}
TEXT
}

_intercore_text_sentinel() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Sentinels: what few hooks use.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_sentinel_check_many [-v VAR] NAME:SCOPE:INTERVAL...
# Prints a line for each: name, scope, and allowed or throttled, separated by tabs; nothing if it is
# unavailable.  0 all are allowed, or unavailable; 1 at least one is throttled; 2 could not tell.
_intercore_sentinel_check_many() {
    local _intercore_to=- _intercore_status=0
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_call "$_intercore_to" sentinel check-many -- "$@" || _intercore_status=$?
    _intercore_default 0 "$_intercore_status"
}

# intercore_sentinel_reset_or_legacy NAME SCOPE [GLOB]
# Lets a guard fire again; unavailable: removes the legacy files.  0 always.
_intercore_sentinel_reset_or_legacy() {
    _intercore_call . sentinel reset -- "${1-}" "${2-}" || _intercore_remove "$?" "${3-}"
}

# intercore_sentinel_reset_all NAME [GLOB]
# The same for all scopes.  0 always.
_intercore_sentinel_reset_all() {
    _intercore_call . sentinel reset --all -- "${1-}" || _intercore_remove "$?" "${2-}"
}

# intercore_cleanup_stale
# Removes guards that fired over an hour ago and throttle no caller any more; unavailable: legacy guard
# files that old.  0 always.
_intercore_sentinel_clean() {
    local _intercore_status=0
    _intercore_call . sentinel prune --older-than=1h --keep-live || _intercore_status=$?
    [[ $_intercore_status == "$_intercore_unavailable" ]] || return 0
    _intercore_late legacy clean || return 0
}
TEXT
}

_intercore_text_state() {
    _intercore_parse <<'TEXT'
# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# State: what few hooks use.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_state_incr [-v VAR] KEY SCOPE [BY] [TTL]
# Adds to a counter and prints its new value.  1 unavailable, nothing is printed; 2 not counted.
_intercore_state_incr() {
    local _intercore_to=- _intercore_status=0
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_call "$_intercore_to" state incr ${3:+"--by=$3"} ${4:+"--ttl=$4"} \
        -- "${1-}" "${2-}" || _intercore_status=$?
    _intercore_default 1 "$_intercore_status"
}

# intercore_state_delete_all KEY [GLOB]
# Deletes the rows of all scopes; unavailable: removes the legacy files.  0 always.
_intercore_state_delete_all() {
    _intercore_call . state delete --all -- "${1-}" || _intercore_remove "$?" "${2-}"
}
TEXT
}
