"""The form of figures: what is read from its inputs, what is refused and with which words, and the session's page."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client

from compaction_app import actions
from compaction_app.admin.policy_form import MORE, SECTIONS, Layers, PolicyForm, figure_rows, overridable, shown
from sessions_app import policy
from sessions_app.models import Session
from tests.admin.conftest import World, history

TEAM = Layers(own="team", team={})
PRICES = {"claude-opus-5": [5.0, 25.0], "anthropic.x-v1:0": [0.25, 1.25]}


def filled(layers: Layers = TEAM, **inputs: str) -> PolicyForm:
    data = QueryDict(mutable=True)
    data.update({f"policy-{name}": value for name, value in inputs.items()})
    return PolicyForm(layers=layers, data=data)


class TestLayout:
    def test_every_figure_that_may_be_set_stands_in_the_form_once(self) -> None:
        form = PolicyForm(layers=TEAM)
        shown_names = [row.name for section in (*form.sections(), *form.more()) for row in section.rows]
        assert sorted(shown_names) == sorted(overridable())

    def test_a_session_has_none_of_the_import(self) -> None:
        stored = {"import_batch_lines": 100}
        layers = Layers(own="session", team={}, session=stored)
        form = PolicyForm(layers=layers)
        names = {row.name for section in (*form.sections(), *form.more()) for row in section.rows}
        team_names = set(overridable())
        assert team_names - names == {name for name in team_names if name.startswith("import_")} != set()
        assert not [row.name for row in figure_rows(layers=layers) if row.name.startswith("import_")]
        # What a session holds of them is left alone.
        assert form.unknown == []
        again = filled(layers, auto_compact_pct="80")
        assert again.is_valid()
        assert again.changes() == {"auto_compact_pct": 80}

    def test_no_section_names_a_figure_that_is_not_there_or_prefix_without_one(self) -> None:
        assert {name for _, names in SECTIONS for name in names} <= set(overridable())
        assert all(section.rows for section in PolicyForm(layers=TEAM).more())
        assert len(MORE) == len(PolicyForm(layers=TEAM).more())

    def test_the_table_to_read_has_the_figures_of_the_service_too(self) -> None:
        assert [row.name for row in figure_rows(layers=TEAM)] == list(policy.FIGURES)


class TestLayers:
    def test_say_who_set_what_and_what_holds(self, settings: Any) -> None:
        settings.COMPACTION_POLICY = {"auto_compact_pct": 90, "context_window": 150_000}
        layers = Layers(own="session", team={"auto_compact_pct": 80}, session={"auto_compact_pct": 70})
        rows = {row.name: row for row in figure_rows(layers=layers)}
        row = rows["auto_compact_pct"]
        assert [(one.layer, one.text) for one in row.settings] == [
            ("default", "not set"),
            ("environment", "90"),
            ("team", "80"),
        ]
        assert (row.value, row.origin, row.overridden) == ("70", "session", True)
        window = rows["context_window"]
        assert (window.value, window.origin, window.overridden) == ("150,000", "environment", False)
        assert window.variable == "CLAUDE_CODE_AUTO_COMPACT_WINDOW"

    def test_an_input_shows_what_holds_without_it(self) -> None:
        layers = Layers(own="session", team={"auto_compact_pct": 80}, session={"auto_compact_pct": 70})
        form = PolicyForm(layers=layers)
        assert 'placeholder="80"' in str(form["auto_compact_pct"])
        assert "not overridden (yes)" in str(form["auto_compact_enabled"])

    def test_inputs_of_numbers_keep_what_is_typed_and_tell_their_bounds(self) -> None:
        form = PolicyForm(layers=TEAM)
        field = str(form["auto_compact_pct"])
        for part in ('type="text"', 'inputmode="numeric"', "id_policy-auto_compact_pct_helptext"):
            assert part in field
        assert 'inputmode="decimal"' in str(form["least_freed_share"])
        assert 'value="abc"' in str(filled(auto_compact_pct="abc")["auto_compact_pct"])

    @pytest.mark.parametrize(
        ("name", "bounds"),
        [
            ("warning_buffer_tokens", "0 to 1,000,000,000"),
            ("context_window", "1,000 to 10,000,000"),
            ("smallest_threshold_share", "0.1 to 1"),
        ],
    )
    def test_hint_and_refusal_tell_the_same_bounds(self, name: str, bounds: str) -> None:
        form = filled(**{name: "-5"})
        assert form[name].help_text == f"{bounds} {policy.FIGURES[name].metadata['unit']}"
        assert [str(error).rpartition("allowed is ")[2] for error in form[name].errors] == [bounds]


class TestReading:
    @pytest.mark.parametrize(
        ("name", "text", "value"),
        [
            ("auto_compact_pct", " 80 ", 80),
            ("least_freed_share", "0.25", 0.25),
            ("auto_compact_enabled", "yes", True),
            ("auto_compact_enabled", "no", False),
            ("cache_edit_dialect", "cache_edits", "cache_edits"),
            ("compactable_tools", "a: yes\r\nmcp__x:y: no", {"a": True, "mcp__x:y": False}),
            ("compactable_tools", '{"mcp__*": true}', {"mcp__*": True}),
            ("prices", "claude-opus-5: 5 25\r\n\r\n  anthropic.x-v1:0: 0.25 / 1.25 ", PRICES),
            ("prices", '{"claude-opus-5": [5, 25], "anthropic.x-v1:0": [0.25, 1.25]}', PRICES),
            ("prices", "a: 0 0\na: 0 0", {"a": [0.0, 0.0]}),
            ("context_window", "1,000,000", 1_000_000),
            ("auto_compact_pct", "", None),
            ("compactable_tools", " ", None),
            ("prices", " ", None),
        ],
    )
    def test_each_kind_becomes_its_own_type(self, name: str, text: str, value: object) -> None:
        form = filled(**{name: text})
        assert form.is_valid()
        assert form.cleaned_data[name] == value
        assert type(form.cleaned_data[name]) is type(value)

    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("auto_compact_pct", "0", "auto_compact_pct=0: allowed is 1 to 100"),
            ("auto_compact_pct", "80.5", "auto_compact_pct='80.5': a whole number is needed"),
            ("auto_compact_pct", "many", "auto_compact_pct='many': a whole number is needed"),
            ("auto_compact_pct", "9" * 5_000, "a whole number is needed"),
            ("context_window", "-1", "context_window=-1: allowed is 1,000 to 10,000,000"),
            ("context_window", "20000000", "context_window=20000000: allowed is 1,000 to 10,000,000"),
            ("context_window", "10,00", "context_window='10,00': a whole number is needed"),
            ("least_freed_share", "0,5", "least_freed_share='0,5': a number is needed"),
            ("extract_repeat_gain", "inf", "extract_repeat_gain='inf': a number is needed"),
            ("extract_repeat_gain", "nan", "extract_repeat_gain="),
            ("auto_compact_enabled", "maybe", "auto_compact_enabled='maybe': allowed is true or false"),
            ("cache_edit_dialect", "other", "cache_edit_dialect='other': allowed is one of context_management"),
            ("compactable_tools", "mcp__x yes", "'mcp__x yes': allowed is a tool or pattern, a colon, yes or no"),
            ("compactable_tools", ": yes", "': yes': allowed is a tool or pattern"),
            ("compactable_tools", "a: yes\na: no", "'a': yes and no at once"),
            ("compactable_tools", "{", "no JSON object"),
            ("compactable_tools", '{"a": 1}', "compactable_tools.a=1: allowed is"),
            ("compactable_tools", "[" * 100_000, "allowed is a tool or pattern"),
            ("compactable_tools", '{"a":' * 100_000, "no JSON object"),
            ("compactable_tools", "x" * 300 + ": yes", "allowed is an object of tool names"),
            ("prices", "claude-opus-5 5 25", "prices: 'claude-opus-5 5 25': allowed is a model's id"),
            ("prices", "claude-opus-5: 5", "prices: 'claude-opus-5: 5': allowed is a model's id"),
            ("prices", "a: 1 2\nclaude-opus-5: 5,25", "prices: 'claude-opus-5: 5,25': allowed is a model's id"),
            ("prices", "claude-opus-5: 5 25 1", "a colon, and two prices such as 5 25"),
            ("prices", "claude-opus-5: cheap dear", "a colon, and two prices such as 5 25"),
            ("prices", ": 5 25", "': 5 25': allowed is a model's id"),
            ("prices", "a: 5 25\na: 5 26", "prices: 'a': two different prices"),
            ("prices", "claude-opus-5: -1 25", "prices.claude-opus-5=-1.0: allowed is 0 to 10,000 USD"),
            ("prices", "claude-opus-5: 1 20000", "prices.claude-opus-5=20000.0: allowed is 0 to 10,000 USD"),
            ("prices", "claude-opus-5: nan inf", "prices.claude-opus-5=nan: allowed is 0 to 10,000 USD"),
            ("prices", '{"claude-opus-5": 5}', "prices.claude-opus-5=5: allowed is an object of model ids"),
            ("prices", "{", "prices: this is no JSON object"),
            ("prices", "x" * 300 + ": 5 25", "allowed is an object of model ids"),
        ],
    )
    def test_bad_values_are_refused_beside_their_field(self, name: str, text: str, words: str) -> None:
        form = filled(**{name: text, "breaker_failures": "5"})
        assert not form.is_valid()
        assert list(form.errors) == [name]
        assert any(words in error for error in form.errors[name]), form.errors[name]
        problems = form.problems()
        assert {problem.target for problem in problems} == {f"id_policy-{name}"}
        assert [problem.text for problem in problems] == form.errors[name]

    def test_changes_are_only_what_becomes_another(self) -> None:
        stored = {"auto_compact_pct": 80, "breaker_failures": 4, "nonsense": 1}
        form = filled(
            Layers(own="session", team={}, session=stored), auto_compact_pct="80", warning_buffer_tokens="30000"
        )
        assert form.is_valid()
        assert form.changes() == {"breaker_failures": None, "warning_buffer_tokens": 30_000, "nonsense": None}

    def test_a_stored_value_that_is_not_allowed_is_shown_and_refused_again(self) -> None:
        layers = Layers(own="team", team={"auto_compact_pct": 500})
        assert 'value="500"' in str(PolicyForm(layers=layers)["auto_compact_pct"])
        assert not filled(layers, auto_compact_pct="500").is_valid()

    def test_a_table_of_prices_is_read_back_as_it_is_written(self) -> None:
        layers = Layers(own="session", team={"prices": {"mine": [1, 2.5]}}, session={"prices": PRICES})
        form = PolicyForm(layers=layers)
        assert str(form["prices"].initial) == "anthropic.x-v1:0: 0.25 1.25\nclaude-opus-5: 5 25"
        again = filled(layers, prices=str(form["prices"].initial))
        assert again.is_valid()
        assert again.changes() == {}
        [row] = [row for row in figure_rows(layers=layers) if row.name == "prices"]
        assert "claude-opus-: 5 in, 25 out\n" in row.default
        assert row.settings[-1].text == "mine: 1 in, 2.5 out"
        for told in ("claude-opus-: 5 in, 25 out", "mine: 1 in, 2.5 out", "anthropic.x-v1:0: 0.25 in, 1.25 out"):
            assert told in row.value

    @pytest.mark.parametrize("value", [{"a": 5}, {"a": [5]}, {"a": ["x", None]}, {"a": [1, 2, 3]}, [1], "x"])
    def test_odd_stored_prices_do_no_harm(self, value: Any) -> None:
        layers = Layers(own="team", team={"prices": value})
        assert str(PolicyForm(layers=layers)["prices"])
        assert list(figure_rows(layers=layers))

    def test_values_are_written_for_people(self) -> None:
        assert [shown(one) for one in (13_000, 0.05, True, None, {"a": True, "b": False})] == [
            "13,000",
            "0.05",
            "yes",
            "not set",
            "yes: a; no: b",
        ]


class TestSessionPage:
    def path(self, session: Session) -> str:
        return f"/admin/sessions_app/session/{session.pk}/policy/"

    def save(self, world: World, who: str, **figures: str) -> Any:
        form = {f"policy-{name}": value for name, value in figures.items()}
        return world.clients[who].post(self.path(world.session), form, follow=True)

    def test_is_linked_from_the_history_with_how_many_are_set(self, world: World) -> None:
        assert f'href="{self.path(world.session)}"' in world.page("vic", history(world.session))
        actions.update_session(session=world.session, values={"policy_overrides": {"auto_compact_pct": 70}})
        assert "1 overridden" in world.page("vic", history(world.session))

    def test_saves_and_says_what(self, world: World) -> None:
        world.team.policy_overrides = {"auto_compact_pct": 80}
        world.team.save()
        answer = self.save(world, "mia", auto_compact_pct="70", breaker_failures="5")
        assert "Saved: auto_compact_pct, breaker_failures." in answer.content.decode()
        world.session.refresh_from_db()
        assert world.session.policy_overrides == {"auto_compact_pct": 70, "breaker_failures": 5}
        answer = self.save(world, "mia", breaker_failures="5")
        assert "Saved: auto_compact_pct." in answer.content.decode()
        world.session.refresh_from_db()
        assert world.session.policy_overrides == {"breaker_failures": 5}
        assert "Nothing was changed" in self.save(world, "mia", breaker_failures="5").content.decode()

    def test_refuses_and_keeps_the_inputs(self, world: World) -> None:
        shown_again = self.save(world, "root", auto_compact_pct="101", breaker_failures="5").content.decode()
        told = "auto_compact_pct=101: allowed is 1 to 100"
        assert f'href="#id_policy-auto_compact_pct">{told}</a>' in shown_again
        assert f"<li>{told}</li>" in shown_again, "beside its input as well"
        assert shown_again.count("data-problems") == 1
        assert 'aria-invalid="true"' in shown_again
        assert 'name="policy-breaker_failures" value="5"' in shown_again
        world.session.refresh_from_db()
        assert world.session.policy_overrides == {}

    def test_a_viewer_reads_and_changes_nothing(self, world: World) -> None:
        shown_page = world.page("vic", self.path(world.session))
        assert "<code>auto_compact_pct</code>" in shown_page
        assert 'name="policy-' not in shown_page
        assert self.save(world, "vic", auto_compact_pct="70").status_code == 403
        world.session.refresh_from_db()
        assert world.session.policy_overrides == {}

    def test_is_not_found_by_another_team(self, world: World) -> None:
        assert world.get("charlie", self.path(world.session)).status_code == 404
        assert self.save(world, "charlie", auto_compact_pct="70").status_code == 404

    def test_leads_back_to_the_session_under_a_harmless_name(self, world: World) -> None:
        Session.objects.filter(pk=world.session.pk).update(title="<b>\u202egnp")
        shown_page = world.page("vic", self.path(world.session))
        link = f'<a href="/admin/sessions_app/session/{world.session.pk}/change/"'
        name = shown_page.partition(link)[2].partition(">")[2].partition("</a>")[0]
        assert "&lt;b&gt;" in name
        assert "\u202e" not in shown_page

    def test_needs_the_token(self, world: World) -> None:
        client = Client(enforce_csrf_checks=True)
        client.cookies = world.clients["root"].cookies
        assert client.post(self.path(world.session), {"policy-auto_compact_pct": "70"}).status_code == 403

    def test_hostile_input_is_text(self, world: World) -> None:
        evil = '"><script>alert(1)</script>'
        shown_again = self.save(world, "root", compactable_tools=evil, auto_compact_pct=evil).content.decode()
        assert "<script>alert" not in shown_again

    def test_costs_two_queries(self, world: World, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(2):  # user, session with team and breaker
            world.page("root", self.path(world.session))
