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
