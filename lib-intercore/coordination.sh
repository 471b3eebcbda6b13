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
