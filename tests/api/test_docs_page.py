"""The readable page in a real browser: calls are tried out by whoever is logged in, and by nobody else."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from sessions_app.models import Membership
from tests.factories import make_session, make_team


@pytest.mark.django_db
class TestPage:
    def test_a_token_is_only_for_somebody_who_is_logged_in(self, client: Client) -> None:
        page = client.get("/api/docs/")
        assert "Logged in" not in page.content.decode()
        assert "csrftoken" not in page.cookies
        client.force_login(get_user_model().objects.create(username="<b>mia"))
        page = client.get("/api/docs/")
        assert "Logged in as <b>&lt;b&gt;mia</b>" in page.content.decode()
        assert "csrftoken" in page.cookies
        assert "Cookie" in page.headers["Vary"]


def try_out(page: Any, address: str, operation: str) -> tuple[dict[str, str], Any]:
    """What the page sends for the operation, and what it is answered."""
    page.goto(f"{address}/api/docs/")
    block = page.locator(operation)
    block.locator("button.opblock-summary-control").click()
    block.get_by_role("button", name="Try it out").click()
    with page.expect_response(lambda answer: "/api/v1/" in answer.url) as answered:
        block.get_by_role("button", name="Execute").click()
    block.locator(".live-responses-table").wait_for()
    return answered.value.request.all_headers(), answered.value


LIST, CREATE = "#operations-sessions-sessions_list", "#operations-sessions-sessions_create"


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
class TestTryItOut:
    def log_in(self, context: Any, address: str) -> None:
        client = Client()
        user = get_user_model().objects.create(username="mia")
        Membership.objects.create(team=make_team("harbor"), user=user)
        client.force_login(user)
        context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": address}])

    @pytest.mark.thorough
    def test_it_works_for_somebody_who_is_logged_in(self, browser: Any, live_server: Any, tmp_path: Any) -> None:
        context = browser.new_context()
        self.log_in(context, live_server.url)
        session = make_session(Membership.objects.get().team, title="mended")
        page = context.new_page()
        sent, answer = try_out(page, live_server.url, LIST)
        assert (answer.status, [row["id"] for row in answer.json()["results"]]) == (200, [str(session.uuid)])
        assert sent["x-csrftoken"]
        if folder := os.environ.get("SCREENSHOTS_DIR"):
            page.screenshot(path=f"{folder}/docs-logged-in.png")
        _, answer = try_out(page, live_server.url, CREATE)
        assert answer.status == 201

    @pytest.mark.thorough
    def test_nobody_sends_nothing_and_is_told_so(self, browser: Any, live_server: Any) -> None:
        page = browser.new_context().new_page()
        sent, answer = try_out(page, live_server.url, LIST)
        assert answer.status == 401
        assert not {"x-csrftoken", "cookie", "authorization"} & set(sent)
        if folder := os.environ.get("SCREENSHOTS_DIR"):
            page.screenshot(path=f"{folder}/docs-nobody.png")
