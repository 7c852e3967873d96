from compaction_app.models.decisions import Decision
from compaction_app.models.runs import ACTIVE, FINAL, CompactionRun, RunStatus, RunStep
from compaction_app.models.state import CompactionState
from compaction_app.models.telemetry import TelemetryEvent

__all__ = ["ACTIVE", "FINAL", "CompactionRun", "CompactionState", "Decision", "RunStatus", "RunStep", "TelemetryEvent"]
