"""The tables. Columns, constraints and named queries; no input or output, no rules of the business."""

from lab.models.endpoints import Endpoint, Model, Preflight, PriceCard
from lab.models.experiments import Arm, Attempt, Experiment, Run
from lab.models.flags import LEAKED_CALLS, Flag
from lab.models.harnesses import Harness, HarnessVersion
from lab.models.interchange import Import, ImportedGrading, ImportedTrajectory, Span, Trace
from lab.models.log import Blob, Call, Control, Draft, Event, Purge
from lab.models.people import ApiToken, Consent, Membership, Role, SignInFailure, SignInLink
from lab.models.tasks import HiddenTaskPart, Task, TaskCheck, TaskSet
from lab.models.verifications import RunFacts, TestResult, Verification

__all__ = [
    "LEAKED_CALLS",
    "ApiToken",
    "Arm",
    "Attempt",
    "Blob",
    "Call",
    "Consent",
    "Control",
    "Draft",
    "Endpoint",
    "Event",
    "Experiment",
    "Flag",
    "Harness",
    "HarnessVersion",
    "HiddenTaskPart",
    "Import",
    "ImportedGrading",
    "ImportedTrajectory",
    "Membership",
    "Model",
    "Preflight",
    "PriceCard",
    "Purge",
    "Role",
    "Run",
    "RunFacts",
    "SignInFailure",
    "SignInLink",
    "Span",
    "Task",
    "TaskCheck",
    "TaskSet",
    "TestResult",
    "Trace",
    "Verification",
]
