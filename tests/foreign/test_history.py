"""Message events, History And Replay, and the resume in connection_hello."""

import unittest

from base import CREATED, RelayCase, fresh


class MessageEvents(RelayCase):
    """message_event from proxy_message."""

    def test_what_the_agent_says_reaches_every_browser(self):
        browser, proxy, name = self.stage()
        second = self.browser("two")
        event = self.say(browser, proxy, name, "I updated the file.")
        self.assertHas(event, "event_id", "sequence")
        message = event["message"]
        self.assertHas(message, "message_id")
        self.assertEqual((message["role"], message["content"], message["created_at"]),
                         ("assistant", "I updated the file.", CREATED))
        other = second.expect("message_event", session_id=name)
        self.assertEqual(other["event_id"], event["event_id"])
        self.assertEqual(other["sequence"], event["sequence"])
        self.assertEqual(other["message"], message)

    def test_a_user_message_seen_by_the_proxy_is_transcript_too(self):
        browser, proxy, name = self.stage()
        event = self.say(browser, proxy, name, "typed at the desk", role="user")
        self.assertEqual(event["message"]["role"], "user")

    def test_two_messages_are_two_records_even_with_the_same_text(self):
        browser, proxy, name = self.stage()
        for _ in range(2):
            proxy.send("proxy_message", session_id=name, message={
                "role": "assistant", "content": "Done.", "created_at": CREATED})
        browser.expect("message_event"), browser.expect("message_event")
        first, second = browser.seen("message_event")
        self.assertNotEqual(first["message"]["message_id"], second["message"]["message_id"])
        self.assertNotEqual(first["event_id"], second["event_id"])

    def test_a_message_without_a_session_or_without_a_message_is_refused(self):
        browser, proxy, name = self.stage()
        message = {"role": "assistant", "content": "x", "created_at": CREATED}
        proxy.send("proxy_message", message=message)
        self.assertRefused(proxy)
        proxy.send("proxy_message", session_id=name)
        self.assertRefused(proxy)
        browser.drain()
        self.assertFalse(browser.seen("message_event"))

    def test_a_message_of_a_session_nobody_knows_is_refused(self):
        browser, proxy, _ = self.stage()
        proxy.send("proxy_message", session_id="sess_ghost", message={
            "role": "assistant", "content": "x", "created_at": CREATED})
        self.assertEqual(self.assertRefused(proxy)["code"], "session_unknown")
        browser.drain()
        self.assertFalse(browser.seen("message_event"))

    def test_another_machine_cannot_speak_for_the_session(self):
        browser, _, name = self.stage()
        other = self.proxy("two")
        other.send("proxy_message", session_id=name, message={
            "role": "assistant", "content": "forged", "created_at": CREATED})
        other.drain(), browser.drain()
        self.assertFalse(browser.seen("message_event"))
        self.assertFalse(self.snapshot_of(browser, name)["messages"])


class Asking(RelayCase):
    """history_request with and without a cursor."""

    def talk(self):
        """A session with transcript, lifecycle and status behind it."""
        browser, proxy, name = self.stage()
        self.say(browser, proxy, name, "one")
        self.delivered(browser, proxy, name, "two")
        proxy.send("proxy_status", session_id=name, status="degraded")
        browser.expect("session_status", session_id=name)
        self.say(browser, proxy, name, "three")
        return browser, proxy, name

    def live(self, browser, name):
        """The events of a session as this browser saw them live, by sequence."""
        events = {}
        for frame in browser.log:
            of = frame.get("session_id") or frame.get("session", {}).get("session_id")
            if of == name and "sequence" in frame:
                events[frame["sequence"]] = frame
        return events

    def delta(self, browser, name, after):
        browser.send("history_request", session_id=name, after_sequence=after)
        return browser.expect("history_delta", session_id=name, from_sequence=after)

    def test_without_a_cursor_the_whole_transcript_comes(self):
        browser, _, name = self.talk()
        snapshot = self.snapshot_of(browser, name)
        self.assertEqual(snapshot["last_sequence"], max(self.live(browser, name)))
        contents = [message["content"] for message in snapshot["messages"]]
        self.assertEqual([c for c in contents if c != "two"], ["one", "three"])
        for message in snapshot["messages"]:
            self.assertHas(message, "message_id", "role", "content", "created_at")

    def test_what_the_browser_sent_is_part_of_the_known_transcript(self):
        browser, _, name = self.talk()
        contents = [m["content"] for m in self.snapshot_of(browser, name)["messages"]]
        self.assertEqual(contents, ["one", "two", "three"])

    def test_with_a_cursor_only_later_events_come(self):
        browser, _, name = self.talk()
        live = self.live(browser, name)
        middle = sorted(live)[len(live) // 2]
        delta = self.delta(browser, name, middle)
        self.assertEqual([e["sequence"] for e in delta["events"]],
                         [number for number in sorted(live) if number > middle])
        self.assertEqual(delta["last_sequence"], max(live))

    def test_replayed_events_are_the_events_that_were_live(self):
        browser, _, name = self.talk()
        live = self.live(browser, name)
        for event in self.delta(browser, name, 0)["events"]:
            self.assertHas(event, "type", "event_id", "sequence")
            original = live[event["sequence"]]
            for key in ("type", "event_id", "session_id", "message", "status",
                        "client_message_id", "message_id", "activity"):
                self.assertEqual(event.get(key), original.get(key), key)

    def test_the_last_cursor_gives_an_empty_delta(self):
        browser, _, name = self.talk()
        last = max(self.live(browser, name))
        delta = self.delta(browser, name, last)
        self.assertEqual((delta["events"], delta["last_sequence"]), ([], last))

    def test_the_sequence_of_every_session_only_grows(self):
        browser, _, name = self.talk()
        numbers = [f["sequence"] for f in browser.log
                   if "sequence" in f and name in (f.get("session_id"),
                                                   f.get("session", {}).get("session_id"))]
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_every_event_of_a_session_has_an_id_of_its_own(self):
        browser, _, name = self.talk()
        ids = [event["event_id"] for event in self.live(browser, name).values()]
        self.assertEqual(len(ids), len(set(ids)))

    def test_two_sessions_count_for_themselves(self):
        browser, proxy, name = self.stage()
        other_proxy, other = self.proxy("two"), fresh("sess")
        other_proxy.send("proxy_session_snapshot", sessions=[
            {"session_id": other, "agent_type": "claude", "status": "healthy"}])
        up = browser.expect("session_up", where=lambda f: f["session"]["session_id"] == other)
        for number in range(5):
            self.say(browser, proxy, name, f"noise {number}")
        event = self.say(browser, other_proxy, other, "quiet")
        self.assertGreater(event["sequence"], up["sequence"])
        self.assertEqual(self.snapshot_of(browser, other)["last_sequence"], event["sequence"])

    def test_the_answer_goes_only_to_the_one_who_asked(self):
        browser, _, name = self.talk()
        other = self.browser("two")
        self.snapshot_of(browser, name)
        other.drain()
        self.assertFalse(other.seen("history_snapshot"))

    def test_a_session_without_messages_has_an_empty_transcript(self):
        browser, _, name = self.stage()
        self.assertEqual(self.snapshot_of(browser, name)["messages"], [])

    def test_the_history_of_a_disconnected_session_is_still_there(self):
        browser, proxy, name = self.talk()
        proxy.close()
        browser.expect("session_down", session_id=name)
        self.assertEqual(len(self.snapshot_of(browser, name)["messages"]), 3)


class Errors(RelayCase):
    """Cursors and sessions that do not exist."""

    def ask(self, **fields):
        browser, _, name = self.stage()
        fields.setdefault("session_id", name)
        browser.send("history_request", request_id="ask",
                     **{k: v for k, v in fields.items() if v != "absent"})
        error = self.assertRefused(browser)
        self.assertAlive(browser)
        return error["code"]

    def test_a_cursor_from_the_future_is_invalid(self):
        self.assertEqual(self.ask(after_sequence=10_000), "resume_cursor_invalid")

    def test_a_negative_cursor_is_invalid(self):
        self.assertIn(self.ask(after_sequence=-1), ("resume_cursor_invalid", "invalid_message"))

    def test_a_cursor_that_is_no_number_is_invalid(self):
        self.assertIn(self.ask(after_sequence="7"), ("resume_cursor_invalid", "invalid_message"))

    def test_a_session_nobody_knows_has_no_history(self):
        self.assertIn(self.ask(session_id="sess_ghost"),
                      ("session_unknown", "history_not_available"))

    def test_a_session_id_is_needed(self):
        self.assertEqual(self.ask(session_id="absent"), "invalid_message")


class Resume(RelayCase):
    """`reconnect behavior can be implemented from connection_hello ... and replay`."""

    def resume(self, *cursors):
        return self.browser(resume={"sessions": [
            {"session_id": name, "last_sequence": last} for name, last in cursors]})

    def test_a_resuming_browser_is_given_what_it_missed(self):
        browser, proxy, name = self.stage()
        seen = self.say(browser, proxy, name, "seen")["sequence"]
        browser.cut()
        witness = self.browser("two")
        missed = self.say(witness, proxy, name, "missed")
        back = self.resume((name, seen))
        delta = back.expect("history_delta", session_id=name)
        self.assertEqual(delta["from_sequence"], seen)
        self.assertEqual([e["event_id"] for e in delta["events"]], [missed["event_id"]])
        self.assertEqual(delta["last_sequence"], missed["sequence"])

    def test_the_ack_and_the_snapshot_come_before_the_replay(self):
        browser, proxy, name = self.stage()
        self.say(browser, proxy, name, "one")
        back = self.resume((name, 0))
        back.expect("history_delta", session_id=name)
        types = [frame["type"] for frame in back.log]
        self.assertEqual(types[:2], ["connection_ack", "session_snapshot"])

    def test_live_events_follow_the_replay_without_a_gap_or_a_repetition(self):
        browser, proxy, name = self.stage()
        last = self.say(browser, proxy, name, "one")["sequence"]
        browser.close()
        back = self.resume((name, last))
        delta = back.expect("history_delta", session_id=name)
        live = self.say(back, proxy, name, "two")
        numbers = [e["sequence"] for e in delta["events"]] + [live["sequence"]]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertGreater(live["sequence"], delta["last_sequence"])

    def test_nothing_is_replayed_for_sessions_that_were_not_named(self):
        browser, proxy, name = self.stage()
        self.say(browser, proxy, name, "one")
        plain = self.browser()
        plain.drain()
        self.assertFalse(plain.seen("history_delta") + plain.seen("history_snapshot"))

    def test_a_cursor_from_the_future_does_not_cost_the_connection(self):
        """An error with resume_cursor_invalid or a whole snapshot are both sound."""
        browser, proxy, name = self.stage()
        self.say(browser, proxy, name, "one")
        back = self.resume((name, 9_999))
        answer = back.expect(("connection_error", "history_snapshot"))
        if answer["type"] == "connection_error":
            self.assertEqual(answer["code"], "resume_cursor_invalid")
        else:
            self.assertEqual(len(answer["messages"]), 1)
        self.assertAlive(back)

    def test_an_unknown_session_in_the_resume_does_not_spoil_the_others(self):
        browser, proxy, name = self.stage()
        self.say(browser, proxy, name, "one")
        back = self.resume(("sess_ghost", 3), (name, 0))
        back.expect("history_delta", session_id=name)
        self.assertAlive(back)


if __name__ == "__main__":
    unittest.main()
