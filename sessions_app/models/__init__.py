from sessions_app.models.boundaries import Attachment, CompactBoundary
from sessions_app.models.erasures import Erasure
from sessions_app.models.messages import Message, PathAbsence, ToolCall, TranscriptEntry
from sessions_app.models.search import SearchText
from sessions_app.models.sessions import Session
from sessions_app.models.teams import ApiKey, Membership, Team

__all__ = [
    "ApiKey",
    "Attachment",
    "CompactBoundary",
    "Erasure",
    "Membership",
    "Message",
    "PathAbsence",
    "SearchText",
    "Session",
    "Team",
    "ToolCall",
    "TranscriptEntry",
]
