from compaction_app.models.calls import ModelCall
from compaction_app.models.candidates import CompactionCandidate
from compaction_app.models.client_state import ClientState
from compaction_app.models.decisions import Decision
from compaction_app.models.failures import FailureDay, FailureGroup, FailureNote, GroupState
from compaction_app.models.hooks import Hook, HookDelivery, HookEvent
from compaction_app.models.idempotency import IdempotentCall
from compaction_app.models.imports import IMPORT_AT_WORK, ImportStatus, TranscriptImport
from compaction_app.models.memory import SessionMemory
from compaction_app.models.runs import ACTIVE, AT_WORK, FINAL, CompactionRun, RunStatus, RunStep
from compaction_app.models.state import CompactionState
from compaction_app.models.telemetry import TelemetryEvent

__all__ = [
    "ACTIVE",
    "AT_WORK",
    "FINAL",
    "IMPORT_AT_WORK",
    "ClientState",
    "CompactionCandidate",
    "CompactionRun",
    "CompactionState",
    "Decision",
    "FailureDay",
    "FailureGroup",
    "FailureNote",
    "GroupState",
    "Hook",
    "HookDelivery",
    "HookEvent",
    "IdempotentCall",
    "ImportStatus",
    "ModelCall",
    "RunStatus",
    "RunStep",
    "SessionMemory",
    "TelemetryEvent",
    "TranscriptImport",
]
