from compaction_app.models.calls import ModelCall
from compaction_app.models.client_state import ClientState
from compaction_app.models.decisions import Decision
from compaction_app.models.hooks import Hook, HookDelivery, HookEvent
from compaction_app.models.runs import ACTIVE, FINAL, CompactionRun, RunStatus, RunStep
from compaction_app.models.state import CompactionState
from compaction_app.models.telemetry import TelemetryEvent

__all__ = [
    "ACTIVE",
    "FINAL",
    "ClientState",
    "CompactionRun",
    "CompactionState",
    "Decision",
    "Hook",
    "HookDelivery",
    "HookEvent",
    "ModelCall",
    "RunStatus",
    "RunStep",
    "TelemetryEvent",
]
