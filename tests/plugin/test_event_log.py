"""DLRL_EVENT_LOG names a file that gets each journal event as a line of JSON."""

from __future__ import annotations

import json
import stat

from dlrl_core.plugin import plugin_host


def test_events_are_appended_to_a_file_that_only_its_owner_reads(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("DLRL_EVENT_LOG", str(path))

    sink = plugin_host().event_sinks()["event_log"]
    sink("ppo", {"seq": 1, "kind": "submitted"})
    sink("ppo", {"seq": 2, "kind": "state"})

    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"job": "ppo", "seq": 1, "kind": "submitted"},
        {"job": "ppo", "seq": 2, "kind": "state"},
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_the_variable_there_is_no_such_sink(monkeypatch):
    monkeypatch.delenv("DLRL_EVENT_LOG", raising=False)

    assert "event_log" not in plugin_host().event_sinks()
