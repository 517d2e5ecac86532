"""`The relay must treat client_message_id as idempotent`, and final is final."""

import unittest

from base import CREATED, RelayCase, fresh, session


class Retries(RelayCase):
    """`retries from the browser must reuse the same client_message_id`."""

    def forwarded(self, browser, proxy, name, mine):
        """How often the proxy was given this message, with a later one as barrier."""
        barrier = self.post(browser, name, "barrier")
        browser.expect("message_accepted", client_message_id=barrier)
        for waiting in proxy.seen("send_message"):
            proxy.send("proxy_send_result", session_id=name, result="delivered",
                       client_message_id=waiting["client_message_id"])
        proxy.expect("send_message", client_message_id=barrier)
        return len(proxy.seen("send_message", client_message_id=mine))

    def written(self, browser, name, mine):
        """How often the message stands in the transcript."""
        return [m for m in self.snapshot_of(browser, name)["messages"]
                if mine in (m.get("client_message_id"), m["message_id"])]

    def test_a_retry_with_the_same_id_is_not_forwarded_twice(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name)
        browser.expect("message_accepted", client_message_id=mine)
        self.post(browser, name, client_message_id=mine)
        self.assertEqual(self.forwarded(browser, proxy, name, mine), 1)

    def test_a_retry_is_answered_so_that_the_browser_learns_it_arrived(self):
        browser, _, name = self.stage()
        mine = self.post(browser, name)
        browser.expect("message_accepted", client_message_id=mine)
        self.post(browser, name, client_message_id=mine)
        again = browser.expect("message_accepted", client_message_id=mine)
        self.assertEqual(again["status"], "accepted")

    def test_a_retry_of_a_delivered_message_says_delivered_and_sends_nothing(self):
        browser, proxy, name = self.stage()
        mine = self.delivered(browser, proxy, name)
        self.post(browser, name, client_message_id=mine)
        browser.expect("message_delivered", client_message_id=mine)
        self.assertEqual(self.forwarded(browser, proxy, name, mine), 1)

    def test_a_retry_leaves_one_message_in_the_transcript(self):
        browser, proxy, name = self.stage()
        mine = self.delivered(browser, proxy, name, "once")
        for _ in range(3):
            self.post(browser, name, "once", client_message_id=mine)
        browser.drain()
        self.assertLessEqual(len(self.written(browser, name, mine)), 1)

    def test_a_retry_after_a_reconnect_is_the_same_message(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name)
        browser.expect("message_accepted", client_message_id=mine)
        browser.cut()
        again = self.browser()
        self.post(again, name, client_message_id=mine)
        again.expect("message_accepted", client_message_id=mine)
        self.assertEqual(self.forwarded(again, proxy, name, mine), 1)

    def test_a_retry_with_another_text_does_not_send_the_other_text(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name, "first words")
        browser.expect("message_accepted", client_message_id=mine)
        self.post(browser, name, "other words", client_message_id=mine)
        self.assertEqual(self.forwarded(browser, proxy, name, mine), 1)
        got = proxy.seen("send_message", client_message_id=mine)[0]
        self.assertEqual(got["content"], "first words")

    def test_two_sockets_that_race_with_one_id_send_one_message(self):
        browser, proxy, name = self.stage()
        second, mine = self.browser(), fresh("msg")
        self.post(browser, name, client_message_id=mine)
        self.post(second, name, client_message_id=mine)
        browser.expect("message_accepted", client_message_id=mine)
        second.expect("message_accepted", client_message_id=mine)
        self.assertEqual(self.forwarded(browser, proxy, name, mine), 1)

    def test_a_retry_is_not_a_new_event_in_the_history(self):
        browser, proxy, name = self.stage()
        mine = self.delivered(browser, proxy, name)
        self.post(browser, name, client_message_id=mine)
        browser.drain()
        browser.send("history_request", session_id=name, after_sequence=0)
        events = browser.expect("history_delta", session_id=name)["events"]
        for type in ("message_accepted", "message_delivered"):
            self.assertEqual(
                len([e for e in events if e["type"] == type
                     and e["client_message_id"] == mine]), 1)


class Final(RelayCase):
    """`Allowed terminal states`: a message ends once."""

    def start(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name)
        browser.expect("message_accepted", client_message_id=mine)
        proxy.expect("send_message", client_message_id=mine)
        return browser, proxy, name, mine

    def result(self, proxy, name, mine, result):
        fields = {"delivered_at": CREATED}
        if result == "failed":
            fields = {"failed_at": CREATED, "error": {"code": "selector_failure", "message": "x"}}
        proxy.send("proxy_send_result", session_id=name, client_message_id=mine,
                   result=result, **fields)

    def test_delivered_twice_is_one_event(self):
        browser, proxy, name, mine = self.start()
        self.result(proxy, name, mine, "delivered")
        self.result(proxy, name, mine, "delivered")
        proxy.drain(), browser.drain()
        self.assertEqual(len(browser.seen("message_delivered", client_message_id=mine)), 1)

    def test_failed_twice_is_one_event(self):
        browser, proxy, name, mine = self.start()
        self.result(proxy, name, mine, "failed")
        self.result(proxy, name, mine, "failed")
        proxy.drain(), browser.drain()
        self.assertEqual(len(browser.seen("message_failed", client_message_id=mine)), 1)

    def test_a_delivered_message_cannot_fail_later(self):
        browser, proxy, name, mine = self.start()
        self.result(proxy, name, mine, "delivered")
        self.result(proxy, name, mine, "failed")
        proxy.drain(), browser.drain()
        self.assertTrue(browser.seen("message_delivered", client_message_id=mine))
        self.assertFalse(browser.seen("message_failed", client_message_id=mine))

    def test_no_retry_brings_a_delivered_message_back_to_accepted(self):
        browser, proxy, name, mine = self.start()
        self.result(proxy, name, mine, "delivered")
        browser.expect("message_delivered", client_message_id=mine)
        self.post(browser, name, client_message_id=mine)
        browser.drain()
        own = [f for f in browser.log if f.get("client_message_id") == mine]
        self.assertEqual(own[-1]["type"], "message_delivered")


class OnePerSession(RelayCase):
    """Ids are made by browsers; other sessions and machines are not affected."""

    def test_two_messages_with_two_ids_and_the_same_text_are_two_messages(self):
        browser, proxy, name = self.stage()
        first = self.delivered(browser, proxy, name, "again")
        second = self.delivered(browser, proxy, name, "again")
        self.assertNotEqual(first, second)
        self.assertEqual(len(proxy.seen("send_message")), 2)

    def test_two_sessions_keep_their_messages_apart(self):
        browser, proxy, one = self.stage()
        two = fresh("sess")
        proxy.send("proxy_session_snapshot", sessions=[session(one), session(two)])
        browser.expect("session_up", where=lambda f: f["session"]["session_id"] == two)
        mine = self.delivered(browser, proxy, one, "for one")
        history = self.snapshot_of(browser, two)["messages"]
        self.assertFalse([m for m in history if m["message_id"] == mine])


if __name__ == "__main__":
    unittest.main()
