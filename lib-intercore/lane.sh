# shellcheck shell=bash disable=SC2034,SC2154 # the core's variables
# Lanes: streams of work and their issues.
[[ ${_intercore_core-} == 1 ]] || return 1

# intercore_lane_create [-v VAR] NAME [TYPE] [DESCRIPTION] [INTENT]
# Creates a lane, standing or arc, and prints its id.  1 unavailable; 2 the name is taken, or could
# not tell.
_intercore_lane_create() {
    local _intercore_to=-
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 lane create "--name=${1-}" ${2:+"--type=$2"} ${3:+"--description=$3"} \
        ${4:+"--intent=$4"}
}

# intercore_lane_sync LANE BEADS
# Has exactly these issues, separated by commas, in the lane.  1 unavailable; 2 no such lane, or
# could not tell.
_intercore_lane_sync() {
    local _intercore_to=.
    _intercore_answer 1 lane sync "--bead-ids=${2-}" -- "${1-}"
}

# intercore_lane_status [-v VAR] LANE, intercore_lane_members [-v VAR] LANE
# Print a lane, or the issues in it, as JSON.  1 unavailable; 2 no such lane, or could not tell.
_intercore_lane_show() {
    local _intercore_to=- _intercore_what=$1
    shift
    if [[ ${1-} == -v ]]; then _intercore_to=${2-}; shift 2 || return 3; fi
    _intercore_answer 1 lane "$_intercore_what" --json -- "${1-}"
}
