"""The tables. Columns, constraints and named queries; no input or output, no rules of the business."""

from lab.models.endpoints import Endpoint, Model
from lab.models.experiments import Arm, Attempt, Experiment, Run
from lab.models.harnesses import Harness, HarnessVersion
from lab.models.log import Blob, Call, Control, Draft, Event, Purge
from lab.models.people import ApiToken, Consent, Membership, Role, SignInFailure, SignInLink
from lab.models.tasks import HiddenTaskPart, Task, TaskCheck, TaskSet
from lab.models.verifications import RunFacts, TestResult, Verification

__all__ = [
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
    "Harness",
    "HarnessVersion",
    "HiddenTaskPart",
    "Membership",
    "Model",
    "Purge",
    "Role",
    "Run",
    "RunFacts",
    "SignInFailure",
    "SignInLink",
    "Task",
    "TaskCheck",
    "TaskSet",
    "TestResult",
    "Verification",
]
