"""The OpenAPI document: it builds without a warning, shows every route, and tells the truth about the answers."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from django.utils import timezone

from compaction_app import actions
from compaction_app.api.limits import WORDS
from compaction_app.models import CompactionRun, Hook, TranscriptImport
from sessions_app.models import Session
from tests.api.routes import CALLS, IDS, Route
from tests.cast import BASE, Cast
from tests.factories import append, make_call, make_session, turns
from tests.pressure import almost_full
from tests.transcript_lines import file_of, human

ROOT = Path(__file__).resolve().parent.parent.parent
WITH_BODY = ("POST", "PUT", "PATCH")
every_call = pytest.mark.parametrize(("route", "method"), CALLS, ids=IDS)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    import yaml

    out = io.StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=out)
    return yaml.safe_load(out.getvalue())


def operation(document: dict[str, Any], route: Route, method: str) -> dict[str, Any]:
    path = BASE + re.sub(r"<uuid:(\w+)>", r"{\1}", route.pattern)
    return document["paths"][path][method.lower()]


def as_json_schema(node: Any) -> Any:
    """OpenAPI 3.0 says `nullable` where JSON Schema lists null."""
    if isinstance(node, list):
        return [as_json_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {key: as_json_schema(value) for key, value in node.items() if key != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if node.get("nullable") is True else plain


def check(document: dict[str, Any], answer: Any, described: dict[str, Any]) -> None:
    content = described["responses"][str(answer.status_code)]["content"]
    if answer.streaming:
        assert answer.headers["Content-Type"] in content
        return
    schema = as_json_schema(content["application/json"]["schema"])
    everything = {**schema, "components": as_json_schema(document["components"])}
    jsonschema.Draft202012Validator(everything).validate(answer.json())


class TestDocument:
    def test_the_one_in_the_repository_is_that_of_the_code(self, document: dict[str, Any]) -> None:
        """A change of the API shows in a review. Figures that the environment sets are those of a plain one."""
        import yaml

        kept = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8"))
        assert kept == document, "run `make openapi` and look at what has changed"

    def test_it_works(self, client: Any) -> None:
        answer = client.get("/api/schema/")
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("application/json")
        assert set(answer.json()["paths"]) == {
            BASE + re.sub(r"<uuid:(\w+)>", r"{\1}", route.pattern) for route, _ in CALLS
        }

    def test_yaml_where_it_is_asked_for(self, client: Any) -> None:
        answer = client.get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi"})
        assert answer.content.startswith(b"openapi: 3")

    def test_the_readable_pages_need_nothing_from_elsewhere(self, client: Any) -> None:
        answer = client.get("/api/docs/")
        assert answer.status_code == 200
        page = answer.content.decode()
        assert "/static/drf_spectacular_sidecar/swagger-ui-dist/" in page
        assert re.findall(r'(?:src|href)="(?:https?:)?//[^"]*"', page) == []
        for asset in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
            assert client.get(asset).status_code == 200, asset

    def test_each_field_is_described(self, document: dict[str, Any]) -> None:
        bare = [
            f"{name}.{field}"
            for name, schema in document["components"]["schemas"].items()
            for field, described in schema.get("properties", {}).items()
            if not described.get("description")
        ]
        assert bare == []

    def test_each_parameter_is_described(self, document: dict[str, Any]) -> None:
        for path in document["paths"].values():
            for described in path.values():
                for parameter in described.get("parameters", []):
                    assert parameter["in"] == "path" or parameter["description"], parameter

    def test_what_may_be_repeated_is_told(self, document: dict[str, Any]) -> None:
        keyed = {
            path.removeprefix(BASE): described["responses"]
            for path, methods in document["paths"].items()
            for described in methods.values()
            if any(parameter["name"] == "Idempotency-Key" for parameter in described.get("parameters", []))
        }
        assert {"sessions/{session_id}/compact/", "runs/{run_id}/retry/"} <= set(keyed)
        for responses in keyed.values():
            assert "`idempotency_in_progress`" in responses["409"]["description"]
            assert "Retry-After" in responses["409"]["headers"]
            assert all("Idempotency-Replayed" in responses[status]["headers"] for status in responses if status < "300")

    def test_limits_are_told_in_words_and_in_the_pages(self, document: dict[str, Any]) -> None:
        told = document["info"]["x-limits"]
        assert set(told) == set(WORDS)
        page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
        section = page.partition("\n## Limits\n")[2].partition("\n## ")[0]
        for name, limit in told.items():
            assert f"{limit:,} {WORDS[name]}" in document["info"]["description"]
            assert re.search(rf"(?<![\d,]){limit:,}(?![\d,])", section), f"{name} is not in the limits of docs/api.md"

    @every_call
    def test_each_operation_is_described(self, document: dict[str, Any], route: Route, method: str) -> None:
        described = operation(document, route, method)
        assert described["summary"]
        assert described["security"] == [{"apiKey": []}, {"browser": []}, {"browser": [], "team": []}]
        expected = {"400", "401", "403", "429", "503"} | ({"404"} if route.parameters else set())
        for status in ("429", "503"):
            assert set(described["responses"][status]["headers"]) == {"Retry-After"}
        if method in WITH_BODY:
            expected |= {"413", "415"}
            [taken] = described["requestBody"]["content"].values()
            assert taken["examples"]
        assert expected <= set(described["responses"])
        for status, answer in described["responses"].items():
            if status >= "400":
                assert answer["description"]
                [content] = answer["content"].values()
                assert content["schema"] == {"$ref": "#/components/schemas/ErrorBody"}
                assert content["examples"]


def ids_for(route: Route, session: Session, run: CompactionRun, hook: Hook) -> dict[str, Any]:
    """The ids of rows in the state in which the route can do its work."""
    assert run.boundary
    imported = TranscriptImport.objects.create(
        team=session.team, name="a.jsonl", format="auto", size_bytes=1, queued_at=timezone.now()
    )
    ids = {
        "session_id": session.uuid,
        "run_id": run.uuid,
        "boundary_id": run.boundary.uuid,
        "hook_id": hook.uuid,
        "import_id": imported.uuid,
    }
    if route.pattern.endswith(("/retry/", "/cancel/")):
        CompactionRun.objects.filter(session=session).active().delete()  # of the example before
        again = "/retry/" in route.pattern
        state = {"status": "failed", "failure_reason": "no_summary"} if again else {"status": "queued"}
        ids["run_id"] = CompactionRun.objects.create(
            session=session, trigger="manual", queued_at=timezone.now(), **state
        ).uuid
    if route.pattern.endswith("/restore/"):
        actions.revert_boundary(boundary=run.boundary, now=timezone.now())
    if route.pattern.endswith(("/candidate/", "/accept/", "/reject/")):
        other = make_session(session.team, policy_overrides={"approve_compactions": True})
        append(other, *turns(40))
        ids["run_id"] = actions.compact_now(
            session=other, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None
        ).uuid
    return ids


def upload() -> bytes:
    """A form with a transcript."""
    file = SimpleUploadedFile("a.jsonl", file_of(human("u1", None, "Hello")).getvalue())
    return encode_multipart(BOUNDARY, {"file": file, "format": "auto"})


@pytest.mark.django_db
class TestTruth:
    @every_call
    @pytest.mark.thorough
    def test_answers_are_as_described(self, cast: Cast, document: dict[str, Any], route: Route, method: str) -> None:
        session = make_session(
            cast.alices_team,
            external_id="x",
            metadata={"a": [1]},
            system="s",
            tools=[{"name": "t"}],
            policy_overrides={"reactive_compact": True},
        )
        append(session, *turns(40))
        run = actions.compact_now(
            session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None
        )
        assert run.boundary
        make_call(run, said="Sure", outcome="no_summary")
        append(session, *turns(1, start=200))
        hook = actions.create_hook(team=cast.alices_team, event="pre_compact", values={"url": "https://example.com/"})
        described = operation(document, route, method)
        examples: list[Any] = [None]
        sent_as: dict[str, str] = {}
        if method in WITH_BODY:
            [(media_type, taken)] = described["requestBody"]["content"].items()
            examples = [example["value"] for example in taken["examples"].values()]
            if media_type == "multipart/form-data":
                examples, sent_as = [upload()], {"content_type": MULTIPART_CONTENT}
        for body in examples:
            if isinstance(body, dict):
                body.pop("wait", None)
                if body.get("mode") == "reactive":
                    body["wait"] = 0  # by itself it waits long, and there is no worker here
            CompactionRun.objects.active().delete()  # of the example before
            path = route.path(**ids_for(route, session, run, hook))
            answer = cast.alice.call(method, path, body, **sent_as)
            assert answer.status_code < 300, answer.content
            if answer.status_code == 204:
                assert not answer.content
                assert "204" in described["responses"]
                continue
            check(document, answer, described)
        if method in WITH_BODY:
            for body in ({"no_such_field": 1}, b"{"):
                answer = cast.alice.call(method, path, body)
                assert answer.status_code == (415 if sent_as else 400)
                check(document, answer, described)
        check(document, cast.nobody.call(method, path), described)

    def test_a_run_that_started_by_itself_and_its_decision_are_as_described(
        self, cast: Cast, document: dict[str, Any]
    ) -> None:
        session = almost_full(cast.alices_team)
        by_path = {route.pattern: route for route, _ in CALLS}
        appended, listed = (by_path[f"sessions/<uuid:session_id>/{name}/"] for name in ("messages", "decisions"))
        body = {"role": "assistant", "content": "and so on " * 20}
        answer = cast.alice.send(appended.path(session_id=session.uuid), body)
        assert answer.json()["auto_compaction"]
        check(document, answer, operation(document, appended, "POST"))
        answer = cast.alice.read(listed.path(session_id=session.uuid))
        assert answer.json()["results"]
        check(document, answer, operation(document, listed, "GET"))
