# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# The event that an agent sends to its hook.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_event
# Reads the event from stdin, once, and sets, each empty if the event does not tell:
#   INTERCORE_EVENT        its name, as the agent spells it
#   INTERCORE_TOOL         the tool that is, or was, called
#   INTERCORE_FILE         the file that the tool is about
#   INTERCORE_CWD          the directory that the agent works in
#   INTERCORE_AGENT        claude, codex, gemini or cursor
#   INTERCORE_EVENT_JSON   all of it, unless it has a mebibyte or more, or is no object
#   INTERCORE_SESSION      the agent's session; if the event has none, that of this shell
# None of them is evaluated or exported, and calls of icctl from this shell have the session.  0 always.
_intercore_event_take() {
    [[ $_intercore_heard != "$$" ]] || return 0
    _intercore_heard=$$
    local _i_json='' _intercore_id='' _i_talk='' _i_name='' _i_tool=''
    local _i_path='' _i_root='' _i_cwd='' _i_log='' _i_turn='' _i_agent=''
    local _i_cut=''
    _intercore_event_hear
    [[ $_i_json != *[!' '$'\t\r\n']* || ${_i_json:0:1} == '{' ]] ||
        _i_json=${_i_json#"${_i_json%%[!' '$'\t\r\n']*}"}
    if [[ ${_i_json:0:1} == '{' ]]; then
        _intercore_event_parse
    else
        _i_json=
    fi
    _intercore_event_whose
    : "${_intercore_id:=$_i_talk}"
    [[ -n $_intercore_id ]] || _intercore_whose
    _intercore_event_set INTERCORE_EVENT "$_i_name"
    _intercore_event_set INTERCORE_TOOL "$_i_tool"
    _intercore_event_set INTERCORE_FILE "$_i_path"
    _intercore_event_set INTERCORE_CWD "${_i_cwd:-$_i_root}"
    _intercore_event_set INTERCORE_AGENT "$_i_agent"
    _intercore_event_set INTERCORE_SESSION "$_intercore_id"
    [[ -z $_i_cut ]] || _i_json=
    _intercore_event_set INTERCORE_EVENT_JSON "$_i_json"
}

# Also where the caller made one of them read-only; `set -a` would make a long event an obstacle to
# every program that is started.
_intercore_event_set() {
    printf -v "$1" '%s' "$2" 2>/dev/null || return 0
    export -n "${1?}"
}

# All of stdin, so that its writer need not wait, and the beginning of it in `_i_json`;
# `_i_cut` if that is not all.  An agent that says nothing must not hang its hook; -t is for
# the first character only, for it costs a system call with each.
_intercore_event_hear() {
    local _i_part='' _i_parts=0
    [[ ! -t 0 ]] || return 0
    IFS= read -r -t 5 -N 1 _i_json 2>/dev/null || return 0
    IFS= read -r -N 1048575 _i_part 2>/dev/null && _i_cut=yes
    _i_json+=$_i_part
    while [[ -n $_i_cut ]] && (( _i_parts++ < 64 )); do
        IFS= read -r -N 1048576 _i_part 2>/dev/null || return 0
    done
}

# What stands between two quotes is a string, or what is between strings.  Splitting is one pass, and
# no character of the event is evaluated; a loop over characters, or a replacement of all quotes,
# would take bash minutes for a long file.
_intercore_event_parse() {
    local IFS='"' _i_options=$- _i_pieces _i_piece _i_inside=
    local _i_raw='' _i_whole='' _i_stack='' _i_key='' _i_sub=''
    local _i_skip=
    set -f
    # shellcheck disable=SC2206 # that is the point
    _i_pieces=($_i_json)
    [[ $_i_options == *f* ]] || set +f
    for _i_piece in "${_i_pieces[@]:0:30000}"; do
        if [[ -z $_i_inside ]]; then
            _intercore_event_between "$_i_piece" || return 0
            _i_inside=yes _i_raw='' _i_whole=
            continue
        fi
        [[ -n $_i_skip ]] || _intercore_event_add "$_i_piece"
        _i_inside='' _i_whole=yes
        [[ $_i_piece == *\\ ]] || continue
        _intercore_event_ends && continue
        (( $? == 1 )) || return 0
        _i_inside=yes _i_whole=
        [[ -n $_i_skip ]] || _i_raw+='"'
    done
}

_intercore_event_add() {
    (( ${#_i_raw} > 24576 )) || _i_raw+=$1
}

# A piece that ends in a backslash: 0 if its string ends here, 1 if the quote behind it is escaped;
# 2 for so many backslashes that bash would take long to count them.
_intercore_event_ends() {
    [[ $_i_piece == *\\\\ ]] || return 1
    local _i_tail=$_i_piece
    (( ${#_i_tail} <= 4096 )) || _i_tail=${_i_tail: -4096}
    _i_tail=${_i_tail##*[!\\]}
    (( ${#_i_tail} < 4096 )) || return 2
    (( ${#_i_tail} % 2 == 0 ))
}

# What is between two strings: whether the one before was a key, and which brackets open and close.
# 1 if nothing more is to be found.
_intercore_event_between() {
    local _i_text=$1 _i_part _i_at
    _i_text=${_i_text#"${_i_text%%[!' '$'\t\r\n']*}"}
    _i_skip=
    if [[ -n $_i_whole && ${_i_text:0:1} == : ]]; then
        _intercore_event_key || return
        # What follows is its value only if that is a string.
        [[ ${_i_text:1} != *[!' '$'\t\r\n']* ]] || _i_skip=
    elif [[ -n $_i_whole ]]; then
        _intercore_event_value
    fi
    [[ $_i_text == *[][{}]* ]] || return 0
    (( ${#_i_text} < 16384 )) || return 1
    while [[ -n $_i_text ]]; do
        _i_part=${_i_text:0:128} _i_text=${_i_text:128}
        for (( _i_at = 0; _i_at < ${#_i_part}; _i_at++ )); do
            case ${_i_part:_i_at:1} in
                '{') _i_stack+='{' ;;
                '[') _i_stack+='[' ;;
                '}' | ']') _i_stack=${_i_stack%?} ;;
                *) continue ;;
            esac
            [[ -n $_i_stack ]] && (( ${#_i_stack} < 1000 )) || return 1
        done
    done
}

# The string was a key: of the event, or of what is in it.  `_i_skip` if its value does not
# count; 1 if the longest and last one follows.
_intercore_event_key() {
    case $_i_stack in
        '{') _i_key=$_i_raw _i_sub='' ;;
        '{{') _i_sub=$_i_raw ;;
    esac
    case $_i_stack$_i_key in
        '{cursor_version') : "${_i_agent:=cursor}" ;;
        '{turn_id') _i_turn=yes ;; # some events of Claude Code have one, too
        '{timestamp') : "${_i_agent:=gemini}" ;;
        '{tool_response' | '{tool_output' | '{llm_request')
            [[ -z $_intercore_id || -z $_i_name || -z $_i_cwd ]] || return 1 ;;
    esac
    case $_i_stack$_i_key$_i_sub in
        '{'*_id | '{hook_event_name' | '{tool_name' | '{cwd' | '{'*_path | '{{tool_inputpath' | '{{tool_inputcommand') ;;
        *) _i_skip=yes ;;
    esac
}

# A string that is no key, where it counts: in the event itself, in the input of a tool, or as the
# first of a list.  The first of two counts.
_intercore_event_value() {
    case $_i_stack$_i_key$_i_sub in
        '{session_id') _intercore_event_text _intercore_id ;;
        '{conversation_id') _i_agent=cursor; _intercore_event_text _i_talk ;;
        '{hook_event_name') _intercore_event_text _i_name ;;
        '{tool_name') _intercore_event_text _i_tool ;;
        '{cwd') _intercore_event_text _i_cwd ;;
        '{transcript_path') _intercore_event_text _i_log ;;
        '{[workspace_roots') _intercore_event_text _i_root ;;
        '{file_path' | '{{tool_inputfile_path' | '{{tool_inputpath' | '{{tool_inputnotebook_path')
            _intercore_event_text _i_path ;;
        '{{tool_inputcommand') # of a patch, the first file
            [[ $_i_tool == apply_patch ]] || return 0
            local _i_patch='\*\*\* (Add|Update|Delete) File: (([^\\]|\\[^n])*)'
            [[ $_i_raw =~ $_i_patch ]] || return 0
            _i_raw=${BASH_REMATCH[2]}
            _intercore_event_text _i_path ;;
    esac
}

# _intercore_event_text VARIABLE: the string in `_i_raw`, unless there is one already.  What
# is longer than a path can be, or holds what no variable can, is not taken.
_intercore_event_text() {
    [[ -z ${!1} ]] && (( ${#_i_raw} <= 24576 )) || return 0
    local _i_rest=$_i_raw _i_out='' _i_char _i_code
    while [[ $_i_rest == *\\* ]]; do
        _i_out+=${_i_rest%%\\*}
        _i_rest=${_i_rest#*\\}
        _i_char=${_i_rest:0:1} _i_rest=${_i_rest:1}
        case $_i_char in
            '"' | \\ | /) ;;
            b) _i_char=$'\b' ;;
            f) _i_char=$'\f' ;;
            n) _i_char=$'\n' ;;
            r) _i_char=$'\r' ;;
            t) _i_char=$'\t' ;;
            u) _intercore_event_unicode || return 0 ;;
            *) return 0 ;;
        esac
        _i_out+=$_i_char
    done
    _i_out+=$_i_rest
    (( ${#_i_out} <= 4096 )) || return 0 # PATH_MAX
    printf -v "$1" '%s' "$_i_out"
}

# The character of \uXXXX, of which `_i_rest` begins with the digits, in UTF-8 whatever the
# locale is; a surrogate without its other half is U+FFFD.  1 if it is none, or NUL.
_intercore_event_unicode() {
    local _i_hex='[0123456789abcdefABCDEF]' _i_low
    _i_hex=$_i_hex$_i_hex$_i_hex$_i_hex
    # shellcheck disable=SC2053 # a pattern
    [[ ${_i_rest:0:4} == $_i_hex ]] || return 1
    _i_code=$(( 16#${_i_rest:0:4} )) _i_rest=${_i_rest:4}
    if (( _i_code >= 0xD800 && _i_code < 0xE000 )); then
        _i_low=${_i_rest:2:4}
        # shellcheck disable=SC2053
        if (( _i_code < 0xDC00 )) && [[ ${_i_rest:0:2} == '\u' &&
            $_i_low == $_i_hex ]] &&
            (( 16#$_i_low >= 0xDC00 && 16#$_i_low < 0xE000 )); then
            _i_code=$(( 0x10000 + ((_i_code - 0xD800) << 10) + 16#$_i_low - 0xDC00 ))
            _i_rest=${_i_rest:6}
        else
            _i_code=$(( 0xFFFD ))
        fi
    fi
    (( _i_code )) || return 1
    _i_hex='' _i_low=$(( _i_code < 0x80 ? 0 : _i_code < 0x800 ? 1 : _i_code < 0x10000 ? 2 : 3 ))
    if (( _i_low )); then # how many bytes follow the first
        local _i_byte=0
        for (( ; _i_byte < _i_low; _i_byte++, _i_code >>= 6 )); do
            printf -v _i_hex '\\0%03o%s' "$(( 0x80 | _i_code & 0x3F ))" "$_i_hex"
        done
        _i_code=$(( (0xFF00 >> _i_low + 1 & 0xFF) | _i_code ))
    fi
    printf -v _i_char '\\0%03o%s' "$_i_code" "$_i_hex"
    printf -v _i_char '%b' "$_i_char"
}

# Which agent it is, if no field has told: by the names of its events and of its files.
_intercore_event_whose() {
    [[ -z $_i_turn || -n $_i_log ]] || : "${_i_agent:=codex}"
    [[ -z $_i_agent ]] || return 0
    case $_i_name:$_i_log in
        :) ;;
        Before[ATM]*:* | After[ATM]*:* | PreCompress:* | *:*/.gemini/*) _i_agent=gemini ;;
        [[:lower:]]*:* | *:*/.cursor/*) _i_agent=cursor ;;
        *:*/rollout-* | *:*/.codex/*) _i_agent=codex ;;
        *) _i_agent=claude ;;
    esac
}
