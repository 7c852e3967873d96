"""search/, and the text filters of sessions and messages."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from compaction_app import actions
from sessions_app.models import Session
from tests.api.queries import assert_same_count, queries_of
from tests.build import res, use
from tests.cast import Api, Cast, errors
from tests.factories import NOW, append, assistant, make_session, turns, user

FIELDS = {"kind", "session", "session_title", "message", "position", "role", "boundary", "at", "snippet"}
WORDS = ["关键", "Straße", "STRASSE", "🎉", 'say "hi"', "C:\\temp", "a\nb", "100%", "a_b", "é", "한국", "カナ"]


def found(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.content
    return answer.json()["results"]


def compact(session: Session) -> Any:
    run = actions.compact_now(session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None)
    assert run.boundary
    return run.boundary


class TestSearch:
    def test_it_works(self, api: Api, cast: Cast) -> None:
        session = make_session(cast.alices_team, title="Login page")
        text = "x" * 300 + " the LOGIN page " + "y" * 300
        append(session, user(text, uuid="m-1"), assistant("nothing of it"))
        [hit] = found(api.read("search/", q="login Page"))
        assert set(hit) == FIELDS
        assert (hit["kind"], hit["session"], hit["session_title"]) == ("message", str(session.uuid), "Login page")
        assert (hit["message"], hit["position"], hit["role"], hit["boundary"]) == ("m-1", 1, "user", None)
        assert hit["at"] == NOW.isoformat().replace("+00:00", "Z")
        assert len(hit["snippet"]) == 160
        assert " the LOGIN page " in hit["snippet"]

    def test_a_summary_is_found(self, api: Api, session: Session) -> None:
        append(session, *turns(40))
        boundary = compact(session)
        [hit] = found(api.read("search/", q=boundary.summary[40:80], kind="summary"))
        assert (hit["kind"], hit["boundary"], hit["message"]) == ("summary", str(boundary.uuid), None)
        assert (hit["position"], hit["role"]) == (None, None)
        assert boundary.summary[40:80] in hit["snippet"]

    def test_newest_first_page_by_page(self, api: Api, cast: Cast) -> None:
        for number in range(5):
            append(make_session(cast.alices_team, external_id=str(number)), user(f"needle {number}"))
        first = api.read("search/", q="needle", page_size=2)
        second = api.read(first.json()["next"])
        third = api.read(second.json()["next"])
        assert [hit["snippet"][-1] for page in (first, second, third) for hit in found(page)] == list("43210")
        assert third.json()["next"] is None

    @pytest.mark.parametrize("q", WORDS)
    def test_any_language_and_any_sign(self, api: Api, session: Session, q: str) -> None:
        append(session, user(f"before {q} after"), user([res("A", f"{q}\ud800\x00")]), user("nothing, axb 100 1000"))
        assert [hit["position"] for hit in found(api.read("search/", q=q))] == [2, 1]

    @pytest.mark.parametrize("q", ["%", "_", "n%g", "\\", "关字", "键关"])
    def test_nothing_has_a_meaning_of_its_own(self, api: Api, session: Session, q: str) -> None:
        append(session, user("nothing, 关键字"))
        assert found(api.read("search/", q=q)) == []

    def test_inputs_of_tools_across_what_json_escapes(self, api: Api, session: Session) -> None:
        append(session, assistant([use("A", "Bash", command='echo "ünï"\n\tls', env={"deep": ["Needle"]})]))
        for q in ('echo "ÜNÏ"\n\tls', "needle", "bash"):
            assert len(found(api.read("search/", q=q))) == 1, q

    @pytest.mark.parametrize(
        ("params", "refused"),
        [
            ({}, ("required", "q")),
            ({"q": ""}, ("required", "q")),
            ({"q": "x" * 1_001}, ("max_length", "q")),
            ({"q": "a\x00b"}, ("null_characters_not_allowed", "q")),
            ({"q": "x", "session": "1"}, ("invalid", "session")),
            ({"q": "x", "kind": "run"}, ("invalid_choice", "kind")),
        ],
    )
    def test_refusals(self, api: Api, params: dict[str, str], refused: tuple[str, str]) -> None:
        answer = api.read("search/", **params)
        assert (answer.status_code, errors(answer)) == (400, [refused])

    @pytest.mark.parametrize("q", ["x" * 1_000, "关" * 1_000, "%" * 1_000, "ΐ" * 1_000])
    def test_the_longest(self, api: Api, session: Session, q: str) -> None:
        append(session, user(f"a {q} b"))
        assert len(found(api.read("search/", q=q))) == 1

    def test_a_lone_surrogate_is_no_error(self, api: Api) -> None:
        assert found(api.get("/api/v1/search/?q=%ED%A0%80")) == []

    def test_markup_comes_as_it_was_written(self, api: Api, session: Session) -> None:
        append(session, user("<script>alert(1)</script>"))
        [hit] = found(api.read("search/", q="alert"))
        assert hit["snippet"] == "<script>alert(1)</script>"

    def test_queries(self, api: Api, cast: Cast) -> None:
        """key, page; whatever is found, and nothing is counted."""
        counts = []
        for number in (2, 60):
            append(make_session(cast.alices_team), *(user(f"needle {n}") for n in range(number)))
            counts.append(queries_of(lambda: api.read("search/", q="needle")))
        assert_same_count(*counts, most=2)
        assert not any("COUNT(" in sql for sql in counts[1])

    def test_a_search_begins_at_the_team(self, api: Api, cast: Cast) -> None:
        [sql] = [one for one in queries_of(lambda: api.read("search/", q="needle")) if "LIKE" in one]
        assert f'"team_id" = {cast.alices_team.pk}' in sql


class TestMessages:
    def test_a_search_stays_in_the_session(self, api: Api, cast: Cast, session: Session) -> None:
        """The texts are told apart before they are looked through, whatever the database begins with."""
        append(session, user("needle"))
        append(make_session(cast.alices_team), user("needle"))
        path = f"sessions/{session.uuid}/messages/"
        assert len(found(api.read(path, q="NEEDLE"))) == 1
        [sql] = [one for one in queries_of(lambda: api.read(path, q="needle")) if "LIKE" in one]
        assert f'"sessions_app_searchtext"."session_id" = {session.pk}' in sql
        assert f'"sessions_app_searchtext"."team_id" = {session.team_id}' in sql


class TestSessions:
    def listed(self, api: Api, q: str) -> set[str]:
        return {row["external_id"] for row in found(api.read("sessions/", q=q))}

    def test_it_works(self, api: Api, cast: Cast) -> None:
        make_session(cast.alices_team, external_id="by-title", title="Über die Straße 关键")
        make_session(cast.alices_team, external_id="by-ID-4711")
        append(make_session(cast.alices_team, external_id="by-message"), user("Needle", uuid="1"), user("needle 2"))
        talk = make_session(cast.alices_team, external_id="by-summary")
        append(talk, *turns(40))
        compact(talk)
        assert self.listed(api, "ÜBER") == {"by-title"}
        assert self.listed(api, "关键") == {"by-title"}
        assert self.listed(api, "id-4711") == {"by-ID-4711"}
        assert self.listed(api, "NEEDLE") == {"by-message"}
        assert self.listed(api, "please do step 30") == {"by-summary"}
        assert self.listed(api, "nowhere") == set()

    @pytest.mark.parametrize("q", ["%", ".*", "[a", "(", "\\", "^", "a|b", "_", "$"])
    def test_nothing_has_a_meaning_of_its_own(self, api: Api, cast: Cast, q: str) -> None:
        make_session(cast.alices_team, external_id="plain", title="plain")
        make_session(cast.alices_team, external_id="odd", title=f"one {q} two")
        assert self.listed(api, q) == {"odd"}

    def test_queries(self, api: Api, cast: Cast) -> None:
        counts = []
        for number in (1, 30):
            for _ in range(number):
                append(make_session(cast.alices_team), user("needle"))
            counts.append(queries_of(lambda: api.read("sessions/", q="needle")))
        assert_same_count(*counts, most=2)
        assert not any("COUNT(" in sql for sql in counts[1])


class TestLists:
    def test_boundaries(self, api: Api, session: Session) -> None:
        append(session, *turns(40))
        boundary = compact(session)
        made = boundary.created_at.isoformat()
        path = f"sessions/{session.uuid}/boundaries/"
        for params, number in (
            ({"kind": boundary.kind}, 1),
            ({"kind": "microcompact"}, 0),
            ({"trigger": "manual"}, 1),
            ({"trigger": "auto"}, 0),
            ({"created_after": made}, 1),
            ({"created_before": made}, 0),
        ):
            assert len(found(api.read(path, **params))) == number, params
        assert errors(api.read(path, kind="nonsense")) == [("invalid_choice", "kind")]

    def test_runs(self, api: Api, session: Session) -> None:
        append(session, *turns(40))
        run = compact(session).run
        queued, ended = run.queued_at.isoformat(), run.finished_at.isoformat()
        for params, number in (
            ({"trigger": "manual"}, 1),
            ({"trigger": "auto"}, 0),
            ({"source": "append"}, 0),
            ({"created_after": queued, "finished_after": ended}, 1),
            ({"created_before": queued}, 0),
            ({"finished_before": ended}, 0),
        ):
            assert len(found(api.read("runs/", **params))) == number, params
        assert errors(api.read("runs/", source="me")) == [("invalid_choice", "source")]
