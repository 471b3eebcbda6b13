# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Locks without a program: the rules are those of icd/features/locks/store.py; only for subshells.
[[ ${_intercore_core-} == 1 ]] || return 1

# Sets what all of them need, and checks the words and the directories.
_intercore_here_begin() {
    # The caller's ways of splitting words, and of meeting failures, are not ours.
    set +eu
    trap - ERR DEBUG
    IFS=$' \t\n'
    umask 077
    base=${INTERCORE_LOCK_DIR:-/tmp/intercore/locks} name=$1 scope=$2
    if [[ $base != /* ]]; then
        printf '%s\n' "intercore: INTERCORE_LOCK_DIR is not an absolute path: $base" >&2
        return 3
    fi
    while [[ $base == ?*/ ]]; do base=${base%/}; done
    host='' boot='' pidns='' start=''
    IFS= read -r host 2>/dev/null </proc/sys/kernel/hostname
    IFS= read -r boot 2>/dev/null </proc/sys/kernel/random/boot_id
    pidns=$(command readlink "/proc/$$/ns/pid" 2>/dev/null)
    _intercore_process "$$" && ! _intercore_has_ended && start=${process[19]}
    if [[ -z $start ]]; then
        printf '%s\n' "intercore: locks need /proc, and a shell that has not ended" >&2
        return 2
    fi
    local word
    for word in "$name" "$scope"; do
        if [[ -z $word || $word == . || $word == *..* || $word == *[/\\[:cntrl:]]* || $name == .work ]]
        then
            printf '%s\n' "intercore: invalid lock name or scope" >&2
            return 2
        fi
    done
    lock=$base/$name/$scope
    unique=$base/.work/$$.$start.$BASHPID-$RANDOM$RANDOM$RANDOM
}

# Whether a directory is there, made if need be, and ours alone.
_intercore_own() {
    local mode
    [[ $2 != make || -d $1 ]] || command mkdir -m 700 -- "$1" 2>/dev/null
    [[ -e $1 || -L $1 || $2 == make ]] || return 1
    mode=$(command stat -c %a -- "$1" 2>/dev/null) || mode=777
    [[ -d $1 && ! -L $1 && -O $1 ]] && (( (8#$mode & 8#22) == 0 )) && return 0
    printf '%s\n' "intercore: $1 is no directory that only we can write to" >&2
    exit 2
}

# _intercore_own_all make|look [NAME]: all directories on the way, from the top.
_intercore_own_all() {
    [[ $base != /tmp/intercore/locks ]] || _intercore_own /tmp/intercore "$1" || return 1
    _intercore_own "$base" "$1" && _intercore_own "$base/.work" make || return 1
    [[ -z ${2-} ]] || _intercore_own "$base/$2" "$1"
}

# The fields of /proc/PID/stat that follow the name: the state is the first, the start the 20th.
_intercore_process() {
    local line=''
    process=()
    IFS= read -r -d '' line 2>/dev/null <"/proc/$1/stat"
    [[ $line == *') '* ]] && read -r -a process <<<"${line##*) }"
}

# A zombie; with threads left, only the first of them is one.
_intercore_has_ended() { [[ ${process[0]} == [ZX] ]] && (( process[17] <= 1 )); }

# Look at a lock: 0 held, and `owner`, `pid`, `age` and `liveness` say by whom; 1 free.
_intercore_look() {
    local data='' created now its_host its_boot its_pidns its_start
    owner='' pid='' age=0 liveness=unknown
    [[ -e $1 || -L $1 ]] || return 1
    [[ ! -f $1/owner.json || -L $1/owner.json ]] || IFS= read -r -d '' -n 8192 data 2>/dev/null <"$1/owner.json"
    printf -v now '%(%s)T' -1
    _intercore_field owner owner '"(([^"\\]|\\.)*)"'
    _intercore_field pid pid '(-?[0-9]{1,9})'
    _intercore_field created created '([0-9]{1,12})'
    _intercore_field its_host host '"([^"\\]*)"'
    _intercore_field its_start start '([0-9]{1,18})'
    _intercore_field its_boot boot '"([^"\\]*)"'
    _intercore_field its_pidns pidns '"([^"\\]*)"'
    if [[ -z $pid || -z $owner ]]; then
        owner='' # unknown, and so the lock is never broken
        created=$(_intercore_mtime "$1") || return 1
    fi
    age=$(( now - ${created:-now} ))
    [[ -n $owner ]] || return 0
    _intercore_judge
}

_intercore_field() {
    local pattern="\"$2\": ?$3"
    if [[ $data =~ $pattern ]]; then printf -v "$1" '%s' "${BASH_REMATCH[1]}"; else printf -v "$1" ''; fi
}

# As `liveness` in icd/features/locks/owners.py: dead only if that is certain.
_intercore_judge() {
    if [[ -z $boot || -z $pidns || $its_boot != "$boot" || $its_pidns != "$pidns" ]]; then
        [[ ${its_host%%.*} == "${host%%.*}" ]] || return 0
        [[ $its_host != *.* || $host != *.* || $its_host == "$host" ]] || return 0
    fi
    if [[ -n $its_boot && -n $boot && $its_boot != "$boot" ]]; then
        liveness=dead
    elif [[ -n $its_pidns && $its_pidns != "$pidns" ]]; then
        return 0
    elif [[ $pid == -* ]] || (( 10#$pid == 0 )); then
        liveness=dead
    elif ! _intercore_process "$pid"; then
        [[ -e /proc/$pid ]] || kill -0 "$pid" 2>/dev/null || liveness=dead
    elif _intercore_has_ended; then
        liveness=dead
    elif [[ ${its_start:-0} != 0 && ${process[19]} != "$its_start" ]]; then
        liveness=dead
    else
        liveness=alive
    fi
}

# _intercore_gone SECONDS LOCK NAME CONDITION...: remove a lock if, under the flock, which is waited
# for so long, the condition holds.
_intercore_gone() {
    local wait=$1 path=$2 top=$base/$3 fd
    shift 3
    command -v flock >/dev/null || return 1 # then no process may remove anything
    while [[ -d $top ]]; do
        exec {fd}<"$top" || return 1
        if ! command flock -w "$wait" "$fd"; then
            exec {fd}<&-
            return 1
        fi
        if [[ /proc/self/fd/$fd -ef $top ]]; then
            _intercore_look "$path" && "$@" && command mv -T -- "$path" "$unique" 2>/dev/null
            set -- $?
            exec {fd}<&-
            command rm -rf -- "$unique"
            return "$1"
        fi
        exec {fd}<&-
    done
    return 1
}

_intercore_is_dead() { [[ $liveness == dead ]]; }
_intercore_is_ours() { [[ ${owner%%:*} == "$$" && $liveness == alive ]]; }
_intercore_is_forsaken() {
    if [[ -z $owner ]]; then (( age >= 5 && age * 1000 >= older )); return; fi
    [[ $liveness == dead ]] && (( age * 1000 >= older ))
}

# Milliseconds, from a duration such as 500ms, 5s or 2m.
_intercore_milliseconds() {
    case $1 in
        *[!0-9]*ms | ms) ;;
        *ms) ms=$(( 10#${1%ms} )); return ;;
        *[!0-9]*[smh] | [smh]) ;;
        *s) ms=$(( 10#${1%s} * 1000 )); return ;;
        *m) ms=$(( 10#${1%m} * 60000 )); return ;;
        *h) ms=$(( 10#${1%h} * 3600000 )); return ;;
    esac
    printf '%s\n' "intercore: invalid duration '$1': write 500ms, 5s or 2m" >&2
    return 3
}

# Milliseconds since boot: a clock that is never set.
_intercore_uptime() {
    local line
    read -r line _ </proc/uptime
    uptime=$(( 10#${line/./} * 10 ))
}

_intercore_here_lock() {
    local base name scope host boot pidns start lock unique process owner pid age liveness
    local ms uptime deadline text now left tries=0 nap
    _intercore_milliseconds "$3" || return
    _intercore_here_begin "$1" "$2" || return
    _intercore_uptime
    deadline=$(( uptime + ms ))
    _intercore_own_all make "$name" || return 2
    # A pipe that says nothing: to wait for it takes no process, as sleep would.  In quotes, because a
    # bash before 5.1 in POSIX mode could not parse it, and so nothing of this text.
    eval 'exec {nap}<> <(:)'
    while :; do
        if [[ ! -e $lock && ! -L $lock ]]; then
            printf -v now '%(%s)T' -1
            printf -v text '{"pid":%d,"host":"%s","owner":"%s","created":%d,"start":%d,"boot":"%s","pidns":"%s"}' \
                "$$" "${host%%.*}" "$$:${host%%.*}" "$now" "$start" "$boot" "$pidns"
            # Whole or not at all, and only to where nothing is: the status of mv does not tell.
            if ! { command mkdir -m 700 -- "$unique" && printf '%s' "$text" >"$unique/owner.json"; }; then
                command rm -rf -- "$unique"
                return 2
            fi
            if command mv -nT -- "$unique" "$lock" 2>/dev/null; [[ ! -e $unique ]]; then
                _intercore_look "$lock" && _intercore_is_ours && return 0
                _intercore_here_begin "$name" "$scope" || return 2 # this shell has ended meanwhile
            fi
            command rm -rf -- "$unique"
            [[ -d $base/$name ]] || _intercore_own_all make "$name"
        fi
        _intercore_uptime
        left=$(( deadline - uptime ))
        if _intercore_look "$lock"; then
            if [[ $liveness == dead ]] && _intercore_gone 0.01 "$lock" "$name" _intercore_is_dead; then
                continue
            fi
            if (( left <= 0 )); then
                printf '%s\n' "intercore: lock $name/$scope is held by process ${pid:-?} (owner ${owner:-unknown}) for $age s; liveness: $liveness" >&2
                return 1
            fi
            (( left < 20 )) || left=20
            read -r -t "0.0$(( left / 10 ))$(( left % 10 ))" -u "$nap" _
        elif (( left <= 0 && ++tries > 3 )); then
            printf '%s\n' "intercore: lock $name/$scope is under heavy contention" >&2
            return 1
        fi
    done
}

_intercore_here_unlock() {
    local base name scope host boot pidns start lock unique process owner pid age liveness
    _intercore_here_begin "$1" "$2" && _intercore_own_all look "$name" || return
    _intercore_gone 2 "$lock" "$name" _intercore_is_ours && return
    if _intercore_look "$lock" && _intercore_is_ours; then # there is no flock, or another process keeps it
        printf '%s\n' "intercore: lock $name/$scope could not be released; it ends with this shell" >&2
    fi
}

_intercore_here_clean() {
    local base name scope host boot pidns start lock unique process owner pid age liveness
    local ms older path
    _intercore_milliseconds "$1" && _intercore_here_begin any any && _intercore_own_all look || return
    older=$ms
    command find "$base" -mindepth 2 -maxdepth 2 -print0 2>/dev/null | while IFS= read -r -d '' path; do
        name=${path%/*} name=${name##*/}
        [[ $name != .work ]] && _intercore_own "$base/$name" look && # what lies there is no lock
            _intercore_look "$path" && _intercore_is_forsaken &&
            _intercore_gone 2 "$path" "$name" _intercore_is_forsaken
    done
}
