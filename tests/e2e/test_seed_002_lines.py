"""Seed 002 §12 and §13, line by line: which tests stand for each, and that they are there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

LINES: dict[str, dict[str, list[str]]] = {
    "12.1.1 schema_hash is computed consistently": {
        "unit/catalog/test_definitions.py": [
            "test_the_hash_is_sha256_of_the_sorted_compact_json",
            "test_every_member_counts_and_all_but_the_name_are_contents",
            "test_order_white_space_and_escapes_do_not_count_but_the_order_of_a_list_does",
            "test_canonical_json_means_the_same_whatever_the_order_of_members",
        ],
    },
    "12.1.2 loaded tools are judged (valid, invalid_*)": {
        "unit/catalog/test_loaded.py": [
            "test_every_combination_gets_the_status_of_the_first_rule_that_applies",
        ],
    },
    "12.1.3 the switches in every combination": {
        "unit/surfaces/test_table.py": ["test_only_with_both_switches_on_a_surface_is_lazy"],
        "e2e/test_seed_002_switches.py": [
            "test_tools_are_loaded_on_demand_only_if_both_switches_are_on",
            "test_the_bridge_can_switch_off_and_cannot_switch_on",
        ],
    },
    "12.1.4 load_mcp_server and load_mcp_tool: what they find, and the form of their answers": {
        "unit/surfaces/test_load.py": [
            "test_a_need_finds_a_server_with_its_summary_and_a_line_per_tool_and_no_schema",
            "test_several_tools_are_loaded_at_once_by_name_and_by_need_with_their_schemas",
        ],
        "e2e/test_seed_002.py": [
            "test_a_server_is_found_by_name_by_keyword_and_by_need",
            "test_several_tools_are_loaded_at_once_with_their_whole_schemas",
        ],
    },
    "12.2.1 switched off, requests are what they were": {
        "e2e/test_seed_002_switches.py": [
            "test_the_bridge_cannot_switch_on_what_the_master_switch_turns_off",
        ],
        "e2e/test_changes_switched_off.py": [
            "test_the_master_switch_leaves_no_trace",
            "test_the_switches_of_a_profile_and_of_a_client_leave_no_trace",
        ],
    },
    "12.2.2 switched on, the least possible is there at first": {
        "e2e/test_seed_002.py": [
            "test_at_first_only_the_two_loading_tools_are_listed_with_the_seeds_parameters",
            "test_a_line_for_each_server_stands_in_the_list_from_the_start",
        ],
    },
    "12.2.3 what was loaded can be called in the next turn": {
        "e2e/test_seed_002.py": ["test_what_is_loaded_is_announced_listed_and_called"],
        "e2e/test_sessions.py": ["test_what_was_loaded_is_listed_and_callable_after_a_restart"],
    },
    "12.2.4 after a refresh what was loaded is judged anew": {
        "e2e/test_sessions.py": [
            "test_a_tool_that_is_lost_leaves_the_list_is_announced_and_answered",
            "test_a_tool_that_has_changed_is_refused_until_it_is_loaded_again",
        ],
        "e2e/test_changes.py": [
            "test_a_server_that_comes_back_with_another_list_runs_nothing_in_its_old_form",
            "test_a_server_that_changes_all_the_time_runs_nothing_that_is_known_to_be_stale",
        ],
        "e2e/test_clients.py": [
            "test_a_client_that_listens_sees_a_loaded_tool_leave_its_list_and_come_back",
            "test_a_client_that_does_not_listen_is_told_once_with_the_new_definition_and_goes_on",
        ],
    },
    "12.2.5 summaries are made in the background and stored": {
        "e2e/test_summaries.py": [
            "test_sentences_stand_where_models_choose_and_are_searched_and_are_kept",
            "test_nothing_waits_for_an_endpoint_that_does_not_answer",
        ],
    },
    "12.3.1 what was there before is as good as it was": {
        "e2e/test_acceptance.py": [
            "test_2_get_category_tools_returns_the_schemas_of_enabled_tools_only",
            "test_3_call_category_tool_runs_the_tool_at_its_server",
        ],
        "e2e/test_clients.py": [
            "test_a_real_client_lists_describes_calls_is_told_of_progress_and_is_refused",
        ],
        "e2e/test_lifecycle.py": ["test_a_killed_server_comes_back_by_itself_and_its_neighbour_never_notices"],
    },
    "13.1 switched off: as it was": {
        "e2e/test_changes_switched_off.py": [
            "test_the_master_switch_leaves_no_trace",
            "test_what_a_session_had_loaded_neither_matters_nor_changes_while_it_is_switched_off",
        ],
    },
    "13.2 switched on: the first context is much smaller, and that can be seen": {
        "e2e/test_metrics.py": ["test_what_loading_on_demand_costs_and_saves_is_counted"],
        "bench/test_tokens.py": ["test_every_surface_is_measured_and_reaches_the_call"],
    },
    "13.3 tools are loaded on demand, and the session is kept": {
        "e2e/test_sessions.py": [
            "test_what_was_loaded_is_listed_and_callable_after_a_restart",
            "test_a_real_client_finds_its_session_through_the_bridge",
        ],
        "e2e/test_kills.py": ["test_no_kill_loses_what_was_acknowledged_or_spoils_the_file"],
    },
    "13.4 nothing stale is used after a tool was deleted, disabled or changed": {
        "e2e/test_sessions.py": ["test_a_tool_that_is_lost_leaves_the_list_is_announced_and_answered"],
        "e2e/test_changes.py": [
            "test_a_server_may_change_at_every_reconnect",
            "test_a_change_during_a_list_is_listed_again_before_anything_is_called",
            "test_calls_in_line_are_judged_again_when_their_turn_comes",
            "test_calls_that_were_sent_together_are_all_refused",
        ],
    },
    "13.5 summaries are made in the background after a refresh, and stored": {
        "e2e/test_summaries.py": [
            "test_sentences_stand_where_models_choose_and_are_searched_and_are_kept",
            "test_whatever_an_endpoint_does_costs_that_one_question",
        ],
    },
    "13.6 logs and errors are clear": {
        "e2e/test_seed_002.py": ["test_the_refusal_of_a_call_holds_the_call_that_helps"],
        "e2e/test_sessions.py": ["test_operators_see_sessions_and_what_became_of_what_they_loaded"],
        "e2e/test_summaries.py": ["test_the_key_appears_nowhere"],
    },
}


@pytest.mark.parametrize("line", LINES)
def test_each_line_of_the_seed_has_its_tests(line: str) -> None:
    for name, tests in LINES[line].items():
        tree = ast.parse((TESTS / name).read_text())
        there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert set(tests) <= there, name


def test_no_line_is_left_out() -> None:
    numbers = [line.split()[0] for line in LINES]
    unit, integration = [f"12.1.{n}" for n in range(1, 5)], [f"12.2.{n}" for n in range(1, 6)]
    assert numbers == [*unit, *integration, "12.3.1", *(f"13.{n}" for n in range(1, 7))]
