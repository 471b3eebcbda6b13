#!/usr/bin/env bash
# Reserves what is about to be edited for the session that edits; if another session holds a file, it
# is named, and the edit is blocked.
#
# Claude Code, Codex: PreToolUse.  Gemini: BeforeTool.  Cursor: preToolUse.
#
# A reservation ends ten minutes after the session's last edit of the file, and outlives the agent's
# processes.  `icctl coordination list --active` shows who has what; `icctl coordination release
# --owner=SESSION` gives up what a session has.
# `icctl hook reserve` answers in the dialect of each of the four agents, on stdout.
# Whatever is wrong with intercore, the edit goes on: exit 0.

command -v icctl >/dev/null || exit 0
icctl hook reserve --ttl=10m 2>/dev/null
exit 0
