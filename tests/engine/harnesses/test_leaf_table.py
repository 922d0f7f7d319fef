"""Leaf, line by line: what is known of it, and the test that shows it here."""

from __future__ import annotations

from tests.engine.harnesses.tables import Row, require_shown

TABLE = (
    # Tools.
    Row(
        "five function tools with capital names and their parameters; no strict, no additionalProperties",
        ("harnesses.test_presets.test_leaf_compatible_has_leafs_five_tools_as_on_the_wire",),
    ),
    Row("~ is expanded", ("tools.test_files.test_a_tilde_is_the_sandboxs_home",)),
    Row(
        "relative paths start at the repository, absolute ones outside are allowed; shown as relative inside",
        ("tools.test_files.test_paths_inside_are_shown_relative_and_outside_as_given",),
    ),
    Row(
        "Read: the path, then numbered lines; UTF-8 with replacement",
        (
            "tools.test_files.test_read_shows_the_path_and_then_numbered_lines",
            "tools.test_files.test_read_replaces_what_is_no_utf8",
        ),
    ),
    Row(
        "Read: offset from 1, a limit of 0 or less is to the end",
        ("tools.test_files.test_read_takes_a_range_counted_from_one",),
    ),
    Row(
        "Read: at most 20,000 characters, the head and the number of dropped ones",
        ("tools.test_files.test_a_long_file_is_cut_at_the_head_with_the_number_of_dropped_characters",),
    ),
    Row(
        "Write: makes folders, overwrites, counts characters",
        ("tools.test_files.test_write_makes_folders_overwrites_and_counts_characters",),
    ),
    Row(
        "Edit: an exact piece of text, refused when empty, missing or ambiguous",
        (
            "tools.test_files.test_edit_replaces_the_only_occurrence",
            "tools.test_files.test_edit_refuses_what_is_not_there_empty_or_ambiguous_and_changes_nothing",
        ),
    ),
    Row(
        "Edit: replace_all as true or as 1, true, yes, on",
        (
            "tools.test_files.test_edit_replaces_every_occurrence_when_asked_in_any_of_leafs_words",
            "tools.test_files.test_other_words_do_not_mean_every_occurrence",
        ),
    ),
    Row(
        "Glob: files only, sorted, relative; a fixed text for none",
        (
            "tools.test_files.test_glob_lists_files_only_sorted_and_relative",
            "tools.test_files.test_glob_says_so_when_nothing_matches",
        ),
    ),
    Row(
        "Glob: 1,000 paths and the count of the rest", ("tools.test_files.test_glob_shows_a_thousand_files",)
    ),
    Row("Glob: the rules of Python's glob", ("tools.test_glob_rules.test_",)),
    Row(
        "Bash: a fresh login shell for each call",
        ("tools.test_bash.test_each_call_is_a_fresh_login_shell_in_the_workspace",),
    ),
    Row(
        "Bash: exit code, STDOUT and STDERR always there",
        ("tools.test_bash.test_exit_code_and_both_streams",),
    ),
    Row("Bash: 30,000 characters, the head", ("tools.test_bash.test_a_long_output_is_cut_at_the_head",)),
    Row("Bash: a time-out is the first line", ("tools.test_bash.test_a_timeout_is_the_first_line",)),
    Row(
        "Bash: 120 s by default, timeout_ms, above 1,000 taken as milliseconds, at least 0.1 s",
        ("tools.test_bash.test_the_timeout_is_read_as_leaf_reads_it",),
    ),
    Row(
        "an unknown tool is an observation",
        ("harnesses.test_leaf.test_unknown_tools_duplicate_ids_and_fifty_calls",),
    ),
    Row(
        "an error of a tool is an observation of its type and message; a missing argument is named",
        (
            "tools.test_files.test_an_error_is_an_observation_of_its_type_and_message",
            "tools.test_files.test_an_empty_argument_counts_as_missing",
        ),
    ),
    # Prompt and request.
    Row(
        "a short system message; the task's statement unchanged; nothing else is ever put in",
        (
            "harnesses.test_presets.test_the_conversation_opens_with_the_prompt_and_the_statement_unchanged",
            "harnesses.test_leaf.test_the_conversation_holds_the_prompt_the_task_and_what_was_said_and_nothing_else",
        ),
        differs="the wording is the lab's own; import_harness --leaf reads Leaf's",
    ),
    Row(
        "tool_choice auto, parallel_tool_calls, the cap per turn, no seed",
        (
            "harnesses.test_leaf.test_the_request_is_leafs_and_nothing_more",
            "harnesses.test_leaf.test_every_request_carries",
        ),
        differs="streamed, with usage asked for: people watch, and a cancel takes effect at once",
    ),
    # Loop.
    Row(
        "a stop ends the run as cancelled", ("harnesses.test_leaf.test_cancel_interrupts_a_streaming_reply",)
    ),
    Row(
        "max_time",
        (
            "harnesses.test_leaf.test_wall_time_interrupts_a_running_command",
            "harnesses.test_leaf.test_wall_time_interrupts_a_silent",
        ),
        differs="wall time counts from the first model call and interrupts what is running",
    ),
    Row(
        "a context overflow ends the run, and the work is kept",
        (
            "harnesses.test_leaf.test_an_overflowing_request_is_a_limit_and_the_work_is_kept",
            "llm.test_failures.test_a_context_overflow_is_known_in_every_servers_words",
        ),
        differs="SGLang's and llama.cpp's words are known too",
    ),
    Row(
        "other failures of the model call are infrastructure",
        ("harnesses.test_leaf.test_an_endpoint_that_refuses_is_infrastructure",),
    ),
    Row(
        "of a reply only role, content, calls and reasoning go back",
        (
            "harnesses.test_leaf.test_the_assistant_message_has_role_content_calls_and_reasoning_only",
            "harnesses.test_leaf.test_reasoning_goes_back_under_the_name_it_came_in",
        ),
        differs="reasoning that came as `reasoning` is kept as well",
    ),
    Row(
        "context: the server's total, else an estimate",
        ("harnesses.test_leaf.test_context_tokens_are_the_servers",),
    ),
    Row(
        "a reply without a call is the final answer",
        ("harnesses.test_leaf.test_a_reply_without_a_call_ends_the_run_as_the_agents_own_ending",),
    ),
    Row(
        "a reply cut by length is not executed; which limit cut it",
        (
            "harnesses.test_leaf.test_a_reply_cut_by_length_executes_nothing_and_names_the_limit_that_cut_it",
            "harnesses.test_leaf.test_a_length_in_capitals_cuts_too",
        ),
    ),
    Row(
        "calls are executed in order, one tool message each",
        ("harnesses.test_leaf.test_calls_are_executed_in_order_with_one_tool_message_each",),
    ),
    Row(
        "arguments that are no JSON object become {}",
        (
            "harnesses.test_leaf.test_as_leaf_leaves_the_raw_text_in_the_history_and_runs_the_tool_with_nothing",
            "harnesses.test_leaf.test_explain_keeps_the_raw_text_tells_the_model_and_makes_the_next_request_valid",
        ),
        differs="by default the model is told what was wrong; `as_leaf` does as Leaf does",
    ),
    Row("a broken sandbox ends the run", ("harnesses.test_leaf.test_a_lost_sandbox_leaves_the_loop",)),
    Row(
        "max_context_len after the tool messages are counted",
        ("harnesses.test_leaf.test_the_context_ceiling_counts_the_tool_messages_and_ends_the_run",),
    ),
    Row(
        "max_turns after the last allowed step",
        ("harnesses.test_leaf.test_the_last_allowed_step_is_executed",),
    ),
    # Budgets.
    Row(
        "150 steps, 131,072 tokens of context, 8,192 a turn, 10,800 s",
        (
            "harnesses.test_presets.test_leaf_compatible_has_the_limits_and_truncation_of_leafs_published_runs",
        ),
    ),
    Row(
        "temperature 0.6, top_p 0.95, top_k 20, min_p 0, penalties, thinking",
        ("harnesses.test_presets.test_sampling_is_suggested_and_no_part_of_the_harness",),
        differs="suggested, and no part of the harness",
    ),
)


def test_every_row_has_a_test_that_exists() -> None:
    assert all(row.tests for row in TABLE)
    require_shown(TABLE, __name__)
