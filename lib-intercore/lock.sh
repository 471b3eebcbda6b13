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
