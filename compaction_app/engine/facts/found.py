"""What of some messages must survive them: read off without a model, in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compaction_app.engine.extractive.errors import failed, telling_lines
from compaction_app.engine.extractive.files import file_records
from compaction_app.engine.extractive.story import Call, Said, Story, tell
from compaction_app.engine.extractive.text import bounded, clip, one_line, sentences
from compaction_app.engine.extractive.todos import Todo, TodoState, todo_state
from compaction_app.engine.facts.values import Fact, FactKind, Facts
from sessions_app.policy import Policy
from sessions_app.transcript.messages import Message

# Words by which a sentence says how things have to be, rather than what to do next.
_RULE = re.compile(
    r"\b(?:must(?:n't)?|never|always|do(?:es)? not|don['’]?t|cannot|can['’]?t|may not|should(?:n['’]?t)?|shall|ought"
    r"|only|at (?:most|least)|no (?:more|less|later|other|longer) than|up to|(?:more|less|fewer|larger|longer) than|keep"
    r"|avoid|prefer|rather than|instead of|make sure|ensure|without|except|unless|requires?d?|limit(?:ed)?|maximum"
    r"|minimum|not allowed|forbidden|important|remember|from now on|stick to|rules?|no need|not)\b"
    r"|必须|必須|不要|不能|不得|不许|不用|别|禁止|务必|总是|始终|永远|只(?:能|要|用|许|有)|应该|至少|最多|不超过|保持|避免|记住|优先|而不是"
    r"|必ず|ないで|禁止|だけ|べき|常に|絶対|以内|以上|以下|してはいけ|してはなら|ください"
    r"|반드시|절대|항상|하지\s?마|말고|금지|최대|최소|이내|만\s"
    r"|\b(?:immer|nie(?:mals)?|nicht|kein\w*|muss|müssen|darf|dürfen|soll\w*|nur|höchstens|mindestens|statt|ohne)\b"
    r"|\b(?:toujours|jamais|pas|doit|doivent|seulement|sans|maximum|évite\w*)\b"
    r"|\b(?:siempre|nunca|debe\w*|solo|sólo|sin|evita\w*|sempre|deve\w*|apenas|sem)\b"
    r"|всегда|никогда|нельзя|должн|не\s|только|без\s|обязательно",
    re.IGNORECASE,
)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_WORD = re.compile(r"\w", re.UNICODE)
# Of one message. What was pasted into it, a log or a page, must not crowd out what other messages say.
MOST_RULES = 16
SHORTEST = 8  # characters of a sentence that is no rule: "ok" and "go on" say nothing for later
TRIED_WORDS = 4  # of a command, by which a later run of it is known


@dataclass(frozen=True, slots=True)
class Found:
    """What the messages hold, next to what was carried before them.

    `facts`: all but todos. `todos`: the items that are open now, whoever wrote them; None where these messages say
    nothing of any. `settled`: what was seen to work, with the position where that was.
    """

    facts: tuple[Fact, ...]
    todos: tuple[Fact, ...] | None
    todos_at: int
    settled: dict[str, int]


def facts_in(*, messages: Sequence[Message], before: Facts, policy: Policy) -> Found:
    """Look through the messages, oldest first. `before`: what was carried when they came. Linear in their length."""
    story = tell(messages=messages, policy=policy)
    open_errors, settled = _errors(story, messages, policy)
    todos, todos_at = _todos(story, messages, before)
    facts = (*_people(story, messages, policy), *open_errors, *_files(story, messages, policy))
    return Found(facts=facts, todos=todos, todos_at=todos_at, settled=settled)


def _people(story: Story, messages: Sequence[Message], policy: Policy) -> Iterator[Fact]:
    """The first message whole, and the sentences of all."""
    for number, said in enumerate(story.users):
        uuid = messages[said.at].uuid
        if number == 0:
            yield Fact(kind=FactKind.REQUEST, text=said.text.strip(), uuid=uuid, position=said.position)
        rules = other = 0
        for sentence in _sentences(said, policy):
            is_rule = _RULE.search(sentence) is not None
            rules, other = rules + is_rule, other + (not is_rule)
            if is_rule and rules <= MOST_RULES:
                yield Fact(kind=FactKind.RULE, text=sentence, uuid=uuid, position=said.position)
            elif not is_rule and other <= MOST_RULES and len(sentence) >= SHORTEST:
                yield Fact(kind=FactKind.SAID, text=sentence, uuid=uuid, position=said.position)


def _sentences(said: Said, policy: Policy) -> Iterator[str]:
    read = bounded(said.text, head=policy.extract_result_head_chars, tail=policy.extract_result_tail_chars)
    for sentence in sentences(_FENCED.sub("\n", read)):
        if _WORD.search(sentence):
            yield sentence


def _files(story: Story, messages: Sequence[Message], policy: Policy) -> Iterator[Fact]:
    for record in file_records(story.calls):
        if record.is_changed and len(record.path) <= policy.extract_path_chars:
            source = messages[record.last_at]
            yield Fact(kind=FactKind.FILE, text=record.path, uuid=source.uuid, position=source.position)


def _errors(
    story: Story, messages: Sequence[Message], policy: Policy
) -> tuple[tuple[Fact, ...], dict[str, int]]:
    """What failed last time that it was tried, and what has worked, by what was tried."""
    left: dict[str, Fact] = {}
    settled: dict[str, int] = {}
    for call in story.calls:
        if call.result is None:
            continue
        source, key = messages[call.at], tried(call)
        if not failed(call):
            left.pop(key, None)
            settled[key] = source.position
            continue
        lines = telling_lines(call.result)
        if lines:
            text = clip(lines[0], limit=policy.extract_line_chars)
            left[key] = Fact(kind=FactKind.ERROR, text=text, uuid=source.uuid, position=source.position, key=key)
    return tuple(left.values()), settled


def tried(call: Call) -> str:
    """What a call tried, so that the same try is known again: the tool with its file, or the command without flags."""
    words = [word for word in call.command.split() if not word.startswith("-")]
    return one_line(f"{call.name} {call.path or ' '.join(words[:TRIED_WORDS])}")[:200]


def _todos(story: Story, messages: Sequence[Message], before: Facts) -> tuple[tuple[Fact, ...] | None, int]:
    """The open items after these messages; None where no call of theirs is newer than what was carried."""
    calls = [call for call in story.calls if messages[call.at].position > before.todos_at]
    carried = {(fact.key, fact.text): fact for fact in before.facts if fact.kind is FactKind.TODO}
    known = TodoState(items=tuple(Todo(text=text, status="pending", key=key) for key, text in carried), plan="")
    state = todo_state(calls, before=known)
    newest = max((item.at for item in state.items), default=-1)
    if newest < 0:
        return None, before.todos_at
    facts = []
    for item in state.items:
        if not item.is_open:
            continue
        if item.at < 0:
            facts.append(carried[item.key, item.text])
        else:
            source = messages[item.at]
            facts.append(
                Fact(
                    kind=FactKind.TODO, text=item.text, uuid=source.uuid, position=source.position, key=item.key
                )
            )
    return tuple(facts), messages[newest].position
