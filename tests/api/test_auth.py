"""Keys in the Authorization header, and people who are logged in and try calls out on the page of the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import CompactionRun
from sessions_app.models import Membership, Session
from sessions_app.services.teams import create_api_key
from tests.api.browsers import TOKEN, browser, browser_of
from tests.cast import Api, Cast, errors
from tests.factories import NOW, append, make_session, turns


class TestKey:
    def test_it_works(self, cast: Cast) -> None:
        assert cast.alice.read("sessions/").status_code == 200
        cast.alices_key.refresh_from_db()
        assert cast.alices_key.last_used_at is not None

    @pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
    def test_the_scheme_is_read_in_any_case(self, cast: Cast, scheme: str) -> None:
        _, key = create_api_key(team=cast.alices_team)
        answer = cast.nobody.get("/api/v1/sessions/", headers={"Authorization": f"{scheme} {key}"})
        assert answer.status_code == 200

    @pytest.mark.parametrize(
        ("header", "code"),
        [
            ("", "not_authenticated"),
            ("Bearer", "authentication_failed"),
            ("Bearer ", "authentication_failed"),
            ("Bearer cmp_unknown", "authentication_failed"),
            ("Bearer cmp_ünknown \x7f", "authentication_failed"),
            ("Basic YTpi", "authentication_failed"),
            ("cmp_without_scheme", "authentication_failed"),
            ("Bearer " + "x" * 10_000, "authentication_failed"),
        ],
    )
    def test_a_bad_header_is_401(self, cast: Cast, header: str, code: str) -> None:
        answer = cast.nobody.get("/api/v1/sessions/", headers={"Authorization": header})
        assert (answer.status_code, errors(answer)) == (401, [(code, None)])
        assert answer.headers["WWW-Authenticate"] == "Bearer"

    def test_a_revoked_key_is_401(self, cast: Cast) -> None:
        cast.alices_key.revoked_at = timezone.now()
        cast.alices_key.save()
        answer = cast.alice.read("sessions/")
        assert (answer.status_code, errors(answer)) == (401, [("authentication_failed", None)])

    def test_a_key_holds_until_it_expires(self, cast: Cast, now: Any) -> None:
        cast.alices_key.expires_at = NOW + timedelta(microseconds=1)
        cast.alices_key.save()
        assert cast.alice.read("sessions/").status_code == 200
        cast.alices_key.expires_at = NOW
        cast.alices_key.save()
        answer = cast.alice.read("sessions/")
        assert (answer.status_code, errors(answer)) == (401, [("authentication_failed", None)])

    def test_what_ended_a_key_is_not_told(self, cast: Cast) -> None:
        answers = [ended.read("sessions/") for ended in (*cast.ended.values(), Api("cmp_unknown"))]
        assert len({answer.content for answer in answers}) == 1

    def test_the_use_of_a_key_that_has_ended_is_not_noted(self, cast: Cast) -> None:
        cast.alices_key.expires_at, cast.alices_key.last_used_at = timezone.now(), None
        cast.alices_key.save()
        cast.alice.read("sessions/")
        cast.alices_key.refresh_from_db()
        assert cast.alices_key.last_used_at is None

    def test_the_last_use_is_noted_once_a_minute(self, cast: Cast) -> None:
        cast.alice.read("sessions/")
        cast.alices_key.refresh_from_db()
        noted = cast.alices_key.last_used_at
        cast.alice.read("sessions/")
        cast.alices_key.refresh_from_db()
        assert cast.alices_key.last_used_at == noted
        cast.alices_key.last_used_at = timezone.now() - timedelta(minutes=2)
        cast.alices_key.save()
        cast.alice.read("sessions/")
        cast.alices_key.refresh_from_db()
        assert timezone.now() - cast.alices_key.last_used_at < timedelta(minutes=1)

    def test_a_key_is_not_taken_from_elsewhere(self, cast: Cast, api: Api) -> None:
        """A browser that is logged in to the admin has no key; cookies and parameters are none."""
        key = api.defaults["HTTP_AUTHORIZATION"].removeprefix("Bearer ")
        assert cast.nobody.get("/api/v1/sessions/", {"api_key": key, "key": key}).status_code == 401


class TestBrowser:
    def test_it_works(self, session: Session) -> None:
        mia = browser_of(session.team)
        assert [row["id"] for row in mia.read("sessions/").json()["results"]] == [str(session.uuid)]
        assert mia.send("sessions/", {"title": "by hand"}).status_code == 201

    @pytest.mark.parametrize("role", ["owner", "member"])
    def test_owners_and_members_write(self, cast: Cast, role: str) -> None:
        assert browser_of(cast.alices_team, role=role).send("sessions/", {}).status_code == 201

    def test_a_viewer_is_told_who_may_write(self, cast: Cast) -> None:
        answer = browser_of(cast.alices_team, role="viewer").send("sessions/", {})
        assert (answer.status_code, errors(answer)) == (403, [("permission_denied", None)])
        assert "viewer" in answer.json()["errors"][0]["detail"]

    @pytest.mark.parametrize("method", ["GET", "POST"])
    @pytest.mark.parametrize("token", ["", "x" * 32, "short"])
    def test_a_cookie_without_the_right_token_is_nobodys(self, cast: Cast, method: str, token: str) -> None:
        answer = browser_of(cast.alices_team, token=token).call(method, "sessions/", None if method == "GET" else {})
        assert (answer.status_code, errors(answer)) == (401, [("not_authenticated", None)])
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert not Session.objects.exists()

    def test_a_token_in_a_form_is_none(self, cast: Cast) -> None:
        """It is what a page of somebody else's could be made to send."""
        mia = browser_of(cast.alices_team, token="")
        answer = mia.post("/api/v1/sessions/", {"csrfmiddlewaretoken": TOKEN})
        assert answer.status_code == 401

    def test_a_page_of_another_origin_is_refused_for_reading_too(self, cast: Cast) -> None:
        mia = browser_of(cast.alices_team)
        assert mia.get("/api/v1/sessions/", headers={"Origin": "https://evil.example"}).status_code == 401
        assert mia.get("/api/v1/sessions/", headers={"Origin": "http://testserver"}).status_code == 200

    def test_a_token_alone_is_nobodys(self, cast: Cast) -> None:
        cast.nobody.cookies["csrftoken"] = TOKEN
        assert cast.nobody.get("/api/v1/sessions/", headers={"X-CSRFToken": TOKEN}).status_code == 401

    def test_somebody_who_may_not_log_in_any_more_is_nobody(self, cast: Cast) -> None:
        user = get_user_model().objects.create(username="left")
        Membership.objects.create(team=cast.alices_team, user=user)
        left = browser(user)
        user.is_active = False
        user.save()
        assert left.read("sessions/").status_code == 401

    def test_a_key_goes_before_a_cookie(self, cast: Cast) -> None:
        both = browser_of(cast.charlies_team)
        both.defaults["HTTP_AUTHORIZATION"] = cast.alice.defaults["HTTP_AUTHORIZATION"]
        session = make_session(cast.alices_team)
        assert both.read(f"sessions/{session.uuid}/").status_code == 200

    def test_without_a_token_no_session_is_looked_up(self, cast: Cast, django_assert_num_queries: Any) -> None:
        mia = browser_of(cast.alices_team, token="")
        with django_assert_num_queries(0):
            mia.read("sessions/")

    def test_who_decided_is_kept(self, cast: Cast, session: Session) -> None:
        session.policy_overrides = {"approve_compactions": True}
        session.save()
        append(session, *turns(40))
        run = actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda *_: None)
        user = get_user_model().objects.create(username="mia")
        Membership.objects.create(team=session.team, user=user)
        assert browser(user).send(f"runs/{run.uuid}/reject/", {}).status_code == 200
        assert "mia" in CompactionRun.objects.get().detail


class TestTeamOfABrowser:
    def test_of_several_one_is_named(self, cast: Cast) -> None:
        session = make_session(cast.charlies_team)
        both = browser_of(cast.alices_team, cast.charlies_team)
        answer = both.get("/api/v1/sessions/", headers={"X-Team": cast.charlies_team.slug})
        assert [row["id"] for row in answer.json()["results"]] == [str(session.uuid)]
        answer = both.get("/api/v1/sessions/", headers={"X-Team": cast.alices_team.slug})
        assert answer.json()["results"] == []

    def test_of_several_none_is_taken_by_chance(self, cast: Cast) -> None:
        answer = browser_of(cast.alices_team, cast.charlies_team).read("sessions/")
        assert (answer.status_code, errors(answer)) == (400, [("required", "X-Team")])

    def test_the_only_one_may_be_named(self, cast: Cast) -> None:
        mia = browser_of(cast.alices_team)
        assert mia.get("/api/v1/sessions/", headers={"X-Team": cast.alices_team.slug}).status_code == 200

    def test_another_team_is_as_one_that_never_was(self, cast: Cast) -> None:
        mia = browser_of(cast.alices_team)
        foreign = mia.get("/api/v1/sessions/", headers={"X-Team": cast.charlies_team.slug})
        unknown = mia.get("/api/v1/sessions/", headers={"X-Team": "no-such-team"})
        assert (foreign.status_code, errors(foreign)) == (403, [("permission_denied", None)])
        assert foreign.content == unknown.content

    def test_an_administrator_without_a_membership_is_told_how(self, cast: Cast) -> None:
        root = get_user_model().objects.create(username="root", is_staff=True, is_superuser=True)
        answer = browser(root).read("sessions/")
        assert (answer.status_code, errors(answer)) == (403, [("permission_denied", None)])
        assert "membership" in answer.json()["errors"][0]["detail"]

    def test_a_key_is_of_its_own_team_whatever_the_header_says(self, cast: Cast) -> None:
        answer = cast.alice.get("/api/v1/sessions/", headers={"X-Team": cast.charlies_team.slug})
        assert answer.status_code == 200
