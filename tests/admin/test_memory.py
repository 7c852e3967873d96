"""A session's memory in the admin: the line on the session's page, and the page with the document."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from compaction_app import actions, telemetry
from compaction_app.models import CompactionState, SessionMemory, TelemetryEvent
from sessions_app.models import Session
from tests.admin.conftest import World, history
from tests.factories import NOW, append, make_session, turns, user

HOSTILE = (
    "# <script>alert(1)</script>\n<img src=x onerror=alert(2)>\n\n## Done\n- the \u202elexer\n\n```\n# no heading\n```"
)


def path(session: Session) -> str:
    return f"/admin/sessions_app/session/{session.pk}/memory/"


@pytest.fixture
def fresh(world: World) -> Session:
    session = make_session(world.team, title="Remember")
    append(session, *turns(5, size=2_000))
    return Session.objects.select_related("team").get(pk=session.pk)


def give(session: Session, content: str, covers: str = "b3") -> SessionMemory:
    return actions.put_memory(session=session, content=content, covers=covers, now=NOW)


def extracted(session: Session, **values: Any) -> SessionMemory:
    row = give(session, "# Task\nMend the parser.")
    given = {"source": "extracted", "summarizer": "anthropic_messages", "model": "m" * 200, "generation": 2, **values}
    SessionMemory.objects.filter(pk=row.pk).update(**given)
    return row


def told(session: Session, name: str, **payload: Any) -> None:
    TelemetryEvent.objects.create(team=session.team, session=session, name=name, payload=payload, at=NOW)


class TestLine:
    def test_it_works(self, world: World, fresh: Session) -> None:
        row = give(fresh, "# Task\nMend the parser.")
        page = world.page("vic", history(fresh))
        assert f"{row.tokens} tokens, covers to #{row.covers_position}" in page
        assert "given by the client" in page
        assert path(fresh) in page

    def test_what_extracted_it(self, world: World, fresh: Session) -> None:
        extracted(fresh)
        assert "extracted by anthropic_messages" in world.page("vic", history(fresh))

    @pytest.mark.parametrize("emptied", [False, True])
    def test_without_one(self, world: World, fresh: Session, emptied: bool) -> None:
        if emptied:
            give(fresh, "")
        page = world.page("vic", history(fresh))
        assert "none yet</a>" in page
        assert path(fresh) in page


class TestPage:
    def test_it_works(self, world: World, fresh: Session) -> None:
        row = extracted(fresh)
        page = world.page("vic", path(fresh))
        assert f"#m{row.covers_position}" in page
        assert "extracted by anthropic_messages" in page
        assert "<dt>Generation</dt><dd>2</dd>" in page
        assert "<summary>Task</summary>" in page
        assert "Mend the parser." in page
        assert "passes it over" not in page

    def test_nothing_in_the_document_is_markup(self, world: World, fresh: Session) -> None:
        give(fresh, HOSTILE)
        page = world.page("vic", path(fresh))
        assert "<summary>&lt;script&gt;alert(1)&lt;/script&gt;</summary>" in page
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "the ⟦U+202E⟧lexer" in page
        assert "<summary>no heading</summary>" not in page

    def test_a_document_of_any_size_fits_the_page(self, world: World, fresh: Session) -> None:
        give(fresh, "".join(f"# part {number}\nsaid\n" for number in range(300)) + "x" * 399_000)
        page = world.page("vic", path(fresh))
        assert page.count("ca-section") == 201
        assert "100 more sections and " in page
        assert "the API gives the whole document" in page
        assert "cut to 12,000 tokens" in page
        assert len(page) < 500_000

    @pytest.mark.parametrize("emptied", [False, True])
    def test_without_one(self, world: World, fresh: Session, emptied: bool) -> None:
        if emptied:
            give(fresh, "")
        page = world.page("vic", path(fresh))
        assert "No memory yet" in page
        assert "<h2>Document</h2>" not in page

    def test_only_looks(self, world: World, fresh: Session) -> None:
        give(fresh, "# Task\nMend it.")
        world.clients["alice"].post(path(fresh), {"content": "owned"})
        assert SessionMemory.objects.get().content == "# Task\nMend it."
        assert "<form" not in world.page("alice", path(fresh)).partition('class="ca-page"')[2].partition("</main>")[0]

    def test_who_may(self, world: World, fresh: Session) -> None:
        give(fresh, "# Task\nMend it.")
        assert world.get("charlie", path(fresh)).status_code == 404
        assert world.get("root", path(fresh)).status_code == 200
        world.clients["vic"].logout()
        assert world.get("vic", path(fresh)).status_code == 302

    def test_costs_the_same_for_any_memory(self, world: World, fresh: Session, django_assert_num_queries: Any) -> None:
        for count in (1, 50):
            extracted(fresh, content="# part\nsaid\n" * count)
            for _ in range(count):
                told(fresh, telemetry.MEMORY_EXTRACTED)
            # user, session with team and state; memory, whether it is live, head boundary, newest try
            with django_assert_num_queries(6):
                world.page("root", path(fresh))


class TestWhyItIsPassedOver:
    def test_it_is_only_a_template(self, world: World, fresh: Session) -> None:
        give(fresh, "# Task\n_what is to be done_")
        assert "empty, or only a template" in world.page("vic", path(fresh))

    def test_it_covers_what_was_left(self, world: World, fresh: Session) -> None:
        give(fresh, "# Task\nMend it.", covers="b4")
        append(fresh, user("another way", parent_uuid="b2"))
        assert "which is not on the live path" in world.page("vic", path(fresh))

    def test_the_summary_knows_more(self, world: World) -> None:
        give(world.session, "# Task\nMend it.", covers="u0")
        assert "the summary that is shown knows more" in world.page("vic", path(world.session))

    def test_it_is_switched_off(self, world: World, fresh: Session) -> None:
        Session.objects.filter(pk=fresh.pk).update(policy_overrides={"memory_enabled": False})
        give(fresh, "# Task\nMend it.")
        page = world.page("vic", path(fresh))
        assert "switched off (memory_enabled)" in page
        assert "switched off (memory_enabled)" in page


class TestExtraction:
    def test_how_much_is_missing(self, world: World, fresh: Session) -> None:
        page = world.page("vic", path(fresh))
        assert "Grown so far" in page
        assert f"{fresh.appended_tokens:,} of 10,000 tokens" in page
        CompactionState.objects.create(session=fresh, memory_at_tokens=100, memory_at_calls=3)
        page = world.page("vic", path(fresh))
        assert "Grown since" in page
        assert f"{fresh.appended_tokens - 100:,} of 5,000 tokens, 2 of 3 tool calls" in page

    def test_a_failure_is_told_until_it_works(self, world: World, fresh: Session) -> None:
        told(fresh, telemetry.MEMORY_FAILED, reason="no_<b>summary")
        page = world.page("vic", path(fresh))
        assert "failed</span> no &lt;b&gt;summary, 2026-11-03" in page
        told(fresh, telemetry.MEMORY_EXTRACTED)
        page = world.page("vic", path(fresh))
        assert "failed</span>" not in page
        assert "written, 2026-11-03" in page

    def test_one_that_is_under_way(self, world: World, fresh: Session) -> None:
        state = CompactionState.objects.create(session=fresh, memory_asked_at=timezone.now())
        assert "Under way" in world.page("vic", path(fresh))
        CompactionState.objects.filter(pk=state.pk).update(memory_asked_at=timezone.now() - timedelta(hours=1))
        assert "Under way" not in world.page("vic", path(fresh))

    @pytest.mark.parametrize(
        ("figures", "why"),
        [
            ({"memory_extraction": False}, "switched off (memory_extraction)"),
            ({"auto_compact_enabled": False}, "automatic compaction is switched off by the session"),
        ],
    )
    def test_why_there_is_none(self, world: World, fresh: Session, figures: dict[str, Any], why: str) -> None:
        Session.objects.filter(pk=fresh.pk).update(policy_overrides=figures)
        page = world.page("vic", path(fresh))
        assert f"None is extracted: {why}" in page
        assert "Grown so far" not in page

    def test_a_clients_own_is_left_alone(self, world: World, fresh: Session) -> None:
        give(fresh, "# Task\nMend it.")
        assert "the client keeps the memory itself" in world.page("vic", path(fresh))
