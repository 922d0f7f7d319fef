"""The tables. Columns, constraints and named queries; no input or output, no rules of the business."""

from lab.models.annotations import Annotation, Annotator, ErrorEvent
from lab.models.endpoints import Endpoint, Model, Preflight, PriceCard
from lab.models.experiments import Arm, Attempt, Experiment, Run
from lab.models.flags import LEAKED_CALLS, Flag
from lab.models.harnesses import Harness, HarnessVersion
from lab.models.interchange import Import, ImportedGrading, ImportedTrajectory, Span, Trace
from lab.models.judging import JudgeCall, JudgeRun
from lab.models.log import Blob, Call, Control, Draft, Event, Purge
from lab.models.people import ApiToken, Consent, Membership, Role, SignInFailure, SignInLink
from lab.models.queues import Claim, Queue, QueueItem, Skip
from lab.models.tasks import HiddenTaskPart, Task, TaskCheck, TaskSet
from lab.models.taxonomies import Guideline, GuidelineVersion, Taxonomy, TaxonomyVersion
from lab.models.verifications import RunFacts, TestResult, Verification

__all__ = [
    "LEAKED_CALLS",
    "Annotation",
    "Annotator",
    "ApiToken",
    "Arm",
    "Attempt",
    "Blob",
    "Call",
    "Claim",
    "Consent",
    "Control",
    "Draft",
    "Endpoint",
    "ErrorEvent",
    "Event",
    "Experiment",
    "Flag",
    "Guideline",
    "GuidelineVersion",
    "Harness",
    "HarnessVersion",
    "HiddenTaskPart",
    "Import",
    "ImportedGrading",
    "ImportedTrajectory",
    "JudgeCall",
    "JudgeRun",
    "Membership",
    "Model",
    "Preflight",
    "PriceCard",
    "Purge",
    "Queue",
    "QueueItem",
    "Role",
    "Run",
    "RunFacts",
    "SignInFailure",
    "SignInLink",
    "Skip",
    "Span",
    "Task",
    "TaskCheck",
    "TaskSet",
    "Taxonomy",
    "TaxonomyVersion",
    "TestResult",
    "Trace",
    "Verification",
]
