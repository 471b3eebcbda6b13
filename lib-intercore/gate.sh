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
