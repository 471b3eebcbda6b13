"""Gates: the checks that stand between two phases of a run.

Rules are data: which transition asks for which checks, the default ones or a run's own.  A check is
a function that reads what is recorded about one run and answers with its evidence.  The priority of
the work decides whether a failed check blocks or is only told, and whether checks are made at all.

To ask a gate changes nothing.  An advance asks in its own transaction, so between the verdict and
the step nothing can change; and a run that passes over phases meets the rules of every transition
on its way.  store.py holds the checks, the rules and the verdict.
"""
