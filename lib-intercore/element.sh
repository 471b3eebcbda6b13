# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Whether a name, behind -v, is an element of an array.
[[ ${_intercore_core-} == 1 ]] || return 1

# Whether it is an element of an array.  bash would compute what stands between the brackets, and run
# commands in it, unless it is a number or the array is associative.
_intercore_element_check() {
    local _intercore_array=${1%%\[*} _intercore_index=${1#*\[} _intercore_kind
    _intercore_index=${_intercore_index%\]}
    [[ $1 == "${_intercore_array}[$_intercore_index]" && $_intercore_array == [a-zA-Z_]* ]] || return
    [[ -n $_intercore_index && $_intercore_array$_intercore_index != *[!a-zA-Z0-9_]* ]] || return
    [[ $_intercore_index == *[!0-9]* || $_intercore_index == 0?* ]] || return 0
    _intercore_kind=$(declare -p "$_intercore_array" 2>/dev/null) || return
    _intercore_kind=${_intercore_kind#declare -}
    [[ ${_intercore_kind%% *} == *A* ]]
}
