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
