"""The results of calls, by name.  Made by `make docs` from the rows of the verbs: do not edit."""

from icd.db.original.adopt import Left as DatabaseLeft
from icd.features.compat.import_ import Verdicts as CompatVerdicts
from icd.features.compat.store import Document as CompatDocument
from icd.features.compat.store import Guard as CompatGuard
from icd.features.compat.store import Side as CompatSide
from icd.features.compat.verbs import Known as CompatKnown
from icd.features.config import Kept as ConfigKept
from icd.features.coordination.forms import Conflict as CoordinationConflict
from icd.features.coordination.forms import Outcome as CoordinationOutcome
from icd.features.coordination.forms import Outcomes as CoordinationOutcomes
from icd.features.coordination.forms import Released as CoordinationReleased
from icd.features.coordination.forms import Renewed as CoordinationRenewed
from icd.features.coordination.forms import Touched as CoordinationTouched
from icd.features.coordination.forms import Transferred as CoordinationTransferred
from icd.features.coordination.records import Shown as CoordinationShown
from icd.features.coordination.store import Swept as CoordinationSwept
from icd.features.daemon.report import FailuresByCaller as DaemonFailuresByCaller
from icd.features.daemon.report import HooksReport as DaemonHooksReport
from icd.features.daemon.report import LastError as DaemonLastError
from icd.features.daemon.report import MethodReport as DaemonMethodReport
from icd.features.daemon.report import MirrorReport as DaemonMirrorReport
from icd.features.daemon.report import OpenDatabase as DaemonOpenDatabase
from icd.features.daemon.report import Rates as DaemonRates
from icd.features.daemon.report import Report as DaemonReport
from icd.features.daemon.report import StartUpError as DaemonStartUpError
from icd.features.daemon.verbs import Pong as DaemonPong
from icd.features.daemon.verbs import Reloaded as DaemonReloaded
from icd.features.daemon.verbs import Welcome as DaemonWelcome
from icd.features.database.backup import Made as BackupMade
from icd.features.database.backup import Restored as BackupRestored
from icd.features.database.dump import Exported as DumpExported
from icd.features.database.dump import Imported as DumpImported
from icd.features.database.verbs import Adopted as DatabaseAdopted
from icd.features.database.verbs import Checked as DatabaseChecked
from icd.features.database.verbs import Healthy as DatabaseHealthy
from icd.features.database.verbs import Initialized as DatabaseInitialized
from icd.features.database.verbs import SchemaVersion as DatabaseSchemaVersion
from icd.features.database.verbs import Vacuumed as DatabaseVacuumed
from icd.features.database.watch import Written as DatabaseWritten
from icd.features.discoveries.lifecycle import Submitted as DiscoverySubmitted
from icd.features.discoveries.promote import Dismissed as DiscoveryDismissed
from icd.features.discoveries.promote import Promoted as DiscoveryPromoted
from icd.features.discoveries.promote import Recorded as DiscoveryRecorded
from icd.features.discoveries.promote import Scored as DiscoveryScored
from icd.features.discoveries.rank import Ranked as DiscoveryRanked
from icd.features.discoveries.rank import Shown as DiscoveryShown
from icd.features.discoveries.search import Match as DiscoveryMatch
from icd.features.discoveries.store import View as DiscoveryView
from icd.features.discoveries.submit import SubmittedFile as DiscoverySubmittedFile
from icd.features.discoveries.verbs import Decayed as DiscoveryDecayed
from icd.features.discoveries.verbs import Pruned as DiscoveryPruned
from icd.features.discoveries.verbs import Retired as DiscoveryRetired
from icd.features.dispatches.auto_spawn import Due as DispatchDue
from icd.features.dispatches.calls import Pruned as DispatchPruned
from icd.features.dispatches.calls import Recorded as DispatchRecorded
from icd.features.dispatches.calls import Spent as DispatchSpent
from icd.features.dispatches.poll import Progress as DispatchProgress
from icd.features.dispatches.poll import Seen as DispatchSeen
from icd.features.dispatches.store import Dispatch
from icd.features.dispatches.store import End as DispatchEnd
from icd.features.events.cursors import Place as CursorPlace
from icd.features.events.record import Recorded as EventRecorded
from icd.features.events.retention import Pruned as EventPruned
from icd.features.events.review import Review as EventReview
from icd.features.events.store import Batch as EventBatch
from icd.features.events.store import Event
from icd.features.events.store import Marks as EventMarks
from icd.features.events.verbs import ResetCount as CursorResetCount
from icd.features.gates.signals import Signal as GateSignal
from icd.features.gates.signals import Signals as GateSignals
from icd.features.gates.store import Check as GateCheck
from icd.features.gates.store import Condition as GateCondition
from icd.features.gates.store import Evidence as GateEvidence
from icd.features.gates.store import Rule as GateRule
from icd.features.gates.verbs import Checked as GateChecked
from icd.features.gates.verbs import Overridden as GateOverridden
from icd.features.lanes.store import Document as LaneDocument
from icd.features.lanes.store import Happened as LaneHappened
from icd.features.lanes.store import Lane
from icd.features.lanes.store import Synced as LaneSynced
from icd.features.lanes.store import Velocity as LaneVelocity
from icd.features.lanes.verbs import Created as LaneCreated
from icd.features.leases.store import Lease
from icd.features.leases.verbs import Released as LeaseReleased
from icd.features.runs.actions import Action
from icd.features.runs.budget import Budget as RunBudget
from icd.features.runs.budget import Tokens as RunTokens
from icd.features.runs.create import Rollback as RunRollback
from icd.features.runs.history import PhaseEvent as RunPhaseEvent
from icd.features.runs.store import Agent, Artifact
from icd.features.runs.store import Document as RunDocument
from icd.features.runs.store import Origin as ArtifactOrigin
from icd.features.runs.transitions import Advance as RunAdvance
from icd.features.runs.verbs.actions import Added as ActionAdded
from icd.features.runs.verbs.actions import Deleted as ActionDeleted
from icd.features.runs.verbs.agents import Added as AgentAdded
from icd.features.runs.verbs.agents import Updated as AgentUpdated
from icd.features.runs.verbs.artifacts import Added as ArtifactAdded
from icd.features.runs.verbs.create import Created as RunCreated
from icd.features.runs.verbs.runs import Found as RunFound
from icd.features.runs.verbs.snapshot import Gate as RunGate
from icd.features.runs.verbs.snapshot import Snapshot as RunSnapshot
from icd.features.runs.verbs.transitions import Changed as RunChanged
from icd.features.runs.verbs.transitions import Skipped as RunSkipped
from icd.features.sentinels.store import Sentinel
from icd.features.sentinels.verbs import Checked as SentinelChecked
from icd.features.sentinels.verbs import Claim as SentinelClaim
from icd.features.sentinels.verbs import Pruned as SentinelPruned
from icd.features.sentinels.verbs import ResetCount as SentinelResetCount
from icd.features.sessions.store import Attribution as SessionAttribution
from icd.features.sessions.store import Session
from icd.features.sessions.verbs import Added as SessionAdded
from icd.features.sessions.verbs import Attributed as SessionAttributed
from icd.features.sessions.verbs import Ended as SessionEnded
from icd.features.sessions.verbs import Started as SessionStarted
from icd.features.state.store import Document as StateDocument
from icd.features.state.store import Name as StateName
from icd.features.state.store import Written as StateWritten
from icd.features.state.verbs import Deleted as StateDeleted
from icd.features.state.verbs import Pruned as StatePruned
from icd.features.state.watch import Gone as StateGone
from icd.features.statusline.store import Bead as StatuslineBead
from icd.features.statusline.store import Budget as StatuslineBudget
from icd.features.statusline.store import Coordination as StatuslineCoordination
from icd.features.statusline.store import Dispatch as StatuslineDispatch
from icd.features.statusline.store import Lane as StatuslineLane
from icd.features.statusline.store import Pressure as StatuslinePressure
from icd.features.statusline.store import Run as StatuslineRun
from icd.features.statusline.store import Statusline
from icd.values.processes import Process as DispatchProcess

__all__ = [
    "Action",
    "ActionAdded",
    "ActionDeleted",
    "Agent",
    "AgentAdded",
    "AgentUpdated",
    "Artifact",
    "ArtifactAdded",
    "ArtifactOrigin",
    "BackupMade",
    "BackupRestored",
    "CompatDocument",
    "CompatGuard",
    "CompatKnown",
    "CompatSide",
    "CompatVerdicts",
    "ConfigKept",
    "CoordinationConflict",
    "CoordinationOutcome",
    "CoordinationOutcomes",
    "CoordinationReleased",
    "CoordinationRenewed",
    "CoordinationShown",
    "CoordinationSwept",
    "CoordinationTouched",
    "CoordinationTransferred",
    "CursorPlace",
    "CursorResetCount",
    "DaemonFailuresByCaller",
    "DaemonHooksReport",
    "DaemonLastError",
    "DaemonMethodReport",
    "DaemonMirrorReport",
    "DaemonOpenDatabase",
    "DaemonPong",
    "DaemonRates",
    "DaemonReloaded",
    "DaemonReport",
    "DaemonStartUpError",
    "DaemonWelcome",
    "DatabaseAdopted",
    "DatabaseChecked",
    "DatabaseHealthy",
    "DatabaseInitialized",
    "DatabaseLeft",
    "DatabaseSchemaVersion",
    "DatabaseVacuumed",
    "DatabaseWritten",
    "DiscoveryDecayed",
    "DiscoveryDismissed",
    "DiscoveryMatch",
    "DiscoveryPromoted",
    "DiscoveryPruned",
    "DiscoveryRanked",
    "DiscoveryRecorded",
    "DiscoveryRetired",
    "DiscoveryScored",
    "DiscoveryShown",
    "DiscoverySubmitted",
    "DiscoverySubmittedFile",
    "DiscoveryView",
    "Dispatch",
    "DispatchDue",
    "DispatchEnd",
    "DispatchProcess",
    "DispatchProgress",
    "DispatchPruned",
    "DispatchRecorded",
    "DispatchSeen",
    "DispatchSpent",
    "DumpExported",
    "DumpImported",
    "Event",
    "EventBatch",
    "EventMarks",
    "EventPruned",
    "EventRecorded",
    "EventReview",
    "GateCheck",
    "GateChecked",
    "GateCondition",
    "GateEvidence",
    "GateOverridden",
    "GateRule",
    "GateSignal",
    "GateSignals",
    "Lane",
    "LaneCreated",
    "LaneDocument",
    "LaneHappened",
    "LaneSynced",
    "LaneVelocity",
    "Lease",
    "LeaseReleased",
    "RunAdvance",
    "RunBudget",
    "RunChanged",
    "RunCreated",
    "RunDocument",
    "RunFound",
    "RunGate",
    "RunPhaseEvent",
    "RunRollback",
    "RunSkipped",
    "RunSnapshot",
    "RunTokens",
    "Sentinel",
    "SentinelChecked",
    "SentinelClaim",
    "SentinelPruned",
    "SentinelResetCount",
    "Session",
    "SessionAdded",
    "SessionAttributed",
    "SessionAttribution",
    "SessionEnded",
    "SessionStarted",
    "StateDeleted",
    "StateDocument",
    "StateGone",
    "StateName",
    "StatePruned",
    "StateWritten",
    "Statusline",
    "StatuslineBead",
    "StatuslineBudget",
    "StatuslineCoordination",
    "StatuslineDispatch",
    "StatuslineLane",
    "StatuslinePressure",
    "StatuslineRun",
]
