"""The nouns of a pipeline.  Made by `make docs` from the rows of the verbs: do not edit."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from icctl.api import nouns
from icctl.api.requests import Duration, Json, ms, whole_seconds

if TYPE_CHECKING:
    from icctl.api.made import results
    from icctl.api.requests import Reply


class State(nouns.Queued):
    def set(
        self,
        key: str,
        scope: str,
        payload: Json,
        *,
        ttl: Duration = 0,
        if_version: int | None = None,
        debounce: Duration = 0,
        request_id: str | None = None,
    ) -> Reply[results.StateWritten]:
        """Store a JSON payload.

        key: Key of the row.
        scope: Scope of the row, such as a session id.
        payload: JSON document, stored byte for byte.
        ttl: Expire the row after this time.
        if_version: Write only if the row is at this version (0: absent).
        debounce: Skip a write of an unchanged payload within this time.
        """
        return self._host.queue(
            "state.set",
            {
                "key": key,
                "scope_id": scope,
                "payload": payload,
                "ttl_ms": ms(ttl),
                "if_version": if_version,
                "debounce_ms": ms(debounce),
            },
            request_id,
        )

    def get(self, key: str, scope: str) -> Reply[results.StateDocument | None]:
        """Return a row, or null if it is absent.

        key: Key of the row.
        scope: Scope of the row, such as a session id.
        """
        return self._host.queue("state.get", {"key": key, "scope_id": scope})

    def delete(
        self, key: str, scope: str, *, request_id: str | None = None
    ) -> Reply[results.StateDeleted]:
        """Delete a row.

        key: Key of the row.
        scope: Scope of the row, such as a session id.
        """
        return self._host.queue("state.delete", {"key": key, "scope_id": scope}, request_id)

    def delete_all(self, key: str, *, request_id: str | None = None) -> Reply[results.StateDeleted]:
        """Delete the rows of a key in all scopes.

        key: Key of the row.
        """
        return self._host.queue("state.delete_all", {"key": key}, request_id)

    def incr(
        self, key: str, scope: str, *, by: int = 1, ttl: Duration = 0, request_id: str | None = None
    ) -> Reply[results.StateWritten]:
        """Add to a counter atomically and return its value; an existing counter keeps its expiry.

        key: Key of the row.
        scope: Scope of the row, such as a session id.
        by: Number to add (default 1).
        ttl: Expiry of a counter that this call creates.
        """
        return self._host.queue(
            "state.incr", {"key": key, "scope_id": scope, "by": by, "ttl_ms": ms(ttl)}, request_id
        )

    def touch(
        self, key: str, scope: str, *, ttl: Duration, request_id: str | None = None
    ) -> Reply[results.StateWritten | None]:
        """Change the expiry of a row, which gets a new version; null if the row is absent.

        key: Key of the row.
        scope: Scope of the row, such as a session id.
        ttl: Expire the row after this time; 0: never.
        """
        return self._host.queue(
            "state.touch", {"key": key, "scope_id": scope, "ttl_ms": ms(ttl)}, request_id
        )

    def list(
        self, key: str | None = None, *, prefix: str | None = None
    ) -> Reply[builtins.list[results.StateName]]:
        """List the rows of a key, of all keys with a prefix, or all, without their payloads.

        key: Key of the row.
        prefix: List only keys that start with P, with their scopes.
        """
        return self._host.queue("state.list", {"key": key, "prefix": prefix})

    def prune(self, *, request_id: str | None = None) -> Reply[results.StatePruned]:
        """Delete expired rows now; reads ignore them already."""
        return self._host.queue("state.prune", {}, request_id)


class Sentinel(nouns.Queued):
    def check(
        self, name: str, scope: str, *, interval: Duration, request_id: str | None = None
    ) -> Reply[results.SentinelChecked]:
        """Claim a sentinel.
        Exactly one caller per interval is allowed.
        Interval 0 allows one claim per scope, until the claim is reset or pruned.
        The claim stands even if the caller crashes afterwards: a retry is throttled.
        For work that must complete, record started and done in state as well.

        name: Name of the sentinel.
        scope: Scope, such as a session id.
        interval: Interval of the rate limit; 0 allows one claim, once.
        """
        return self._host.queue(
            "sentinel.check",
            {"name": name, "scope_id": scope, "interval": whole_seconds(interval)},
            request_id,
        )

    def check_many(
        self, guards: Sequence[results.SentinelClaim], *, request_id: str | None = None
    ) -> Reply[builtins.list[results.SentinelChecked]]:
        """Claim several sentinels in one transaction.
        The claims are independent, and those that were allowed stand.

        guards: Sentinels to claim.
        """
        return self._host.queue("sentinel.check_many", {"guards": guards}, request_id)

    def reset(
        self, name: str, scope: str, *, request_id: str | None = None
    ) -> Reply[results.SentinelResetCount]:
        """Clear a claim, so that the next check is allowed.

        name: Name of the sentinel.
        scope: Scope, such as a session id.
        """
        return self._host.queue("sentinel.reset", {"name": name, "scope_id": scope}, request_id)

    def reset_all(
        self, name: str, *, request_id: str | None = None
    ) -> Reply[results.SentinelResetCount]:
        """Clear the claims of a name in all scopes.

        name: Name of the sentinel.
        """
        return self._host.queue("sentinel.reset_all", {"name": name}, request_id)

    def list(self) -> Reply[builtins.list[results.Sentinel]]:
        """List the claims with the time of the last one."""
        return self._host.queue("sentinel.list", {})

    def prune(
        self,
        *,
        older_than: Duration,
        keep_once: bool = False,
        keep_live: bool = False,
        request_id: str | None = None,
    ) -> Reply[results.SentinelPruned]:
        """Delete old claims, including once-only claims unless `keep_once` is set.

        older_than: Minimum time since the last claim.
        keep_once: Keep once-only claims (interval 0).
        keep_live: Keep claims that still throttle.
        """
        return self._host.queue(
            "sentinel.prune",
            {"older_than_ms": ms(older_than), "keep_once": keep_once, "keep_live": keep_live},
            request_id,
        )


class Events(nouns.Queued):
    def tail(
        self,
        run_id: str = "",
        *,
        since: int = 0,
        limit: int = 100,
        source: str | None = None,
        type: str | None = None,
        subject_id: str | None = None,
        marks: results.EventMarks | None = None,
        session_id: str | None = None,
        newest: int | None = None,
        until: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        max_age_ms: int | None = None,
        min_age_ms: int | None = None,
    ) -> Reply[results.EventBatch]:
        """Read events in the order in which they were recorded.

        run_id: Include only events of this run.
        since: Include only events after this sequence number.
        limit: Maximum number of events.
        source: Include only events of this source.
        type: Include only events of this type.
        subject_id: Include only events about this subject.
        marks: Last ids seen, by source, as in the original; only later events are read.
        session_id: Include only events of this session.
        newest: Read so many of the newest events, instead of `limit` of the oldest.
        until: Include only events up to this sequence number.
        since_ms: Include only events recorded since this Unix time.
        until_ms: Include only events recorded until this Unix time.
        max_age_ms: Include only events of at most this age.
        min_age_ms: Include only events of at least this age.
        """
        return self._host.queue(
            "events.tail",
            {
                "run_id": run_id,
                "since": since,
                "limit": limit,
                "source": source,
                "type": type,
                "subject_id": subject_id,
                "marks": marks,
                "session_id": session_id,
                "newest": newest,
                "until": until,
                "since_ms": since_ms,
                "until_ms": until_ms,
                "max_age_ms": max_age_ms,
                "min_age_ms": min_age_ms,
            },
        )

    def consume(
        self,
        run_id: str = "",
        *,
        consumer: str,
        limit: int = 100,
        source: str | None = None,
        type: str | None = None,
        since: int | None = None,
        marks: results.EventMarks | None = None,
        acked: int | None = None,
        request_id: str | None = None,
    ) -> Reply[results.EventBatch]:
        """Read the events that a consumer has not acknowledged; `acked` acknowledges some first.

        run_id: Include only events of this run.
        consumer: Continue from this consumer's cursor, and advance it.
        limit: Maximum number of events.
        source: Include only events of this source.
        type: Include only events of this type.
        since: Include only events after this sequence number.
        marks: Last ids seen, by source, as in the original; only later events are read.
        acked: Acknowledge events up to this one first.
        """
        return self._host.queue(
            "events.consume",
            {
                "run_id": run_id,
                "consumer": consumer,
                "limit": limit,
                "source": source,
                "type": type,
                "since": since,
                "marks": marks,
                "acked": acked,
            },
            request_id,
        )

    def record(
        self,
        *,
        source: str,
        type: str,
        payload: Json = None,
        run_id: str = "",
        subject_id: str = "",
        from_state: str = "",
        to_state: str = "",
        reason: str = "",
        project_dir: str | None = None,
        idempotency_key: str | None = None,
        trace_id: str | None = None,
        span_id: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.EventRecorded]:
        """Record an event; a known idempotency key returns the first event of that key.

        source: Source of the event, such as review or deploy.
        type: Type of the event.
        payload: JSON payload.
        run_id: Id of the run.
        subject_id: Id of the subject.
        from_state: State before the event.
        to_state: State after the event.
        reason: Reason.
        project_dir: Project directory.
        idempotency_key: Record the event only once per key.
        trace_id: Trace id.
        span_id: Span id within the trace.
        """
        return self._host.queue(
            "events.record",
            {
                "source": source,
                "type": type,
                "payload": payload,
                "run_id": run_id,
                "subject_id": subject_id,
                "from_state": from_state,
                "to_state": to_state,
                "reason": reason,
                "project_dir": project_dir,
                "idempotency_key": idempotency_key,
                "trace_id": trace_id,
                "span_id": span_id,
            },
            request_id,
        )

    def reviews(
        self, *, since: int = 0, limit: int = 1000
    ) -> Reply[builtins.list[results.EventReview]]:
        """List the events of reviews in the order of recording.

        since: Include only events after this id.
        limit: Maximum number of events (default 1000).
        """
        return self._host.queue("events.reviews", {"since": since, "limit": limit})

    def prune(
        self,
        *,
        older_than: Duration | None = None,
        keep: int | None = None,
        force: bool = False,
        request_id: str | None = None,
    ) -> Reply[results.EventPruned]:
        """Delete the oldest events, by age (`older_than_ms`) or number (`keep`).
        Events that a durable cursor has not read, or that a hook has not received, are kept
        unless `force` is set.

        older_than: Minimum age of the events to delete.
        keep: Number of newest events to keep.
        force: Delete even events that durable cursors have not read.
        """
        return self._host.queue(
            "events.prune",
            {"older_than_ms": ms(older_than), "keep": keep, "force": force},
            request_id,
        )


class Cursor(nouns.Queued):
    def list(self, *, request_id: str | None = None) -> Reply[builtins.list[results.CursorPlace]]:
        """List the cursors with their positions.
        `phase`, `dispatch`, `interspect` and `discovery` are the last ids of these sources
        before the cursor; `lag` is the number of later events; `behind` means that events after
        the cursor were pruned.
        """
        return self._host.queue("cursor.list", {}, request_id)

    def get(
        self, consumer: str, *, run_id: str = "", request_id: str | None = None
    ) -> Reply[results.CursorPlace | None]:
        """Return a cursor, or null if it is absent.

        consumer: Name of the consumer.
        run_id: Use the consumer's cursor for this run.
        """
        return self._host.queue("cursor.get", {"consumer": consumer, "run_id": run_id}, request_id)

    def register(
        self, consumer: str, *, durable: bool = False, request_id: str | None = None
    ) -> Reply[results.CursorPlace]:
        """Register a cursor at the oldest event; an existing cursor keeps its position.

        A durable cursor never expires, and events are not pruned before it has read them.

        consumer: Name of the consumer.
        durable: Keep the cursor forever; others expire after a day without use.
        """
        return self._host.queue(
            "cursor.register", {"consumer": consumer, "durable": durable}, request_id
        )

    def set(
        self,
        consumer: str,
        seq: int | None = None,
        *,
        run_id: str = "",
        marks: results.EventMarks | None = None,
        request_id: str | None = None,
    ) -> Reply[results.CursorPlace]:
        """Move a cursor to `seq`, forward or back.
        Instead of `seq`, the last id of each source may be given, as in the original: the
        consumer then continues with the first event after any of them.

        consumer: Name of the consumer.
        seq: Sequence number of the last event read.
        run_id: Use the consumer's cursor for this run.
        marks: Last ids by source, as in the original, instead of seq.
        """
        return self._host.queue(
            "cursor.set",
            {"consumer": consumer, "seq": seq, "run_id": run_id, "marks": marks},
            request_id,
        )

    def reset(
        self, consumer: str, *, request_id: str | None = None
    ) -> Reply[results.CursorResetCount]:
        """Delete the cursors of a consumer, for all runs; `consumer:run` deletes the one for a
        run.
        The consumer starts again at the oldest event.

        consumer: Name of the consumer.
        """
        return self._host.queue("cursor.reset", {"consumer": consumer}, request_id)

    def ack(
        self, consumer: str, seq: int, *, run_id: str = "", request_id: str | None = None
    ) -> Reply[results.CursorPlace]:
        """Acknowledge all events up to `seq` for a consumer; never moves the cursor back.

        consumer: Name of the consumer.
        seq: Sequence number of the last event processed.
        run_id: Use the consumer's cursor for this run.
        """
        return self._host.queue(
            "cursor.ack", {"consumer": consumer, "seq": seq, "run_id": run_id}, request_id
        )


class Run(nouns.Queued):
    def create(
        self,
        *,
        goal: str | None = None,
        project: str | None = None,
        complexity: int = 3,
        scope: str | None = None,
        phases: Sequence[str] | None = None,
        gates: Json = None,
        token_budget: int | None = None,
        budget_warn_pct: int = 80,
        budget_enforce: bool = False,
        max_agents: int | None = None,
        max_dispatches: int | None = None,
        metadata: str | None = None,
        actions: Json = None,
        auto_spawn: bool | None = None,
        takeover_after: Duration | None = None,
        request_id: str | None = None,
    ) -> Reply[results.RunCreated]:
        """Create a run in the first phase of its chain.
        A project has at most one active run per scope.
        If there is one already, the error `run_taken` names that run, its age and whether the
        process that created it is alive.
        `takeover_after_ms` abandons that run in the same transaction if it has been idle for
        that long.

        goal: Goal of the run (default: its scope).
        project: Project directory (default: `cwd`, else the project of the database).
        complexity: Complexity, stored with the run (default 3).
        scope: Scope of the run; a project has at most one active run per scope.
        phases: Chain of phases, in order.
        gates: Gate rules, as JSON: a list as `gate.rules` has it, or an object of `FROM→TO` to
            a list of `check`, `phase` and `tier`.
        token_budget: Token budget.
        budget_warn_pct: Percentage of the budget at which to warn (default 80).
        budget_enforce: Let no gate open once the token budget is used up.
        max_agents: Maximum number of active agents, and of dispatches alive.
        max_dispatches: Maximum number of dispatches alive at once.
        metadata: Text stored with the run.
        actions: Actions by phase, as a JSON object.
        auto_spawn: Start the run's agents when it enters executing.
        takeover_after: Abandon the active run of the scope if it has been idle this long.
        """
        return self._host.queue(
            "run.create",
            {
                "goal": goal,
                "project": project,
                "complexity": complexity,
                "scope_id": scope,
                "phases": phases,
                "gates": gates,
                "token_budget": token_budget,
                "budget_warn_pct": budget_warn_pct,
                "budget_enforce": budget_enforce,
                "max_agents": max_agents,
                "max_dispatches": max_dispatches,
                "metadata": metadata,
                "actions": actions,
                "auto_spawn": auto_spawn,
                "takeover_after_ms": ms(takeover_after),
            },
            request_id,
        )

    def status(self, run_id: str) -> Reply[results.RunDocument]:
        """Return a run.

        run_id: Id of the run.
        """
        return self._host.queue("run.status", {"run_id": run_id})

    def list(
        self,
        *,
        status: str | None = None,
        scope: str | None = None,
        project: str | None = None,
        limit: int | None = None,
        here: bool = False,
    ) -> Reply[builtins.list[results.RunDocument]]:
        """List runs, newest first.
        With `here`, list those of the database's directory, of the caller's git checkout, and
        of all directories below them.

        status: Include only this status.
        scope: Include only this scope.
        project: Include only the project of DIR.
        limit: Maximum number of results (default 1000).
        here: Include only the projects of the database and of the caller.
        """
        return self._host.queue(
            "run.list",
            {"status": status, "scope_id": scope, "project": project, "limit": limit, "here": here},
        )

    def current(
        self, *, project: str | None = None, of_session: str | None = None
    ) -> Reply[results.RunFound]:
        """Return the newest active run of a project, if there is one.
        A project is the git checkout that contains the directory.

        project: Project directory (default: `cwd`, else the project of the database).
        of_session: Consider only runs that this session created.
        """
        return self._host.queue("run.current", {"project": project, "of_session": of_session})

    def events(self, run_id: str) -> Reply[builtins.list[results.RunPhaseEvent]]:
        """List the history of a run: transitions, gate results and reasons.
        `events.tail` has all its events, including those of its dispatches.

        run_id: Id of the run.
        """
        return self._host.queue("run.events", {"run_id": run_id})

    def advance(
        self,
        run_id: str,
        *,
        priority: int = 3,
        disable_gates: bool = False,
        skip_reason: str = "",
        if_phase: str | None = None,
        calibration: Json = None,
        request_id: str | None = None,
    ) -> Reply[results.RunAdvance]:
        """Advance a run to the next phase that is not skipped.
        A hard gate blocks the run, and it pauses if auto-advance is off; both are recorded and
        part of the result.
        With `if_phase`, a run in another phase stays there, and the result names who moved it:
        of several concurrent calls, exactly one advances the run.
        `actions` are those of the new phase, with their variables filled in.

        run_id: Id of the run.
        priority: Priority of the work: 0 and 1 hard, 2 and 3 soft, 4 and above unchecked
            (default 3).
        disable_gates: Skip all gates.
        skip_reason: Reason to advance although auto-advance is off.
        if_phase: Advance only from this phase.
        calibration: Calibration: `created_at`, and `tiers` of default rules, as JSON.
        """
        return self._host.queue(
            "run.advance",
            {
                "run_id": run_id,
                "priority": priority,
                "disable_gates": disable_gates,
                "skip_reason": skip_reason,
                "if_phase": if_phase,
                "calibration": calibration,
            },
            request_id,
        )

    def skip(
        self,
        run_id: str,
        phase: str,
        *,
        reason: str,
        actor: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.RunSkipped]:
        """Skip a later phase of a run, except its last one.

        The gates on the way are still checked.
        A rollback to an earlier phase undoes the skip.

        run_id: Id of the run.
        phase: Phase to skip.
        reason: Reason.
        actor: Name of the person or agent that decided it.
        """
        return self._host.queue(
            "run.skip",
            {"run_id": run_id, "phase": phase, "reason": reason, "actor": actor},
            request_id,
        )

    def cancel(self, run_id: str, *, request_id: str | None = None) -> Reply[results.RunChanged]:
        """Cancel a run that has not ended.

        run_id: Id of the run.
        """
        return self._host.queue("run.cancel", {"run_id": run_id}, request_id)

    def abandon(
        self, run_id: str, *, reason: str = "", request_id: str | None = None
    ) -> Reply[results.RunChanged]:
        """Abandon a run, so that a new run may use its scope.

        run_id: Id of the run.
        reason: Reason.
        """
        return self._host.queue("run.abandon", {"run_id": run_id, "reason": reason}, request_id)

    def set(
        self,
        run_id: str,
        *,
        complexity: int | None = None,
        auto_advance: bool | None = None,
        force_full: bool | None = None,
        max_agents: int | None = None,
        max_dispatches: int | None = None,
        metadata_merge: Json = None,
        request_id: str | None = None,
    ) -> Reply[results.RunChanged]:
        """Change the settings of an active run.
        Without auto-advance, `run.advance` needs a `skip_reason`.
        `metadata_merge` replaces the members that it names; objects in both are merged in the
        same way.

        run_id: Id of the run.
        complexity: Value stored with the run; it has no effect.
        auto_advance: Let `run.advance` work without `skip_reason`.
        force_full: Value stored with the run; it has no effect.
        max_agents: Maximum number of active agents; 0: any number.
        max_dispatches: Maximum number of dispatches alive; 0: any number.
        metadata_merge: JSON object that is merged into the metadata, member by member.
        """
        return self._host.queue(
            "run.set",
            {
                "run_id": run_id,
                "complexity": complexity,
                "auto_advance": auto_advance,
                "force_full": force_full,
                "max_agents": max_agents,
                "max_dispatches": max_dispatches,
                "metadata_merge": metadata_merge,
            },
            request_id,
        )

    def rollback(
        self,
        run_id: str,
        *,
        to_phase: str,
        reason: str = "",
        dry_run: bool = False,
        request_id: str | None = None,
    ) -> Reply[results.RunRollback]:
        """Return to an earlier phase.
        Later artifacts are marked as rolled back, later skips are cleared, active agents are
        set to failed, and dispatches are cancelled.
        A completed run becomes active again; a run that ended otherwise is refused.

        run_id: Id of the run.
        to_phase: Phase to return to.
        reason: Reason.
        dry_run: Return what would be rolled back, and change nothing.
        """
        return self._host.queue(
            "run.rollback",
            {"run_id": run_id, "to_phase": to_phase, "reason": reason, "dry_run": dry_run},
            request_id,
        )

    def tokens(self, run_id: str) -> Reply[results.RunTokens]:
        """Return the token usage of a run's dispatches; zeros for an unknown run.

        run_id: Id of the run.
        """
        return self._host.queue("run.tokens", {"run_id": run_id})

    def budget(self, run_id: str) -> Reply[results.RunBudget]:
        """Return the token budget of a run and its usage.

        run_id: Id of the run.
        """
        return self._host.queue("run.budget", {"run_id": run_id})

    def snapshot(
        self, run_id: str | None = None, *, project: str | None = None
    ) -> Reply[results.RunSnapshot | None]:
        """Return a run with its history, agents, artifacts, dispatches, tokens, budget and gate.
        Everything is read in one transaction, so that it is consistent.
        Without `run_id`, it is the newest active run of the project, or null if there is none.

        run_id: Id of the run (default: the newest active run of the project).
        project: Project directory (default: `cwd`, else the project of the database).
        """
        return self._host.queue("run.snapshot", {"run_id": run_id, "project": project})


class Agent(nouns.Queued):
    def add(
        self,
        run_id: str,
        *,
        agent_type: str = "claude",
        name: str | None = None,
        dispatch_id: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.AgentAdded]:
        """Add an agent to a run.

        run_id: Id of the run.
        agent_type: Type of the agent (default claude).
        name: Name of the agent.
        dispatch_id: Id of its dispatch.
        """
        return self._host.queue(
            "agent.add",
            {"run_id": run_id, "agent_type": agent_type, "name": name, "dispatch_id": dispatch_id},
            request_id,
        )

    def list(self, run_id: str) -> Reply[builtins.list[results.Agent]]:
        """List the agents of a run, oldest first.

        run_id: Id of the run.
        """
        return self._host.queue("agent.list", {"run_id": run_id})

    def update(
        self,
        agent_id: str,
        *,
        status: Literal["active", "completed", "failed"],
        request_id: str | None = None,
    ) -> Reply[results.AgentUpdated]:
        """Update an agent's status.
        The gate between executing and review waits for active agents.

        agent_id: Id of the agent.
        status: New status.
        """
        return self._host.queue(
            "agent.update", {"agent_id": agent_id, "status": status}, request_id
        )


class Artifact(nouns.Queued):
    def add(
        self,
        run_id: str,
        *,
        phase: str,
        path: str,
        type: str = "file",
        content_hash: str | None = None,
        dispatch_id: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.ArtifactAdded]:
        """Add an artifact to a run.
        Its file need not exist.

        run_id: Id of the run.
        phase: Phase that the artifact belongs to.
        path: Path of the file, stored as given.
        type: Type of the artifact (default file).
        content_hash: SHA-256 of the content, as sha256: and hex digits.
        dispatch_id: Id of the dispatch that produced it.
        """
        return self._host.queue(
            "artifact.add",
            {
                "run_id": run_id,
                "phase": phase,
                "path": path,
                "type": type,
                "content_hash": content_hash,
                "dispatch_id": dispatch_id,
            },
            request_id,
        )

    def list(
        self, run_id: str, *, phase: str | None = None
    ) -> Reply[builtins.list[results.Artifact]]:
        """List the artifacts of a run, oldest first.

        run_id: Id of the run.
        phase: Include only artifacts of this phase.
        """
        return self._host.queue("artifact.list", {"run_id": run_id, "phase": phase})

    def origins(
        self, run_id: str, *, phase: str | None = None
    ) -> Reply[builtins.list[results.ArtifactOrigin]]:
        """List the artifacts of a run with the dispatch that produced each, by phase and age.

        run_id: Id of the run.
        phase: Include only artifacts of this phase.
        """
        return self._host.queue("artifact.origins", {"run_id": run_id, "phase": phase})


class Action(nouns.Queued):
    def add(
        self,
        run_id: str,
        *,
        phase: str,
        command: str,
        args: str | None = None,
        mode: str = "interactive",
        action_type: str = "command",
        priority: int = 0,
        request_id: str | None = None,
    ) -> Reply[results.ActionAdded]:
        """Add an action to a phase of a run: what is to be done in it.
        `run.advance` answers with the actions of the phase that the run enters.
        In the strings of the arguments, `${artifact:TYPE}` becomes the path of the newest
        artifact of this type, `${run_id}` the run and `${project_dir}` its project.
        intercore runs no action itself.

        run_id: Id of the run.
        phase: Phase that the action belongs to.
        command: Command that is to be run.
        args: Arguments of the command, as a JSON array.
        mode: Mode, such as autonomous or both (default interactive).
        action_type: Type of the action (default command).
        priority: Priority: lower ones come first (default 0).
        """
        return self._host.queue(
            "action.add",
            {
                "run_id": run_id,
                "phase": phase,
                "command": command,
                "args": args,
                "mode": mode,
                "action_type": action_type,
                "priority": priority,
            },
            request_id,
        )

    def list(
        self, run_id: str, *, phase: str | None = None
    ) -> Reply[builtins.list[results.Action]]:
        """List the actions of a run, by phase, priority and age.

        run_id: Id of the run.
        phase: Include only actions of this phase.
        """
        return self._host.queue("action.list", {"run_id": run_id, "phase": phase})

    def update(
        self,
        run_id: str,
        *,
        phase: str,
        command: str,
        args: str | None = None,
        mode: str | None = None,
        priority: int | None = None,
        request_id: str | None = None,
    ) -> Reply[results.Action]:
        """Change an action of a run.

        run_id: Id of the run.
        phase: Phase that the action belongs to.
        command: Command that is to be run.
        args: Arguments of the command, as a JSON array.
        mode: Mode of the action.
        priority: Priority: lower ones come first.
        """
        return self._host.queue(
            "action.update",
            {
                "run_id": run_id,
                "phase": phase,
                "command": command,
                "args": args,
                "mode": mode,
                "priority": priority,
            },
            request_id,
        )

    def delete(
        self, run_id: str, *, phase: str, command: str, request_id: str | None = None
    ) -> Reply[results.ActionDeleted]:
        """Delete an action of a run.

        run_id: Id of the run.
        phase: Phase that the action belongs to.
        command: Command that is to be run.
        """
        return self._host.queue(
            "action.delete", {"run_id": run_id, "phase": phase, "command": command}, request_id
        )


class Gate(nouns.Queued):
    def check(
        self, run_id: str, *, priority: int = 3, calibration: Json = None
    ) -> Reply[results.GateChecked]:
        """Check whether a run may advance to its next phase; changes nothing.
        The next phase is the one that `run.advance` would enter; the gates of skipped phases on
        the way are checked too.
        The result is fail if a check fails, even if the gate is soft and would not block.

        run_id: Id of the run.
        priority: Priority of the work: 0 and 1 hard, 2 and 3 soft, 4 and above unchecked
            (default 3).
        calibration: Calibration: `created_at`, and `tiers` of default rules, as JSON.
        """
        return self._host.queue(
            "gate.check", {"run_id": run_id, "priority": priority, "calibration": calibration}
        )

    def override(
        self,
        run_id: str,
        *,
        reason: str,
        category: Literal["justified", "expedient"] | None = None,
        request_id: str | None = None,
    ) -> Reply[results.GateOverridden]:
        """Advance a run to the very next phase of its chain, regardless of its gates.
        Skipped phases count as next phases here.
        Records an override event with the reason.

        run_id: Id of the run.
        reason: Reason for the override, recorded in the event.
        category: Category: `justified`, the gate was wrong; `expedient`, it was in the way.
        """
        return self._host.queue(
            "gate.override", {"run_id": run_id, "reason": reason, "category": category}, request_id
        )

    def signals(self, *, since_id: int = 0) -> Reply[results.GateSignals]:
        """List which gates were right.
        A check that blocked a run is a true positive (tp); a false one (fp) if it was
        overridden, or if the run went on although it failed.
        A check that passed is a true negative (tn); a false one (fn) if the run was rolled back
        from beyond it.
        `since_id` reads on; a rollback that is read later changes no signal that was read.

        since_id: Read only events after this one (default 0).
        """
        return self._host.queue("gate.signals", {"since_id": since_id})

    def rules(
        self, run_id: str, *, phase: str | None = None
    ) -> Reply[builtins.list[results.GateRule]]:
        """List the rules of the gates of a run.

        run_id: Id of the run.
        phase: List only the rules for leaving this phase.
        """
        return self._host.queue("gate.rules", {"run_id": run_id, "phase": phase})


class Compat(nouns.Queued):
    def status(self, keys: Sequence[str]) -> Reply[builtins.list[results.CompatSide]]:
        """Count the rows of some keys in the database.

        keys: Keys, in any order.
        """
        return self._host.queue("compat.status", {"keys": keys})

    def check(self, key: str) -> Reply[results.CompatKnown]:
        """Count the scopes in which the database has a key, as state or as a sentinel.

        key: Key to look up.
        """
        return self._host.queue("compat.check", {"key": key})

    def compare(
        self,
        *,
        documents: Sequence[results.CompatDocument] | None = None,
        guards: Sequence[results.CompatGuard] | None = None,
    ) -> Reply[results.CompatVerdicts]:
        """Compare legacy files with the database, without writing.

        documents: Files that contain JSON.
        guards: Guard files: their existence is the information.
        """
        return self._host.queue("compat.compare", {"documents": documents, "guards": guards})

    def import_(
        self,
        *,
        documents: Sequence[results.CompatDocument] | None = None,
        guards: Sequence[results.CompatGuard] | None = None,
        request_id: str | None = None,
    ) -> Reply[results.CompatVerdicts]:
        """Import legacy files, except where the database has newer rows.

        documents: Files that contain JSON.
        guards: Guard files: their existence is the information.
        """
        return self._host.queue(
            "compat.import", {"documents": documents, "guards": guards}, request_id
        )


class Statusline(nouns.Queued):
    def get(
        self, *, session_id: str = "", agent: str | None = None, project: str | None = None
    ) -> Reply[results.Statusline]:
        """Return the status of a session; `session` itself is the caller's.

        session_id: Id of the session to describe.
        agent: Show the coordination signal of this agent.
        project: Use the database of this directory.
        """
        return self._host.queue(
            "statusline.get", {"session_id": session_id, "agent": agent, "project": project}
        )


class Db(nouns.Queued):
    def init(self) -> Reply[results.DatabaseInitialized]:
        """Create the project's database, or upgrade an existing one."""
        return self._host.queue("db.init", {})

    def adopt(self) -> Reply[results.DatabaseAdopted]:
        """Convert a newer database of the original program, while no process uses it."""
        return self._host.queue("db.adopt", {})

    def health(self, *, thorough: bool = False) -> Reply[results.DatabaseHealthy]:
        """Check that the database is usable.
        It must be readable, have the current schema and be in WAL mode, and more than 10 MB of
        disk space must be free.

        thorough: Read every page of the database as well.
        """
        return self._host.queue("db.health", {"thorough": thorough})

    def schema(self) -> Reply[results.DatabaseSchemaVersion]:
        """Return the versions of the schema and of the program."""
        return self._host.queue("db.schema", {})

    def check(self) -> Reply[results.DatabaseChecked]:
        """Read every page and index, and compare the schema.
        It runs in the caller's process, so that it works on a database that the daemon refuses.
        """
        return self._host.queue("db.check", {})

    def vacuum(self) -> Reply[results.DatabaseVacuumed]:
        """Rebuild the database file, so that it takes no more space than needed.

        Other callers of this database wait meanwhile.
        Free disk space of twice its size is needed.
        """
        return self._host.queue("db.vacuum", {})


class Backup(nouns.Queued):
    def create(self) -> Reply[results.BackupMade]:
        """Create a backup beside the database, and remove the oldest such backups."""
        return self._host.queue("backup.create", {})

    def write(self, file: str) -> Reply[results.BackupMade]:
        """Create a backup in a file that does not exist yet.

        file: Path of the backup.
        """
        return self._host.queue("backup.write", {"file": file})

    def restore(self, file: str) -> Reply[results.BackupRestored]:
        """Replace the database with a copy of a backup; the old database is kept beside it.

        A backup that is damaged, foreign or of a newer intercore is refused, and nothing
        changes.
        The daemon may run: its next call uses the restored database.

        file: Path of the backup.
        """
        return self._host.queue("backup.restore", {"file": file})


class Dump(nouns.Queued):
    def export(self, file: str) -> Reply[results.DumpExported]:
        """Export every row of every table to a new file, as JSON lines.

        file: File of JSON lines, as an absolute path.
        """
        return self._host.queue("dump.export", {"file": file})

    def import_(self, file: str, *, request_id: str | None = None) -> Reply[results.DumpImported]:
        """Import the rows of an exported file.
        Of two versions of a row the later wins.
        The import is all or nothing, and importing again changes nothing.

        file: File of JSON lines, as an absolute path.
        """
        return self._host.queue("dump.import", {"file": file}, request_id)


class Dispatch(nouns.Queued):
    def create(
        self,
        project_dir: str,
        *,
        agent_type: str = "codex",
        run_id: str | None = None,
        scope: str | None = None,
        parent_id: str | None = None,
        name: str | None = None,
        model: str | None = None,
        sandbox: str | None = None,
        prompt_file: str | None = None,
        prompt_hash: str | None = None,
        output_file: str | None = None,
        verdict_file: str | None = None,
        timeout_ms: int | None = None,
        runner: results.DispatchProcess | None = None,
        agent_id: str | None = None,
        instead_of: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.Dispatch]:
        """Create a dispatch for a process that is about to start.

        project_dir: Working directory, as an absolute path.
        agent_type: Type of the agent.
        run_id: Id of the run.
        scope: Scope, or id of a run; without `run_id`, it selects the active or latest run.
        parent_id: Id of the parent dispatch.
        name: Name of the dispatch.
        model: Model of the agent.
        sandbox: Sandbox of the agent.
        prompt_file: File with the prompt.
        prompt_hash: First digits of the prompt's SHA-256.
        output_file: File for the output.
        verdict_file: File for the verdict.
        timeout_ms: Time limit.
        runner: Process that is about to start the agent.
        agent_id: Id of the run's agent that is started.
        instead_of: Id of the agent's current dispatch, which this one replaces.
        """
        return self._host.queue(
            "dispatch.create",
            {
                "project_dir": project_dir,
                "agent_type": agent_type,
                "run_id": run_id,
                "scope_id": scope,
                "parent_id": parent_id,
                "name": name,
                "model": model,
                "sandbox": sandbox,
                "prompt_file": prompt_file,
                "prompt_hash": prompt_hash,
                "output_file": output_file,
                "verdict_file": verdict_file,
                "timeout_ms": timeout_ms,
                "runner": runner,
                "agent_id": agent_id,
                "instead_of": instead_of,
            },
            request_id,
        )

    def started(
        self,
        id: str,
        *,
        pid: int,
        pid_start: int = 0,
        runner_pid: int | None = None,
        runner_start: int = 0,
        boot: str = "",
        pidns: str = "",
        request_id: str | None = None,
    ) -> Reply[results.Dispatch]:
        """Record that the process of a dispatch is running.

        id: Id of the dispatch.
        pid: Process id of the agent.
        pid_start: Start time of that process, in clock ticks since the boot.
        runner_pid: Process id of the runner, which waits for the agent.
        runner_start: Start time of that process, in clock ticks since the boot.
        boot: Boot id that the start times belong to.
        pidns: PID namespace of the process ids.
        """
        return self._host.queue(
            "dispatch.started",
            {
                "id": id,
                "pid": pid,
                "pid_start": pid_start,
                "runner_pid": runner_pid,
                "runner_start": runner_start,
                "boot": boot,
                "pidns": pidns,
            },
            request_id,
        )

    def record(
        self, end: results.DispatchEnd, *, request_id: str | None = None
    ) -> Reply[results.DispatchRecorded]:
        """Record how the process of a dispatch ended; only the first end counts.

        end: Result of the process; omitted counts keep their values.
        """
        return self._host.queue("dispatch.record", {"end": end}, request_id)

    def cancel(
        self, id: str, *, reason: str = "", request_id: str | None = None
    ) -> Reply[results.Dispatch]:
        """Cancel a dispatch at once; its process may take longer to end.

        id: Id of the dispatch.
        reason: Reason.
        """
        return self._host.queue("dispatch.cancel", {"id": id, "reason": reason}, request_id)

    def list(
        self,
        *,
        active: bool = False,
        scope: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> Reply[builtins.list[results.Dispatch]]:
        """List dispatches, newest first.

        active: Include only active dispatches.
        scope: Include only this scope.
        run_id: Include only this run.
        limit: Maximum number of results (default 1000).
        """
        return self._host.queue(
            "dispatch.list", {"active": active, "scope_id": scope, "run_id": run_id, "limit": limit}
        )

    def poll(
        self, id: str, *, seen: results.DispatchSeen | None = None, request_id: str | None = None
    ) -> Reply[results.Dispatch]:
        """Inspect the process and output of a dispatch, record what changed, and show the
        dispatch.

        If the runner could not record the end, it is recorded now; if the exit status is
        unknown, the
        dispatch is set to failed, with exit status -1.

        id: Id of the dispatch.
        seen: Observation of its processes and files by the caller; without it, nothing is
            recorded.
        """
        return self._host.queue("dispatch.poll", {"id": id, "seen": seen}, request_id)

    def due(self, run_id: str) -> Reply[builtins.list[results.DispatchDue]]:
        """Find the active agents of a run that have not been started.

        run_id: Id of the run.
        """
        return self._host.queue("dispatch.due", {"run_id": run_id})

    def get(self, id: str) -> Reply[results.Dispatch]:
        """Return a dispatch.

        id: Id of the dispatch.
        """
        return self._host.queue("dispatch.get", {"id": id})

    def tokens(
        self,
        id: str,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cache_hits: int | None = None,
        request_id: str | None = None,
    ) -> Reply[results.DispatchSpent]:
        """Set the token usage of a dispatch; omitted counts keep their values.
        The result has the budget of its run.

        id: Id of the dispatch.
        input_tokens: Input tokens.
        output_tokens: Output tokens.
        cache_hits: Cached input tokens.
        """
        return self._host.queue(
            "dispatch.tokens",
            {
                "id": id,
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "cache_hits": cache_hits,
            },
            request_id,
        )

    def prune(
        self, *, older_than: Duration, request_id: str | None = None
    ) -> Reply[results.DispatchPruned]:
        """Delete ended dispatches, except those of active runs, which count towards the budget.

        older_than: Minimum time since the dispatch was created.
        """
        return self._host.queue("dispatch.prune", {"older_than_ms": ms(older_than)}, request_id)


class Lease(nouns.Queued):
    def acquire(
        self, name: str, scope: str, *, owner: str, ttl: Duration, request_id: str | None = None
    ) -> Reply[results.Lease]:
        """Acquire a lease with a fencing token.
        If another owner holds it, the error `lease_held` names the owner, the remaining time
        and the token.
        The current owner extends the lease and keeps the token.
        After the deadline, any caller may take the lease over with a greater token: renew it
        before.

        name: Name of the lease.
        scope: Scope of the lease, such as an issue.
        owner: Owner of the lease.
        ttl: Time until the lease expires.
        """
        return self._host.queue(
            "lease.acquire",
            {"name": name, "scope_id": scope, "owner": owner, "ttl_ms": ms(ttl)},
            request_id,
        )

    def renew(
        self,
        name: str,
        scope: str,
        *,
        owner: str,
        ttl: Duration | None = None,
        token: int | None = None,
        request_id: str | None = None,
    ) -> Reply[results.Lease]:
        """Extend a lease that you hold.
        The deadline never moves to an earlier time.
        The error `lease_lost` means that it expired, was released, or has another owner.

        name: Name of the lease.
        scope: Scope of the lease, such as an issue.
        owner: Owner of the lease.
        ttl: Time until the lease expires (default: as before).
        token: Act only if the lease still has this token.
        """
        return self._host.queue(
            "lease.renew",
            {"name": name, "scope_id": scope, "owner": owner, "ttl_ms": ms(ttl), "token": token},
            request_id,
        )

    def release(
        self,
        name: str,
        scope: str,
        *,
        owner: str,
        token: int | None = None,
        request_id: str | None = None,
    ) -> Reply[results.LeaseReleased]:
        """Release a lease.
        This fails if another owner holds it, or if `token` is not its latest token.

        name: Name of the lease.
        scope: Scope of the lease, such as an issue.
        owner: Owner of the lease.
        token: Act only if the lease still has this token.
        """
        return self._host.queue(
            "lease.release",
            {"name": name, "scope_id": scope, "owner": owner, "token": token},
            request_id,
        )

    def list(
        self, name: str | None = None, scope: str | None = None
    ) -> Reply[builtins.list[results.Lease]]:
        """List the held leases.

        name: Name of the lease.
        scope: Scope of the lease, such as an issue.
        """
        return self._host.queue("lease.list", {"name": name, "scope_id": scope})


class Coordination(nouns.Queued):
    def reserve(
        self,
        *,
        scope: str = ".",
        project: str | None = None,
        owner: str = "",
        exclusive: bool = True,
        ttl: Duration | None = None,
        pid: int | None = None,
        reason: str = "",
        run_id: str = "",
        dispatch_id: str = "",
        pattern: str | None = None,
        path: str | None = None,
        type: Literal["file_reservation", "named_lock", "write_set"] = "file_reservation",
        again: bool = False,
        request_id: str | None = None,
    ) -> Reply[results.CoordinationOutcome]:
        """Reserve files for an owner.
        `conflict` names the reservation of another owner that is in the way; nothing is
        reserved then.
        The same owner and pattern again extends the reservation and keeps its id; with another
        `pid` it is another reservation.

        scope: Scope of the reservation (default: the project's files).
        project: Directory of the checkout that has the files (default: cwd).
        owner: Owner of the reservation.
        exclusive: Exclude all others; if false, only those who are exclusive.
        ttl: Time until the reservation expires (default: never).
        pid: End the reservation with this process.
        reason: Reason that others are told.
        run_id: Run that it is for.
        dispatch_id: Dispatch that it is for.
        pattern: Pattern, such as 'src/**/*.py', seen from the project.
        path: Path, in which no character is a wildcard.
        type: Kind; a named_lock has one name in all worktrees.
        again: Record no further conflict: the caller asks again for the same.
        """
        return self._host.queue(
            "coordination.reserve",
            {
                "scope": scope,
                "project": project,
                "owner": owner,
                "exclusive": exclusive,
                "ttl_ms": ms(ttl),
                "pid": pid,
                "reason": reason,
                "run_id": run_id,
                "dispatch_id": dispatch_id,
                "pattern": pattern,
                "path": path,
                "type": type,
                "again": again,
            },
            request_id,
        )

    def reserve_many(
        self,
        paths: Sequence[str],
        *,
        scope: str = ".",
        project: str | None = None,
        owner: str = "",
        exclusive: bool = True,
        ttl: Duration | None = None,
        pid: int | None = None,
        reason: str = "",
        run_id: str = "",
        dispatch_id: str = "",
        follow: bool = False,
        request_id: str | None = None,
    ) -> Reply[results.CoordinationOutcomes]:
        """Reserve several paths for an owner, all or none.
        `conflict` names the first reservation of another owner that is in the way.

        paths: Paths, without wildcards.
        scope: Scope of the reservation (default: the project's files).
        project: Directory of the checkout that has the files (default: cwd).
        owner: Owner of the reservation.
        exclusive: Exclude all others; if false, only those who are exclusive.
        ttl: Time until the reservation expires (default: never).
        pid: End the reservation with this process.
        reason: Reason that others are told.
        run_id: Run that it is for.
        dispatch_id: Dispatch that it is for.
        follow: Reserve what links lead to, too.
        """
        return self._host.queue(
            "coordination.reserve_many",
            {
                "paths": paths,
                "scope": scope,
                "project": project,
                "owner": owner,
                "exclusive": exclusive,
                "ttl_ms": ms(ttl),
                "pid": pid,
                "reason": reason,
                "run_id": run_id,
                "dispatch_id": dispatch_id,
                "follow": follow,
            },
            request_id,
        )

    def renew(
        self,
        id: str | None = None,
        *,
        owner: str | None = None,
        scope: str | None = None,
        ttl: Duration | None = None,
        project: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.CoordinationRenewed]:
        """Extend a reservation, or all of an owner.
        The error `reservation_lost` means that it has ended.
        The deadline never moves to an earlier time.

        id: Reservation id.
        owner: Renew all of this owner.
        scope: Scope of the reservation (default: the project's files).
        ttl: Time until it expires (default: as before).
        project: Directory of the checkout that has the files (default: cwd).
        """
        return self._host.queue(
            "coordination.renew",
            {"id": id, "owner": owner, "scope": scope, "ttl_ms": ms(ttl), "project": project},
            request_id,
        )

    def check(
        self,
        *,
        pattern: str | None = None,
        path: str | None = None,
        scope: str = ".",
        project: str | None = None,
        exclude_owner: str | None = None,
        exclusive: bool = True,
    ) -> Reply[builtins.list[results.CoordinationShown]]:
        """List the reservations that cover files.

        pattern: Pattern, such as 'src/**/*.py', seen from the project.
        path: Path, in which no character is a wildcard.
        scope: Scope of the reservation (default: the project's files).
        project: Directory of the checkout that has the files (default: cwd).
        exclude_owner: Leave out those of this owner.
        exclusive: Exclude all others; if false, only those who are exclusive.
        """
        return self._host.queue(
            "coordination.check",
            {
                "pattern": pattern,
                "path": path,
                "scope": scope,
                "project": project,
                "exclude_owner": exclude_owner,
                "exclusive": exclusive,
            },
        )

    def check_many(
        self,
        paths: Sequence[str],
        *,
        exclude_owner: str | None = None,
        scope: str = ".",
        project: str | None = None,
    ) -> Reply[builtins.list[results.CoordinationTouched]]:
        """List those of many paths that are reserved, each with one reservation that covers it.

        paths: Paths, without wildcards.
        exclude_owner: Leave out those of this owner.
        scope: Scope of the reservation (default: the project's files).
        project: Directory of the checkout that has the files (default: cwd).
        """
        return self._host.queue(
            "coordination.check_many",
            {"paths": paths, "exclude_owner": exclude_owner, "scope": scope, "project": project},
        )

    def release(
        self,
        id: str | None = None,
        *,
        owner: str | None = None,
        scope: str | None = None,
        pattern: str | None = None,
        path: str | None = None,
        project: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.CoordinationReleased]:
        """Release a reservation by its id, or all of an owner.

        id: Reservation id.
        owner: Release all of this owner.
        scope: Scope of the reservation (default: the project's files).
        pattern: Release only this pattern of the owner.
        path: Release only this path of the owner.
        project: Directory of the checkout that has the files (default: cwd).
        """
        return self._host.queue(
            "coordination.release",
            {
                "id": id,
                "owner": owner,
                "scope": scope,
                "pattern": pattern,
                "path": path,
                "project": project,
            },
            request_id,
        )

    def list(
        self,
        *,
        scope: str | None = None,
        owner: str | None = None,
        type: Literal["file_reservation", "named_lock", "write_set"] | None = None,
        active: bool = False,
        project: str | None = None,
    ) -> Reply[builtins.list[results.CoordinationShown]]:
        """List the reservations, including those that have ended and are not swept yet.

        scope: Scope of the reservation (default: the project's files).
        owner: Include only those of this owner.
        type: Include only this kind.
        active: Include only those that stand.
        project: Directory of the checkout that has the files (default: cwd).
        """
        return self._host.queue(
            "coordination.list",
            {"scope": scope, "owner": owner, "type": type, "active": active, "project": project},
        )

    def sweep(
        self, *, older_than: Duration = 0, dry_run: bool = False, request_id: str | None = None
    ) -> Reply[results.CoordinationSwept]:
        """Delete reservations that have expired, or whose process is gone.

        older_than: Minimum time since the deadline (default: 0s).
        dry_run: Count them only.
        """
        return self._host.queue(
            "coordination.sweep", {"older_than_ms": ms(older_than), "dry_run": dry_run}, request_id
        )

    def transfer(
        self,
        *,
        from_owner: str,
        to_owner: str,
        scope: str = ".",
        force: bool = False,
        project: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.CoordinationTransferred]:
        """Transfer all reservations of an owner in a scope to another owner.

        from_owner: Owner that holds them now.
        to_owner: New owner.
        scope: Scope of the reservation (default: the project's files).
        force: Accepted for older scripts; a transfer has no conflicts.
        project: Directory of the checkout that has the files (default: cwd).
        """
        return self._host.queue(
            "coordination.transfer",
            {
                "from_owner": from_owner,
                "to_owner": to_owner,
                "scope": scope,
                "force": force,
                "project": project,
            },
            request_id,
        )


class Session(nouns.Queued):
    def start(
        self,
        *,
        session_id: str,
        project: str | None = None,
        agent_type: str = "",
        model: str | None = None,
        metadata: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.SessionStarted]:
        """Record that a session works in a project; one that is known goes on.
        Where a parameter is missing, what was recorded stays.

        session_id: Id of the session.
        project: Project directory (default: `cwd`, else the project of the database).
        agent_type: Kind of agent (default claude-code).
        model: Model of the agent.
        metadata: JSON document about the session.
        """
        return self._host.queue(
            "session.start",
            {
                "session_id": session_id,
                "project": project,
                "agent_type": agent_type,
                "model": model,
                "metadata": metadata,
            },
            request_id,
        )

    def attribute(
        self,
        *,
        session_id: str,
        project: str | None = None,
        bead: str | None = None,
        run: str | None = None,
        phase: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.SessionAttributed]:
        """Record what a session works on.

        What is left out, or empty, stays as it was; a new run forgets the phase of the old one.

        session_id: Id of the session.
        project: Project directory (default: `cwd`, else the project of the database).
        bead: Issue that it works on.
        run: Run that it belongs to.
        phase: Phase of the run.
        """
        return self._host.queue(
            "session.attribute",
            {
                "session_id": session_id,
                "project": project,
                "bead": bead,
                "run": run,
                "phase": phase,
            },
            request_id,
        )

    def current(
        self, *, session_id: str, project: str | None = None
    ) -> Reply[results.SessionAttribution | None]:
        """Return what a session works on, or null.

        session_id: Id of the session.
        project: Project directory (default: `cwd`, else the project of the database).
        """
        return self._host.queue("session.current", {"session_id": session_id, "project": project})

    def end(self, *, session_id: str, request_id: str | None = None) -> Reply[results.SessionEnded]:
        """Record that a session has ended, in all projects.
        What is reserved for it is released.

        session_id: Id of the session.
        """
        return self._host.queue("session.end", {"session_id": session_id}, request_id)

    def tokens(
        self,
        *,
        session_id: str,
        project: str | None = None,
        input: int = 0,
        output: int = 0,
        cache_creation: int = 0,
        cache_read: int = 0,
        request_id: str | None = None,
    ) -> Reply[results.SessionAdded]:
        """Add to the tokens that a session used in a project.

        session_id: Id of the session.
        project: Project directory (default: `cwd`, else the project of the database).
        input: Tokens read.
        output: Tokens written.
        cache_creation: Tokens written to the cache.
        cache_read: Tokens read from the cache.
        """
        return self._host.queue(
            "session.tokens",
            {
                "session_id": session_id,
                "project": project,
                "input": input,
                "output": output,
                "cache_creation": cache_creation,
                "cache_read": cache_read,
            },
            request_id,
        )

    def list(
        self,
        *,
        project: str | None = None,
        session_id: str | None = None,
        since: int = 0,
        active_only: bool = False,
        limit: int = 100,
    ) -> Reply[builtins.list[results.Session]]:
        """List the sessions, newest first.

        project: List only sessions in this directory's project.
        session_id: List only this session.
        since: List only those that started at this Unix time or later.
        active_only: List only sessions that have not ended.
        limit: List at most this many (default 100).
        """
        return self._host.queue(
            "session.list",
            {
                "project": project,
                "session_id": session_id,
                "since": since,
                "active_only": active_only,
                "limit": limit,
            },
        )


class Lane(nouns.Queued):
    def create(
        self,
        *,
        name: str,
        lane_type: Literal["standing", "arc"] = "standing",
        description: str = "",
        intent: str = "",
        metadata: str = "{}",
        request_id: str | None = None,
    ) -> Reply[results.LaneCreated]:
        """Create a lane.

        name: Name of the lane.
        lane_type: A standing theme, or an arc that ends (default standing).
        description: Description of what belongs to it.
        intent: Goal that it is to achieve.
        metadata: JSON object about the lane (default {}).
        """
        return self._host.queue(
            "lane.create",
            {
                "name": name,
                "lane_type": lane_type,
                "description": description,
                "intent": intent,
                "metadata": metadata,
            },
            request_id,
        )

    def list(
        self, *, active: bool = False, status: Literal["active", "closed", "archived"] | None = None
    ) -> Reply[builtins.list[results.Lane]]:
        """List the lanes, by name.

        active: List only active lanes.
        status: List only lanes of this status.
        """
        return self._host.queue("lane.list", {"active": active, "status": status})

    def status(self, lane: str) -> Reply[results.LaneDocument]:
        """Return a lane and what is in it.

        lane: Id or name of the lane.
        """
        return self._host.queue("lane.status", {"lane": lane})

    def sync(
        self, lane: str, bead_ids: Sequence[str], *, request_id: str | None = None
    ) -> Reply[results.LaneSynced]:
        """Set which issues are in a lane; the others have left it.

        lane: Id or name of the lane.
        bead_ids: Issues in the lane.
        """
        return self._host.queue("lane.sync", {"lane": lane, "bead_ids": bead_ids}, request_id)

    def members(self, lane: str) -> Reply[builtins.list[str]]:
        """List the issues in a lane, the longest there first.

        lane: Id or name of the lane.
        """
        return self._host.queue("lane.members", {"lane": lane})

    def events(self, lane: str, *, limit: int = 1000) -> Reply[builtins.list[results.LaneHappened]]:
        """List what happened to a lane, oldest first.

        lane: Id or name of the lane.
        limit: List at most this many, the newest (default 1000).
        """
        return self._host.queue("lane.events", {"lane": lane, "limit": limit})

    def close(self, lane: str, *, request_id: str | None = None) -> Reply[results.Lane]:
        """Close a lane, for good.

        lane: Id or name of the lane.
        """
        return self._host.queue("lane.close", {"lane": lane}, request_id)

    def velocity(self, *, days: int = 7) -> Reply[builtins.list[results.LaneVelocity]]:
        """List what each active lane gets done, the one that starves most first.
        An issue that left the lane counts as closed: whether it is, another program knows.
        `starvation` is three for each issue in the lane, divided by how many left it within the
        days, or by 0.1 if none did.

        days: Days to look back (default 7).
        """
        return self._host.queue("lane.velocity", {"days": days})

    def update(
        self,
        *,
        lane: str,
        description: str | None = None,
        intent: str | None = None,
        metadata: str | None = None,
        metadata_merge: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.Lane]:
        """Change what a lane says of itself.
        `metadata` replaces the whole object; `metadata_merge` replaces the members that it
        names; objects in both are merged in the same way.

        lane: Id or name of the lane.
        description: Description of what belongs to it.
        intent: Goal that it is to achieve.
        metadata: JSON object about the lane.
        metadata_merge: JSON object to merge into it.
        """
        return self._host.queue(
            "lane.update",
            {
                "lane": lane,
                "description": description,
                "intent": intent,
                "metadata": metadata,
                "metadata_merge": metadata_merge,
            },
            request_id,
        )


class Discovery(nouns.Queued):
    def submit(
        self,
        *,
        source: str,
        source_id: str,
        title: str,
        summary: str = "",
        url: str = "",
        score: float = 0.0,
        metadata: Json = None,
        embedding: bytes | None = None,
        dedup_threshold: float = 0.0,
        request_id: str | None = None,
    ) -> Reply[results.DiscoverySubmitted]:
        """Store a discovery, unless its source has already submitted it or a similar one.

        source: Name of the scanner that found it.
        source_id: Id of the discovery at its source.
        title: Title, one line.
        summary: Summary.
        url: URL of the finding.
        score: Relevance, from 0 to 1 (default 0).
        metadata: Metadata, as JSON.
        embedding: Little-endian float32 in base64.
        dedup_threshold: Skip a discovery whose cosine similarity to another of this source is
            at least F.
        """
        return self._host.queue(
            "discovery.submit",
            {
                "source": source,
                "source_id": source_id,
                "title": title,
                "summary": summary,
                "url": url,
                "score": score,
                "metadata": metadata,
                "embedding": embedding,
                "dedup_threshold": dedup_threshold,
            },
            request_id,
        )

    def submit_file(
        self,
        file: str,
        *,
        source: str | None = None,
        dedup_threshold: float = 0.0,
        request_id: str | None = None,
    ) -> Reply[results.DiscoverySubmittedFile]:
        """Submit each line of a file of JSON lines, all or none.

        file: Absolute path of the file.
        source: Name of the scanner that found it.
        dedup_threshold: Skip a discovery whose cosine similarity to another of this source is
            at least F.
        """
        return self._host.queue(
            "discovery.submit_file",
            {"file": file, "source": source, "dedup_threshold": dedup_threshold},
            request_id,
        )

    def get(self, id: str) -> Reply[results.DiscoveryView]:
        """Return a discovery.

        id: Id of the discovery.
        """
        return self._host.queue("discovery.get", {"id": id})

    def list(
        self,
        *,
        source: str | None = None,
        status: Literal["new", "scored", "proposed", "promoted", "dismissed"] | None = None,
        tier: Literal["high", "medium", "low", "discard"] | None = None,
        limit: int = 100,
    ) -> Reply[builtins.list[results.DiscoveryView]]:
        """List discoveries, highest effective score first.

        source: Include only this source.
        status: Include only this status.
        tier: Include only this tier.
        limit: Maximum number of results (default 100).
        """
        return self._host.queue(
            "discovery.list", {"source": source, "status": status, "tier": tier, "limit": limit}
        )

    def score(
        self, id: str, *, score: float, request_id: str | None = None
    ) -> Reply[results.DiscoveryScored]:
        """Set the score of a discovery, and clear its decay.
        Promoted and dismissed discoveries are refused.

        id: Id of the discovery.
        score: New score, from 0 to 1.
        """
        return self._host.queue("discovery.score", {"id": id, "score": score}, request_id)

    def promote(
        self,
        id: str,
        *,
        bead_id: str,
        force: bool = False,
        actor: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.DiscoveryPromoted]:
        """Promote a discovery to a bead, if its effective score reaches the promotion threshold.
        A discovery that was dismissed or has another bead is refused.
        Promoting to the same bead again changes nothing.

        id: Id of the discovery.
        bead_id: Id of the bead to promote it to.
        force: Ignore the promotion threshold; the event records it.
        actor: Name of the person or agent that forces it (default: the session).
        """
        return self._host.queue(
            "discovery.promote",
            {"id": id, "bead_id": bead_id, "force": force, "actor": actor},
            request_id,
        )

    def dismiss(
        self, id: str, *, request_id: str | None = None
    ) -> Reply[results.DiscoveryDismissed]:
        """Dismiss a discovery, even a promoted one; a second time changes nothing.

        id: Id of the discovery.
        """
        return self._host.queue("discovery.dismiss", {"id": id}, request_id)

    def feedback(
        self,
        id: str,
        *,
        signal: str,
        data: Json = None,
        actor: str = "system",
        idempotency_key: str | None = None,
        request_id: str | None = None,
    ) -> Reply[results.DiscoveryRecorded]:
        """Record a signal about a discovery, which is kept as long as the discovery.

        If the setting feedback_learning_rate is above 0, the signals promote and boost raise
        the score
        of a discovery that is neither promoted nor dismissed, and dismiss and penalize lower
        it.
        A signal with a key that is known for this discovery changes nothing.

        id: Id of the discovery.
        signal: Name of the signal, such as boost or penalize.
        data: JSON details.
        actor: Name of the person or agent that gives the signal.
        idempotency_key: Record the signal only once per discovery and key.
        """
        return self._host.queue(
            "discovery.feedback",
            {
                "id": id,
                "signal": signal,
                "data": data,
                "actor": actor,
                "idempotency_key": idempotency_key,
            },
            request_id,
        )

    def decay(
        self,
        rate: float,
        *,
        min_age: Duration = 86400,
        every: Duration = 86400,
        min_floor: float = 0.05,
        request_id: str | None = None,
    ) -> Reply[results.DiscoveryDecayed]:
        """Multiply the scores of old discoveries by 1 - rate, and count them.

        rate: Fraction of the score that is lost, from 0 to 1.
        min_age: Minimum age of a discovery (default 24h).
        every: Minimum time between two decays of a discovery (default 24h).
        min_floor: Lower bound of the total factor.
        """
        return self._host.queue(
            "discovery.decay",
            {
                "rate": rate,
                "min_age_ms": ms(min_age),
                "every_ms": ms(every),
                "min_floor": min_floor,
            },
            request_id,
        )

    def retire(
        self, *, source: str, since: int, apply: bool = False, request_id: str | None = None
    ) -> Reply[results.DiscoveryRetired]:
        """Dismiss the discoveries of a source since a time, or list them.

        source: Name of the source.
        since: Unix time; discoveries found then or later.
        apply: Dismiss the discoveries.
        """
        return self._host.queue(
            "discovery.retire", {"source": source, "since": since, "apply": apply}, request_id
        )

    def search(
        self,
        *,
        embedding: bytes | None = None,
        like: str | None = None,
        source: str | None = None,
        tier: Literal["high", "medium", "low", "discard"] | None = None,
        status: Literal["new", "scored", "proposed", "promoted", "dismissed"] | None = None,
        include_dismissed: bool = False,
        min_score: float | None = None,
        limit: int = 10,
    ) -> Reply[builtins.list[results.DiscoveryMatch]]:
        """Find the discoveries most similar to an embedding: give either `embedding` or `like`.

        embedding: Little-endian float32 in base64.
        like: Find discoveries similar to this one, which is left out.
        source: Include only this source.
        tier: Include only this tier.
        status: Include only this status.
        include_dismissed: Include dismissed discoveries.
        min_score: Minimum similarity.
        limit: Maximum number of results (default 10).
        """
        return self._host.queue(
            "discovery.search",
            {
                "embedding": embedding,
                "like": like,
                "source": source,
                "tier": tier,
                "status": status,
                "include_dismissed": include_dismissed,
                "min_score": min_score,
                "limit": limit,
            },
        )

    def profile(self) -> Reply[results.DiscoveryShown]:
        """Show the interest profile."""
        return self._host.queue("discovery.profile", {})

    def update_profile(
        self,
        *,
        keyword_weights: Json = None,
        source_weights: Json = None,
        topic_vector: bytes | None = None,
        if_version: int | None = None,
        request_id: str | None = None,
    ) -> Reply[results.DiscoveryShown]:
        """Change the interest profile; omitted fields keep their values.

        keyword_weights: Object of weights by name; null keeps the current ones.
        source_weights: Object of weights by name; null keeps the current ones.
        topic_vector: Little-endian float32 in base64; an empty value clears the topic.
        if_version: Update only if the profile is at this version (0: absent).
        """
        return self._host.queue(
            "discovery.update_profile",
            {
                "keyword_weights": keyword_weights,
                "source_weights": source_weights,
                "topic_vector": topic_vector,
                "if_version": if_version,
            },
            request_id,
        )

    def rank(
        self,
        *,
        limit: int = 20,
        source: str | None = None,
        status: Literal["new", "scored", "proposed", "promoted", "dismissed"] | None = None,
    ) -> Reply[builtins.list[results.DiscoveryRanked]]:
        """List the discoveries that best match the interest profile, best first, and why.
        A rank is the sum of the score, the weights of keywords and source, and the similarity
        to the topic.

        limit: Maximum number of results (default 20).
        source: Include only this source.
        status: Include only this status.
        """
        return self._host.queue(
            "discovery.rank", {"limit": limit, "source": source, "status": status}
        )

    def prune(
        self, *, older_than: Duration, request_id: str | None = None
    ) -> Reply[results.DiscoveryPruned]:
        """Delete discoveries dismissed at least this long ago, with their embeddings and feedback.

        A scanner that finds one again submits it again: keep them as long as that is likely.
        The event log keeps their history.

        older_than: Minimum time since the dismissal.
        """
        return self._host.queue("discovery.prune", {"older_than_ms": ms(older_than)}, request_id)


class Config(nouns.Queued):
    def set(
        self, key: str, value: Json, *, request_id: str | None = None
    ) -> Reply[results.ConfigKept]:
        """Store a value under a name.
        intercore heeds `global_max_dispatches` and `max_spawn_depth`, which limit dispatches;
        zero means no limit.

        key: Name of the value, such as global_max_dispatches.
        value: Value, as JSON.
        """
        return self._host.queue("config.set", {"key": key, "value": value}, request_id)

    def get(self, key: str) -> Reply[results.ConfigKept]:
        """Return a value that `config.set` has kept, or null.

        key: Name of the value, such as global_max_dispatches.
        """
        return self._host.queue("config.get", {"key": key})

    def list(self) -> Reply[builtins.list[results.ConfigKept]]:
        """List the values that `config.set` has kept."""
        return self._host.queue("config.list", {})


class Icd(nouns.Queued):
    def ping(self) -> Reply[results.DaemonPong]:
        """Check that the daemon answers."""
        return self._host.queue("icd.ping", {})

    def status(self) -> Reply[results.DaemonReport]:
        """Return the daemon's status and counts."""
        return self._host.queue("icd.status", {})

    def hello(
        self, *, protocols: Sequence[int] | None = None, capabilities: Sequence[str] | None = None
    ) -> Reply[results.DaemonWelcome]:
        """Negotiate the protocol version and capabilities.

        protocols: Protocol versions that the client supports, preferred first.
        capabilities: Capabilities that the client requires.
        """
        return self._host.queue("icd.hello", {"protocols": protocols, "capabilities": capabilities})

    def reload(self) -> Reply[results.DaemonReloaded]:
        """Reload the daemon with the installed version, without losing a call.

        This works however the daemon was started: by systemd or by hand.
        If the new version does not start, the daemon keeps running the old one.
        """
        return self._host.queue("icd.reload", {})


class Nouns:
    def __init__(self, host: nouns.Queue) -> None:
        self.state = State(host)
        self.sentinel = Sentinel(host)
        self.events = Events(host)
        self.cursor = Cursor(host)
        self.run = Run(host)
        self.agent = Agent(host)
        self.artifact = Artifact(host)
        self.action = Action(host)
        self.gate = Gate(host)
        self.compat = Compat(host)
        self.statusline = Statusline(host)
        self.db = Db(host)
        self.backup = Backup(host)
        self.dump = Dump(host)
        self.dispatch = Dispatch(host)
        self.lease = Lease(host)
        self.coordination = Coordination(host)
        self.session = Session(host)
        self.lane = Lane(host)
        self.discovery = Discovery(host)
        self.config = Config(host)
        self.icd = Icd(host)
