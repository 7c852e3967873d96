"""Keys: the Authorization header."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from sessions_app.services.teams import create_api_key
from tests.cast import Api, Cast, errors


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
