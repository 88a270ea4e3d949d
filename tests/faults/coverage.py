"""Which test catches which failure: the fifty that users of MCP report, and the matrix of faults.

Source: the reliability study, sections 2 and 4. `test_coverage` checks that each test that is named exists.
A name with `::` is a test of that file; any other is a case of the matrix (`test_matrix`).
"""

from __future__ import annotations

import attrs

CHILD = "tests/faults/test_child_faults.py::test_"
VIRTUAL = "tests/faults/test_virtual.py::test_"
DAEMON = "tests/faults/test_daemon_faults.py::test_"
TREE = "tests/process/processes/test_children.py::test_"
UPSTREAM = "tests/process/actors/test_upstream.py::test_"
OWN_CHILD = "tests/process/upstreams/instances/test_"
LIFE = "tests/e2e/test_lifecycle.py::test_"
KEPT = "tests/e2e/test_persistence.py::test_"
BOOTED = "tests/systemd/test_kills.py::test_"
LOGINS = "tests/process/upstreams/transports/test_server_login.py::test_"
NEIGHBOURS = f"{CHILD}whatever_one_of_twenty_servers_does_no_call_to_the_others_fails"


@attrs.frozen
class Row:
    """One failure."""

    what: str
    """In words."""
    tests: tuple[str, ...] = ()
    """What catches it."""
    note: str = attrs.field(default="", kw_only=True)
    """Why there is no test, or what the tests leave out; a sentence."""


def row(what: str, *tests: str, note: str = "") -> Row:
    """A row in one line."""
    return Row(what, tests, note=note)


FIFTY = (
    row(
        "1 a server dies and pending requests hang",
        "stdio: killed with calls in flight",
        f"{CHILD}calls_in_flight_are_answered_at_once_when_their_server_is_killed",
    ),
    row(
        "2 a stdio server never reconnects",
        f"{CHILD}a_server_killed_again_and_again_always_comes_back",
        note="A thousand times: bench.reliability, R8.",
    ),
    row(
        "3 a proxy becomes a zombie after a crash behind it",
        "stdio: exit 1 during a call",
        "network: unix: every line is reset",
    ),
    row(
        "4 a failed start is never retried",
        "network: http: not there at first",
        "network: ws: not there for a while",
    ),
    row(
        "5 a live server stays unused for a long backoff",
        "stdio: killed and not due for long, and a call wakes it",
        f"{VIRTUAL}a_call_to_a_server_that_is_back_does_not_wait_for_the_next_try",
    ),
    row("6 one bad server takes down all", NEIGHBOURS),
    row(
        "7 all stdio servers drop together",
        "tests/unit/supervision/test_supervisor.py::test_no_exception_of_one_child_reaches_its_siblings",
        f"{CHILD}twenty_servers_killed_at_once_are_all_back",
    ),
    row(
        "8 orphans after the daemon dies",
        f"{BOOTED}no_child_outlives_a_killed_daemon_whatever_it_ignores",
        note="Needs a booted systemd: without its control groups nothing outlives a SIGKILL to clean up.",
    ),
    row("9 a status command leaks servers", "operators: a hundred times the status"),
    row(
        "10 grandchildren survive",
        f"{TREE}the_whole_tree_ends_with_its_child",
        "stdio: a tree goes with its server",
        "stdio: a tree of a server that can only be killed",
    ),
    row(
        "11 zombies",
        f"{TREE}adopted_orphans_are_reaped",
        "tests/faults/test_matrix.py::test_nothing_is_left_of_all_that_happened",
    ),
    row(
        "12 PDEATHSIG kills healthy children",
        f"{TREE}a_child_gets_three_descriptors_its_own_group_and_no_death_signal",
    ),
    row(
        "13 each reconnect leaks the old process",
        f"{VIRTUAL}whatever_happens_in_whatever_order_there_is_one_connection_and_it_comes_back",
        "stdio: killed during a listing that was asked for, over and over",
    ),
    row(
        "14 a cancelled connect leaves a child",
        f"{TREE}a_cancelled_start_leaves_no_child",
        f"{CHILD}stopping_in_the_middle_of_everything_leaves_nothing",
    ),
    row(
        "15 containers of `docker run` leak",
        "stdio: a tree of the kind daemon is killed with its root",
        note="A container is the docker daemon's child, not ours: `docker run` passes TERM on, not a KILL.",
    ),
    row(
        "16 cannot stop, hangs on shutdown",
        f"{TREE}a_stopped_child_is_killed_too",
        "stdio: frozen, and taken out of the configuration",
        "tests/process/tree/test_running.py::test_stubborn_servers_end_after_their_grace_periods",
    ),
    row(
        "17 shutdown is sequential",
        f"{CHILD}servers_that_cannot_be_stopped_are_stopped_together",
        f"{BOOTED}a_stop_with_fifty_servers_that_ignore_term_is_ours_not_systemds",
    ),
    row("18 a server spins after its client died", f"{TREE}a_child_that_ignores_eof_and_sigterm_is_killed"),
    row(
        "19 EPIPE crashes the writer",
        "stdio: closes its stdin and is written a megabyte",
        "tests/unit/wire/test_link.py::test_writing_to_who_has_gone_ends_the_link",
    ),
    row(
        "20 404 session not found, dead forever",
        "http: http: it has forgotten the session",
        "tests/e2e/test_upstreams.py::test_a_server_behind_http_is_found_when_it_comes_up_called_and_found_again_after_a_restart",
    ),
    row(
        "21 the same answered otherwise",
        "http: http: it ends the session with 410 Gone",
        "http: http: it ends the session with 400 Bad Request",
        "http: http: it refuses a call alone with 400 Bad Request",
        "http: http: 503 Service Unavailable to a call",
        "http: http: an error in 200 instead of an answer",
        "tests/process/upstreams/transports/test_http.py::test_each_way_to_end_a_session",
    ),
    row(
        "22 noise on stdout",
        "stdio: a banner on stdout",
        "stdio: colours and a byte order mark on stdout",
        "stdio: too much noise",
    ),
    row(
        "23 stderr fills up",
        f"{CHILD}stderr_without_end_or_newline_costs_nothing",
        "stdio: thirty thousand lines on stderr",
    ),
    row(
        "24 green but dead",
        f"{VIRTUAL}a_server_that_goes_silent_is_not_called_ready_for_longer_than_a_minute",
        "network: http: a black hole that pings find",
    ),
    row(
        "25 large messages",
        "stdio: an answer of 65537 bytes",
        "stdio: an answer just under the limit",
        "stdio: an answer over the limit",
        "tests/unit/wire/test_frames.py::test_a_line_of_exactly_the_limit_passes",
    ),
    row(
        "26 streams without room deadlock",
        "stdio: both directions full",
        "tests/unit/wire/test_writing.py::test_a_peer_is_not_read_from_while_its_answers_wait",
    ),
    row(
        "27 a cancellation is lost or goes astray",
        "stdio: a call is cancelled",
        "stdio: a client goes away",
        "network: http: a call is cancelled",
    ),
    row(
        "28 progress lost, made up or late",
        "stdio: progress under a token that is a number",
        "tests/unit/clients/test_call.py::test_nobody_gets_progress_without_having_asked",
        "tests/unit/wire/test_requests.py::test_progress_after_the_answer_is_counted_and_dropped",
    ),
    row(
        "29 ids of clients collide",
        "clients: thirty-two clients that all use id 1",
        "stdio: sixteen clients with the same ids",
        note="A million calls: bench.reliability, R20.",
    ),
    row(
        "30 odd ids of clients",
        "clients: ids of all kinds",
        "stdio: one id twice",
        "tests/unit/actors/test_session.py::test_ids_come_back_byte_by_byte",
    ),
    row(
        "31 a stale list of tools",
        "stdio: other tools, announced",
        "stdio: other tools after a restart",
        "network: unix: other tools after it was away",
    ),
    row(
        "32 stale tools stay callable",
        "stdio: another schema, and a call before anybody has looked",
        "network: http: not there at first",
        note="I7 is checked after every case of the matrix.",
    ),
    row(
        "33 a memory leak",
        "tests/faults/test_matrix.py::test_nothing_is_left_of_all_that_happened",
        note="Memory takes a million calls to judge: bench.reliability, R9.",
    ),
    row(
        "34 a leak of descriptors",
        "tests/unit/wire/test_link.py::test_links_leak_no_descriptors_however_they_end",
        "tests/faults/test_matrix.py::test_nothing_is_left_of_all_that_happened",
        f"{DAEMON}a_daemon_without_descriptors_serves_on_and_recovers",
    ),
    row(
        "35 two ways to reconnect race",
        f"{VIRTUAL}whatever_happens_in_whatever_order_there_is_one_connection_and_it_comes_back",
    ),
    row(
        "36 a consumer that never reads",
        "clients: a client that never reads",
        "clients: a client that never reads large answers",
    ),
    row(
        "37 timeouts ignore progress",
        "stdio: reports progress for longer than a call may be silent",
        f"{UPSTREAM}progress_does_not_keep_a_call_alive_beyond_the_maximum",
        "stdio: never answers a call",
    ),
    row(
        "38 tokens expire",
        "http: http: 401 to a call",
        "http: http: 401 Unauthorized to the handshake",
        f"{LOGINS}a_login_that_is_about_to_end_is_renewed_before_it_is_sent",
        "tests/e2e/test_logins.py::test_a_login_goes_on_after_it_has_expired_and_after_a_restart",
    ),
    row(
        "39 a thundering herd",
        "tests/unit/supervision/test_supervisor.py::test_at_most_so_many_start_at_once",
        "tests/unit/supervision/test_backoff.py::test_delays_double_up_to_the_cap_with_half_of_each_left_to_chance",
    ),
    row(
        "40 suspend and resume",
        f"{VIRTUAL}a_machine_that_slept_finds_a_live_line_alive_and_a_dead_one_within_a_minute",
    ),
    row("41 a cold npx exceeds the time", f"{UPSTREAM}a_slow_answer_to_initialize_is_waited_for"),
    row(
        "42 invalid UTF-8 kills the reader",
        "stdio: bytes that are no UTF-8 on stdout",
        "http: unix: an answer that is no UTF-8",
    ),
    row(
        "43 a reconnect replays a call",
        "stdio: it commits, then is killed",
        f"{CHILD}a_call_with_side_effects_is_never_sent_twice",
        note="A thousand times: bench.reliability, R22.",
    ),
    row(
        "44 a stale daemon is adopted",
        "tests/e2e/test_two_daemons.py::test_a_second_daemon_on_one_directory_refuses_and_names_the_first",
        note="Nobody adopts a daemon: it alone reads the configuration, and says which version it is.",
    ),
    row(
        "45 a panic in a management call",
        "operators: search with the wrong types",
        "clients: call-category-tool with a number for a category",
        "tests/unit/actors/test_control.py::test_a_bug_in_a_command_costs_one_answer",
    ),
    row(
        "46 the store is locked or spoilt",
        f"{KEPT}a_file_that_another_program_holds_is_written_once_it_is_free",
        f"{KEPT}a_file_that_is_held_at_the_start_is_read_and_written_once_it_is_free",
        "tests/e2e/test_kills.py::test_no_kill_loses_what_was_acknowledged_or_spoils_the_file",
    ),
    row(
        "47 secrets in what is shown",
        "stdio: a secret in stderr",
        "http: http: a secret in its url",
        "operators: a secret in a faulty configuration",
        "tests/e2e/test_lifecycle.py::test_secrets_of_the_configuration_are_in_no_log_and_no_status",
    ),
    row(
        "48 a failure is not named",
        "stdio: no such command",
        "stdio: killed while idle",
        note="I7 asks for a reason after every case of the matrix.",
    ),
    row(
        "49 servers that exit after one reply",
        f"{CHILD}a_server_that_exits_after_each_answer_serves_all_the_same",
        "stdio: exits after each answer",
    ),
    row(
        "50 notifications are relayed wrongly",
        "tests/unit/actors/test_session.py::test_a_burst_of_changes_is_announced_once",
        "tests/unit/actors/test_session.py::test_a_change_that_shows_nowhere_is_not_announced",
    ),
)

MATRIX = (
    row(
        "child SIGKILL idle, mid-call, mid-initialize",
        "stdio: killed while idle",
        "stdio: killed with calls in flight",
        "stdio: killed during initialize",
    ),
    row(
        "child SIGSTOP",
        f"{CHILD}a_frozen_server_is_given_up_and_killed",
        f"{UPSTREAM}a_stopped_server_is_degraded_and_ready_when_it_goes_on",
        f"{UPSTREAM}a_stopped_server_with_a_call_is_degraded_too_and_the_call_goes_on",
        "stdio: frozen during a call, and thawed",
    ),
    row(
        "child exit 0, 1, 78, 127, SIGSEGV",
        "stdio: exit 0 during a call",
        "stdio: exit 1 during a call",
        "stdio: exit 78 during a call",
        "stdio: exit 127 before it says anything",
        "stdio: SIGSEGV during a call",
        "tests/unit/supervision/test_child.py::test_the_restart_type_and_the_ending_decide_about_a_restart",
    ),
    row(
        "ENOENT, EACCES, ENOEXEC, EAGAIN, EMFILE",
        "stdio: no such command",
        "stdio: a command that is a directory",
        "stdio: a command that is no program",
        f"{TREE}a_shortage_of_descriptors_is_worth_another_try",
    ),
    row(
        "garbage, banner, ANSI, blank, CRLF, BOM, binary on stdout",
        "stdio: a banner on stdout",
        "stdio: lines that end as on Windows",
        "stdio: zeros and ones on stdout",
        "stdio: unbearable noise",
    ),
    row(
        "part of a line, then silence or the end",
        "stdio: half a line, then silence",
        "stdio: half a line, then the end",
    ),
    row(
        "100 MB line; over and under the limit",
        f"{CHILD}an_enormous_line_costs_no_memory_and_only_its_connection",
        "stdio: a line over the limit of which nobody knows whose it is",
        "stdio: an answer just under the limit",
    ),
    row(
        "slow drip",
        f"{VIRTUAL}an_answer_that_drips_does_not_keep_its_call_alive",
        "tests/unit/wire/test_frames.py::test_a_dripping_line_is_searched_once",
    ),
    row(
        "stdout EOF but alive; a grandchild holds stdout",
        "tests/process/upstreams/transports/test_stdio.py::test_a_closed_stdout_ends_the_connection_although_the_child_lives",
        "stdio: it ends, and a grandchild holds its stdout",
    ),
    row(
        "child stops reading stdin", f"{CHILD}a_server_that_never_reads_refuses_calls_instead_of_eating_memory"
    ),
    row("stderr flood, no newline, never closed", f"{CHILD}stderr_without_end_or_newline_costs_nothing"),
    row(
        "10k notifications, unknown tokens and ids, duplicates",
        "stdio: ten thousand messages that concern nobody",
        "http: unix: every answer twice",
    ),
    row(
        "5,000 tools, endless cursor, duplicate names, cyclic $ref",
        "stdio: three thousand tools in pages of a hundred",
        "stdio: the cursor never ends",
        "stdio: two tools of one name",
        "stdio: a schema that turns in a circle",
        "tests/e2e/test_surfaces_bad_input.py::test_five_thousand_tools_come_in_parts_each_exactly_once",
    ),
    row(
        "port closed, refused, black hole, RST, FIN mid-body",
        "network: ws: not there for a while",
        "network: http: a black hole that pings find",
        "network: http: RESET after 60 bytes of an answer",
        "network: http: HALF_CLOSE after 190 bytes of an answer",
    ),
    row(
        "DNS NXDOMAIN, timeout",
        "http: http: a name that does not exist",
        f"{VIRTUAL}a_name_that_nobody_resolves_is_given_up_and_tried_again",
    ),
    row(
        "TLS expired, wrong host, self-signed, protocol",
        "http: http: TLS to a server that speaks none",
        "tests/unit/upstreams/transports/test_network.py::test_a_certificate_that_does_not_verify_is_no_outage",
        "tests/process/upstreams/transports/test_http.py::test_an_untrusted_certificate_cannot_start",
    ),
    row(
        "HTTP 500, 502, 503 + Retry-After, 429",
        "http: http: 502 Bad Gateway to a call",
        "http: http: 503 for a while",
        "http: http: 429 Too Many Requests to a call",
        "tests/unit/upstreams/transports/test_failures.py::test_when_to_come_back_is_understood_and_told",
    ),
    row(
        "HTTP 404, 400, 410 session, 200 + error",
        "http: http: it has forgotten the session with calls in flight",
        "http: http: it ends the session with 404 Not Found",
    ),
    row(
        "401 expired, refresh refused or concurrent",
        "http: http: 401 to a call",
        f"{LOGINS}fifty_calls_with_a_login_that_has_ended_are_one_renewal_and_all_run_once",
        f"{LOGINS}a_renewal_that_is_refused_ends_the_connection_and_names_the_command",
        f"{LOGINS}a_login_that_is_refused_after_its_renewal_is_tried_no_third_time",
        note="Several daemons renew one login one at a time, too: tests/process/authorization.",
    ),
    row(
        "an authorization server that is down",
        f"{LOGINS}while_the_authorization_server_is_away_a_login_is_used_as_long_as_it_is_good",
        f"{LOGINS}while_the_authorization_server_is_away_an_ended_login_costs_calls_and_then_the_connection",
    ),
    row(
        "SSE: comments, no event, wrong type, gzip bomb, replay",
        "http: sse: comments and unknown events",
        "http: sse: the stream is a web page",
        "http: http: what unpacks to far more than the limit",
        "tests/process/upstreams/transports/test_http_streams.py::test_the_stream_of_notifications_is_reopened",
    ),
    row(
        "WebSocket: no pong, close codes, size, text as binary",
        "http: ws: closed with 1011 during a call",
        "http: ws: a message over the limit",
        "tests/process/upstreams/transports/test_ws.py::test_a_binary_message_may_hold_json",
        note="Whether it lives is asked by MCP's ping, as over every transport; pongs do not matter.",
    ),
    row(
        "unix socket gone, no permission, stale file",
        "network: unix: goes away with calls in flight",
        "http: unix: a socket that is no socket",
        "tests/unit/upstreams/transports/test_unix.py::test_nobody_there_any_more",
    ),
    row(
        "redirect loop, cross-origin",
        "http: http: a redirect to itself for ever",
        "http: http: a redirect to another origin",
    ),
    row("disk full", f"{KEPT}without_room_on_the_disk_all_is_served_and_written_once_there_is_some"),
    row(
        "SQLite locked, corrupt, truncated, read-only, newer",
        f"{KEPT}a_corrupt_file_is_set_aside_by_name_and_a_new_one_begun",
        f"{KEPT}a_file_of_a_later_version_is_left_alone_and_the_daemon_serves",
        "tests/process/state/test_sqlite.py::test_a_store_that_turns_read_only_says_so",
    ),
    row(
        "wall clock, suspend",
        "tests/unit/actors/test_recorder.py::test_a_clock_that_was_set_ahead_does_not_forget_everything",
        f"{VIRTUAL}a_machine_that_slept_finds_a_live_line_alive_and_a_dead_one_within_a_minute",
    ),
    row(
        "config invalid, half, huge, removed",
        "operators: the configuration becomes half of itself",
        "operators: the configuration becomes nothing",
        "operators: the configuration becomes a hundred faults",
    ),
    row("config change of 1 of 20", "tests/e2e/test_operations.py::test_a_reload_touches_one_server_of_twenty"),
    row(
        "client disconnects mid-call",
        "stdio: a client goes away",
        f"{LIFE}a_client_that_hangs_up_in_a_call_takes_the_call_with_it",
    ),
    row(
        "client floods, many connects, half-open",
        "clients: two hundred connections with half a line",
        "clients: a thousand messages in one piece",
        "tests/unit/upstreams/test_admission.py::test_in_a_flood_of_one_client_anothers_call_is_in_the_next_round",
    ),
    row("never-reading client", "clients: a client that never reads"),
    row(
        "malformed, deep, huge client JSON",
        "clients: depth 100,000",
        "clients: a message over the limit",
        "clients: a hundred lines of nonsense",
    ),
    row(
        "daemon SIGKILL, SIGSTOP, OOM, SIGTERM twice",
        f"{BOOTED}no_connection_is_refused_while_the_daemon_is_killed_again_and_again",
        f"{BOOTED}a_stuck_daemon_is_replaced_by_the_watchdog",
        f"{LIFE}a_second_sigterm_is_no_accident",
        note="To the daemon, the kernel's OOM killer is a SIGKILL.",
    ),
    row(
        "fd exhaustion in the daemon",
        f"{DAEMON}a_daemon_without_descriptors_serves_on_and_recovers",
        "tests/unit/clients/doors/test_listening.py::test_a_shortage_makes_the_door_take_a_breath_and_go_on",
    ),
    row(
        "exception of every type in every actor",
        "tests/unit/supervision/test_supervisor.py::test_no_exception_of_one_child_reaches_its_siblings",
        "tests/unit/actors/test_session.py::test_a_bug_in_a_surface_costs_one_request_and_not_the_session",
        "tests/unit/actors/test_recorder_faults.py::test_a_fault_of_our_own_is_contained",
        "tests/unit/actors/test_librarian.py::test_a_fault_while_indexing_costs_one_round_and_not_the_daemon",
    ),
    row(
        "cancellation at every checkpoint of start and stop",
        "tests/unit/supervision/test_supervisor.py::test_a_cancel_at_every_checkpoint_leaves_nothing",
        f"{CHILD}stopping_in_the_middle_of_everything_leaves_nothing",
    ),
    row("CPU starved, many children start", f"{DAEMON}on_a_starved_machine_nobody_is_taken_for_dead"),
    row(
        "one of several instances of a server is killed",
        f"{OWN_CHILD}server_instances.py::test_killing_one_of_five_instances_concerns_no_other",
    ),
    row(
        "one instance crashes in a loop, one takes too much memory",
        f"{OWN_CHILD}faults.py::test_a_crash_loop_of_one_instance_concerns_no_other",
        f"{OWN_CHILD}faults.py::test_an_instance_above_its_memory_ceiling_is_ended_and_no_other",
    ),
    row(
        "the daemon ends, or is killed, with many instances",
        f"{OWN_CHILD}faults.py::test_sixteen_instances_that_end_only_of_a_kill_stop_within_the_seconds_of_all_stops",
        "tests/e2e/test_leftovers.py::test_instances_that_a_killed_daemon_has_left_are_ended_by_the_next",
    ),
)
