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
