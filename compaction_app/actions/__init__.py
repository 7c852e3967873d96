"""What one can do, a function per verb. API, admin and commands call these; nothing else enqueues."""

from compaction_app.actions.approvals import accept_candidate, edit_candidate, reject_candidate
from compaction_app.actions.boundaries import restore_boundary, revert_boundary
from compaction_app.actions.compacting import (
    NothingToCompact,
    ReactiveRefused,
    Wanted,
    check_wanted,
    compact_now,
    reported,
    request_compaction,
)
from compaction_app.actions.failures import (
    Retried,
    acknowledge_failures,
    note_on_failures,
    reopen_failures,
    retry_failures,
)
from compaction_app.actions.forecasts import Plan, plan_compaction
from compaction_app.actions.handing_out import hand_out_on_commit, recover_runs, refresh_catalog
from compaction_app.actions.idempotency import free_key, hand_back_call, keep_answer, take_call
from compaction_app.actions.imports import import_upload
from compaction_app.actions.memory import put_memory
from compaction_app.actions.runs import cancel_run, retry_run
from compaction_app.actions.sessions import (
    create_session,
    erase_session,
    export_session,
    import_file,
    put_state,
    reset_breaker,
    update_session,
)
from compaction_app.actions.teams import (
    authenticate,
    create_api_key,
    create_hook,
    delete_hook,
    has_room_for_hook,
    hook_problems,
    revoke_api_keys,
    rotate_hook_secret,
    update_hook,
)
from compaction_app.actions.turns import Prepared, Turn, append_turn, prepare
from compaction_app.engine.command import CommandError
from compaction_app.services.approvals import BadEdit, CannotAccept, Decider, NotAwaiting
from compaction_app.services.cancelling import WrongStatus
from compaction_app.services.clearing import Applied
from compaction_app.services.failure_reviews import LONGEST_NOTE
from compaction_app.services.hook_setup import BadHook
from compaction_app.services.idempotency import CallInProgress, HeldCall, KeptAnswer, KeyConflict
from compaction_app.services.memory import MemoryRefused
from compaction_app.services.partial import PartialRefused
from compaction_app.services.runs import ActiveRun
from sessions_app.services.append import UuidConflict
from sessions_app.services.boundaries import StaleView
from sessions_app.services.exports import ExportRefused
from sessions_app.services.incoming import IncomingMessage
from sessions_app.services.reverts import RevertRefused
from sessions_app.services.transcripts import ImportRefused

__all__ = [
    "LONGEST_NOTE",
    "ActiveRun",
    "Applied",
    "BadEdit",
    "BadHook",
    "CallInProgress",
    "CannotAccept",
    "CommandError",
    "Decider",
    "ExportRefused",
    "HeldCall",
    "ImportRefused",
    "IncomingMessage",
    "KeptAnswer",
    "KeyConflict",
    "MemoryRefused",
    "NotAwaiting",
    "NothingToCompact",
    "PartialRefused",
    "Plan",
    "Prepared",
    "ReactiveRefused",
    "Retried",
    "RevertRefused",
    "StaleView",
    "Turn",
    "UuidConflict",
    "Wanted",
    "WrongStatus",
    "accept_candidate",
    "acknowledge_failures",
    "append_turn",
    "authenticate",
    "cancel_run",
    "check_wanted",
    "compact_now",
    "create_api_key",
    "create_hook",
    "create_session",
    "delete_hook",
    "edit_candidate",
    "erase_session",
    "export_session",
    "free_key",
    "hand_back_call",
    "hand_out_on_commit",
    "has_room_for_hook",
    "hook_problems",
    "import_file",
    "import_upload",
    "keep_answer",
    "note_on_failures",
    "plan_compaction",
    "prepare",
    "put_memory",
    "put_state",
    "recover_runs",
    "refresh_catalog",
    "reject_candidate",
    "reopen_failures",
    "reported",
    "request_compaction",
    "reset_breaker",
    "restore_boundary",
    "retry_failures",
    "retry_run",
    "revert_boundary",
    "revoke_api_keys",
    "rotate_hook_secret",
    "take_call",
    "update_hook",
    "update_session",
]
