#!/usr/bin/env bash
# Formats the file that an agent has edited, one formatter at a time per project.
#
# Claude Code, Codex: PostToolUse.  Gemini: AfterTool.  Cursor: afterFileEdit.
#
#   format-one-at-a-time.sh [FORMATTER [ARGUMENT]...]
#
# Agents start the hooks of several edits at the same time, and two formatters of one file overwrite
# each other's work.  The lock needs no database, and ends with this process, however it ends.
# FORMATTER gets the path as its last argument; left out, the suffix decides.
# Exit 1 if the formatter fails, with what it says on stderr; an agent goes on.

set -uo pipefail
# shellcheck source=/dev/null
source "$(icctl lib-path 2>/dev/null)" 2>/dev/null || exit 0

intercore_event
cd -- "${INTERCORE_CWD:-.}" 2>/dev/null || exit 0
[[ -f $INTERCORE_FILE ]] || exit 0 # no file, or deleted meanwhile

formatter=("$@")
if (( ! $# )); then
    case $INTERCORE_FILE in
        *.py) formatter=(ruff format --quiet) ;;
        *.go) formatter=(gofmt -w) ;;
        *.rs) formatter=(rustfmt) ;;
        *.js | *.ts | *.tsx | *.css | *.json | *.md) formatter=(prettier --write --log-level=warn) ;;
        *) exit 0 ;;
    esac
fi
command -v "${formatter[0]}" >/dev/null || exit 0

# A name of a lock has no slashes, and is a name of a file.
project=${PWD//[!a-zA-Z0-9]/_}
(( ${#project} <= 200 )) || project=${project: -200}
intercore_lock format "$project" 20s || exit 0
status=0
"${formatter[@]}" "$INTERCORE_FILE" >&2 || status=1
intercore_unlock format "$project"
exit "$status"
