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
