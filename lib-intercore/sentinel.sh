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
