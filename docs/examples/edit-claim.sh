#!/usr/bin/env bash
# Claims a file for the session that is about to edit it; another session that holds it is named, and
# the edit is blocked.
#
# Claude Code, Codex: PreToolUse.  Gemini: BeforeTool.  Cursor: preToolUse.
#
# The claim is a lease: it ends ten minutes after the last edit, and outlives the agent's processes.
# `icctl lease list edit` shows who has what; `icctl lease release edit FILE --owner=SESSION` gives a
# claim back.
# Blocking is exit 2 with the reason on stderr, in all four agents.
# Whatever is wrong with intercore, the edit goes on: exit 0.

set -uo pipefail
# shellcheck source=/dev/null
source "$(icctl lib-path 2>/dev/null)" 2>/dev/null || exit 0

intercore_event
[[ -n $INTERCORE_SESSION && -n $INTERCORE_FILE ]] || exit 0
cd -- "${INTERCORE_CWD:-.}" 2>/dev/null || exit 0
intercore_available 2>/dev/null || exit 0 # without a database, no session can have it

# One file is one claim, whatever it is called: a/../b, ./b, or by a link.
file=$(realpath -m -- "$INTERCORE_FILE" 2>/dev/null) || file=
if [[ -z $file ]]; then # a realpath that cannot name what is not there yet
    file=$INTERCORE_FILE
    [[ $file == /* ]] || file=$PWD/$file
fi
reason=$(intercore_lease_acquire edit "$file" 10m "$INTERCORE_SESSION" 2>&1 >/dev/null)
(( $? == 1 )) || exit 0 # 0 it is ours; 2 or more: could not tell

printf 'Another session is editing this file: %s\nWork on something else, or ask again later.\n' \
    "${reason#*: lease acquire: }" >&2
exit 2
