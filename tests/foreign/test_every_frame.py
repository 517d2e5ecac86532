"""One long day at the relay, after which every frame it sent is looked at."""

import unittest

from base import CREATED, UTC, RelayCase, dialog, fresh, session

# Events that the text shows with event_id and sequence.
SEQUENCED = {
    "session_up", "session_down", "session_status", "message_accepted",
    "message_delivered", "message_failed", "message_event",
}
# Frames that the relay passes on for somebody else; the rest it originates.
PASSED_ON = {
    "send_message", "launch_session", "close_session", "permission_response",
    "agent_interrupt", "agent_set_model", "agent_config_request",
}
ERROR_CODES = {
    "protocol_version_unsupported", "invalid_message", "session_not_connected",
    "session_unknown", "send_rejected", "send_injection_failed", "selector_failure",
    "history_not_available", "resume_cursor_invalid", "no_proxy_connected",
    "launch_timeout", "agent_not_open", "launch_not_supported", "unauthorized",
    "prompt_not_found", "agent_not_active", "model_not_available",
    "control_not_supported", "config_read_failed",
}


def timestamps(value, path=""):
    """Every timestamp in a frame, however deep, with where it stands."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key.endswith("_at") or key.endswith("_ts"):
                yield f"{path}.{key}", inner
            else:
                yield from timestamps(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from timestamps(inner, path)


class EveryFrame(RelayCase):
    """Envelope, timestamps and sequences of everything."""

    def day(self):
        """Use every message type of the text once, with two browsers watching."""
        browser, other = self.browser(), self.browser("two")
        proxy, name, prompt = self.proxy(), fresh("sess"), fresh("prompt")
        self.register(proxy, browser, session(name, target_id="t", last_seen_at=CREATED))
        self.delivered(browser, proxy, name)
        failing = self.post(browser, name)
        proxy.expect("send_message", client_message_id=failing)
        proxy.send("proxy_send_result", session_id=name, client_message_id=failing,
                   result="failed", failed_at=CREATED,
                   error={"code": "selector_failure", "message": "x"})
        browser.expect("message_failed", client_message_id=failing)
        self.say(browser, proxy, name, "hello")
        proxy.send("proxy_status", session_id=name, status="degraded", activity={
            "kind": "thinking", "label": "Thinking", "updated_at": CREATED})
        browser.expect("session_status", session_id=name)
        proxy.send("agent_config", session_id=name, model_id="m", read_at=CREATED)
        browser.expect("agent_config", session_id=name)
        proxy.send("permission_prompt", **dialog(
            name, prompt, timeout_ms=200, default_choice="no", detected_at=CREATED))
        browser.expect("permission_prompt_expired", prompt_id=prompt)
        for type, fields in (("agent_interrupt", {}), ("agent_set_model", {"model_id": "m"}),
                             ("agent_config_request", {})):
            browser.send(type, request_id=f"req_{type}", session_id=name, **fields)
            proxy.expect(type)
        proxy.send("agent_control_result", request_id="req_agent_interrupt",
                   session_id=name, command="agent_interrupt", result="ok")
        browser.expect("agent_control_result")
        browser.send("launch_session", request_id="launch_day", agent_type="codex")
        proxy.expect("launch_session", request_id="launch_day")
        proxy.send("session_launch_ack", request_id="launch_day",
                   session_id=fresh("sess"), agent_type="codex")
        browser.expect("session_launch_ack")
        browser.send("launch_session", request_id="launch_bad", agent_type="codex")
        proxy.expect("launch_session", request_id="launch_bad")
        proxy.send("session_launch_failed", request_id="launch_bad", agent_type="codex",
                   reason="no", error_code="agent_not_open")
        browser.expect("session_launch_failed")
        browser.send("history_request", session_id=name)
        browser.send("history_request", session_id=name, after_sequence=0)
        browser.send("history_request", session_id=name, after_sequence=9_999)
        browser.send("no_such_type")
        browser.expect("history_snapshot"), browser.expect("history_delta")
        browser.send("close_session", request_id="close_day", session_id=name)
        proxy.expect("close_session")
        proxy.send("session_closed", request_id="close_day", session_id=name,
                   reason="user_requested")
        browser.expect("session_closed")
        proxy.drain(), proxy.close()
        browser.expect("session_down")
        browser.drain(), other.drain()
        return browser, other, proxy

    @classmethod
    def frames(cls, peers):
        return [frame for peer in peers for frame in peer.log]

    def test_every_frame_has_a_type_and_the_protocol_version(self):
        for frame in self.frames(self.day()):
            self.assertIsInstance(frame.get("type"), str, frame)
            self.assertEqual(frame.get("protocol_version"), 1, frame)
            self.assertIsInstance(frame["protocol_version"], int)

    def test_every_frame_that_the_relay_originates_has_a_server_ts(self):
        for frame in self.frames(self.day()):
            if frame["type"] not in PASSED_ON:
                self.assertRegex(frame.get("server_ts", "missing"), UTC, frame)

    def test_every_timestamp_is_iso_8601_utc(self):
        for frame in self.frames(self.day()):
            for where, text in timestamps(frame):
                self.assertRegex(text, UTC, f"{where} in {frame}")

    def test_every_session_event_has_an_event_id_and_a_sequence(self):
        seen = set()
        for frame in self.frames(self.day()):
            if frame["type"] in SEQUENCED:
                seen.add(frame["type"])
                self.assertIsInstance(frame.get("event_id"), str, frame)
                self.assertIsInstance(frame.get("sequence"), int, frame)
        self.assertEqual(seen, SEQUENCED)

    def test_both_browsers_saw_the_same_sequences(self):
        browser, other, _ = self.day()

        def events(peer):
            return [(f["type"], f["event_id"], f["sequence"]) for f in peer.log
                    if f["type"] in SEQUENCED]

        self.assertEqual(events(browser), events(other))

    def test_every_error_code_is_a_string_of_the_text(self):
        """The list is "recommended"; on the common paths nothing else is needed."""
        for frame in self.frames(self.day()):
            code = frame.get("code") or frame.get("error_code")
            code = code or (frame.get("error") or {}).get("code")
            if code is not None:
                self.assertIn(code, ERROR_CODES, frame)


if __name__ == "__main__":
    unittest.main()
