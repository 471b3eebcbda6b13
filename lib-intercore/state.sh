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
