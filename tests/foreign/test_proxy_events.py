"""Proxy-Originated Events: what is missing is refused or filled in, never passed on."""

import unittest

from base import CREATED, RelayCase, fresh, session


class Required(RelayCase):
    """Fields that browsers were promised."""

    def test_a_session_without_a_required_field_is_not_shown(self):
        browser, proxy = self.browser(), self.proxy()
        for field in ("session_id", "agent_type", "status"):
            with self.subTest(field=field):
                broken = session(fresh("sess"))
                del broken[field]
                proxy.send("proxy_session_snapshot", sessions=[broken])
                proxy.drain()
        browser.drain()
        for frame in browser.seen("session_up"):
            self.assertHas(frame["session"], "session_id", "agent_type", "status")
        for one in self.browser("two").expect("session_snapshot")["sessions"]:
            self.assertHas(one, "session_id", "agent_type", "status")

    def test_a_snapshot_without_sessions_is_refused_and_takes_nothing_down(self):
        browser, proxy, name = self.stage()
        proxy.send("proxy_session_snapshot")
        self.assertRefused(proxy)
        browser.drain()
        self.assertFalse(browser.seen("session_down", session_id=name))

    def test_a_failed_send_without_an_error_still_shows_one(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name)
        proxy.expect("send_message", client_message_id=mine)
        proxy.send("proxy_send_result", session_id=name, client_message_id=mine,
                   result="failed")
        event = browser.expect("message_failed", client_message_id=mine)
        self.assertHas(event["error"], "code", "message")
        self.assertUtc(event["failed_at"])

    def test_a_failed_launch_shows_its_code_and_reason_or_is_refused(self):
        browser, proxy = self.browser(), self.proxy()
        for field in ("reason", "error_code"):
            with self.subTest(field=field):
                request = fresh("launch")
                browser.send("launch_session", request_id=request, agent_type="codex")
                proxy.expect("launch_session", request_id=request)
                fields = {"reason": "no", "error_code": "agent_not_open"}
                del fields[field]
                proxy.send("session_launch_failed", request_id=request, **fields)
                proxy.drain(), browser.drain()
                for frame in browser.seen("session_launch_failed", request_id=request):
                    self.assertHas(frame, "reason", "error_code")

    def test_a_result_without_a_required_field_is_refused(self):
        browser, proxy, name = self.stage()
        whole = {"request_id": "intr", "session_id": name,
                 "command": "agent_interrupt", "result": "ok"}
        browser.send("agent_interrupt", request_id="intr", session_id=name)
        proxy.expect("agent_interrupt")
        for field in whole:
            with self.subTest(field=field):
                part = {key: value for key, value in whole.items() if key != field}
                proxy.send("agent_control_result", **part)
                proxy.drain(), browser.drain()
        for frame in browser.seen("agent_control_result"):
            self.assertHas(frame, "request_id", "session_id", "command", "result")

    def test_a_message_of_attachments_alone_has_content_in_the_transcript(self):
        """Every message of the text has `content`, so clients will read it."""
        browser, _, name = self.stage()
        mine = fresh("msg")
        browser.send("send_message", client_message_id=mine, session_id=name,
                     created_at=CREATED, attachments=[
                         {"attachment_id": "a", "name": "a.png", "kind": "uploaded_file"}])
        browser.expect("message_accepted", client_message_id=mine)
        for message in self.snapshot_of(browser, name)["messages"]:
            self.assertIsInstance(message.get("content"), str)


class Load(RelayCase):
    """Sequences and completeness when a lot happens at once."""

    def test_the_sequence_only_grows_while_everybody_talks_at_once(self):
        browser, proxy, name = self.stage()
        second = self.browser("two")
        for number in range(60):
            proxy.send("proxy_message", session_id=name, message={
                "role": "assistant", "content": f"agent {number}", "created_at": CREATED})
            self.post(browser, name, f"one {number}")
            self.post(second, name, f"two {number}")
        proxy.drain()
        for peer in (browser, second):
            for _ in range(180):
                peer.expect(("message_event", "message_accepted"), session_id=name)
            numbers = [f["sequence"] for f in peer.log
                       if f["type"] in ("message_event", "message_accepted")]
            self.assertEqual(numbers, sorted(set(numbers)))

    def test_the_full_transcript_is_full_and_the_delta_complete(self):
        browser, proxy, name = self.stage()
        for number in range(1500):
            proxy.send("proxy_message", session_id=name, message={
                "role": "assistant", "content": str(number), "created_at": CREATED})
        proxy.drain()
        browser.close()
        browser = self.browser()
        messages = self.snapshot_of(browser, name)["messages"]
        self.assertEqual([m["content"] for m in messages], [str(n) for n in range(1500)])
        browser.send("history_request", session_id=name, after_sequence=0)
        delta = browser.expect("history_delta", session_id=name)
        numbers = [event["sequence"] for event in delta["events"]]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual(numbers[-1], delta["last_sequence"])
        self.assertEqual(len([e for e in delta["events"] if e["type"] == "message_event"]), 1500)


if __name__ == "__main__":
    unittest.main()
