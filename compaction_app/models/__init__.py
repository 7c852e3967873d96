from compaction_app.models.runs import ACTIVE, FINAL, CompactionRun, RunStatus, RunStep
from compaction_app.models.telemetry import TelemetryEvent

__all__ = ["ACTIVE", "FINAL", "CompactionRun", "RunStatus", "RunStep", "TelemetryEvent"]
