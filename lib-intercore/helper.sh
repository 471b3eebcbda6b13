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
