"""close_session and session_closed of the text."""

import unittest

from base import RelayCase, fresh, session


class Close(RelayCase):
    """A browser closes a session."""

    def ask(self, browser, name):
        request = fresh("close")
        browser.send("close_session", request_id=request, session_id=name)
        return request

    def closed(self, browser, proxy, name):
        """Close a session all the way."""
        request = self.ask(browser, name)
        proxy.expect("close_session", request_id=request)
        proxy.send("session_closed", request_id=request, session_id=name,
                   reason="user_requested")
        return request, browser.expect("session_closed", session_id=name)

    def test_the_command_goes_to_the_machine_that_owns_the_session(self):
        browser, owner, name = self.stage()
        other = self.proxy("two")
        self.register(other, browser, session(fresh("sess")))
        request = self.ask(browser, name)
        got = owner.expect("close_session")
        self.assertEqual((got["request_id"], got["session_id"]), (request, name))
        other.drain()
        self.assertFalse(other.seen("close_session"))

    def test_an_unknown_session_is_a_connection_error(self):
        browser, proxy, _ = self.stage()
        request = self.ask(browser, "sess_ghost")
        error = self.assertRefused(browser)
        self.assertEqual(error["code"], "session_unknown")
        self.assertEqual(error.get("request_id"), request)
        proxy.drain()
        self.assertFalse(proxy.seen("close_session"))
        self.assertAlive(browser)

    def test_a_request_id_is_required(self):
        browser, proxy, name = self.stage()
        browser.send("close_session", session_id=name)
        self.assertRefused(browser)
        proxy.drain()
        self.assertFalse(proxy.seen("close_session"))

    def test_a_session_id_is_required(self):
        browser = self.browser()
        browser.send("close_session", request_id="close_1")
        self.assertRefused(browser)

    def test_nothing_is_closed_before_the_proxy_says_so(self):
        browser, proxy, name = self.stage()
        request = self.ask(browser, name)
        proxy.expect("close_session", request_id=request)
        browser.drain()
        self.assertFalse(browser.seen("session_closed"))

    def test_every_browser_is_told_that_the_session_is_closed(self):
        browser, proxy, name = self.stage()
        second, third = self.browser("two"), self.browser("one")
        request, event = self.closed(browser, proxy, name)
        for frame in (event, second.expect("session_closed", session_id=name),
                      third.expect("session_closed", session_id=name)):
            self.assertEqual(frame.get("request_id"), request)
            self.assertEqual(frame.get("reason"), "user_requested")
            self.assertUtc(frame["server_ts"])

    def test_a_closed_session_leaves_the_registry(self):
        browser, proxy, name = self.stage()
        self.closed(browser, proxy, name)
        listed = self.browser("two").expect("session_snapshot")["sessions"]
        self.assertNotIn(name, [one["session_id"] for one in listed])
        self.ask(browser, name)
        self.assertEqual(self.assertRefused(browser)["code"], "session_unknown")

    def test_a_closed_session_cannot_be_written_to(self):
        browser, proxy, name = self.stage()
        self.closed(browser, proxy, name)
        self.post(browser, name)
        answer = browser.expect(("message_failed", "connection_error"))
        code = answer.get("code") or answer["error"]["code"]
        self.assertIn(code, ("session_unknown", "session_not_connected"))

    def test_the_history_of_a_closed_session_remains(self):
        browser, proxy, name = self.stage()
        self.say(browser, proxy, name, "remember me")
        self.closed(browser, proxy, name)
        messages = self.snapshot_of(browser, name)["messages"]
        self.assertEqual([m["content"] for m in messages], ["remember me"])

    def test_a_proxy_may_close_a_session_on_its_own(self):
        browser, proxy, name = self.stage()
        second = self.browser("two")
        proxy.send("session_closed", session_id=name, reason="target_closed")
        for peer in (browser, second):
            event = peer.expect("session_closed", session_id=name)
            self.assertEqual(event.get("reason"), "target_closed")
            self.assertIsNone(event.get("request_id"))

    def test_every_reason_of_the_text_comes_through_and_none_is_needed(self):
        browser, proxy = self.browser(), self.proxy()
        for reason in ("user_requested", "target_closed", "proxy_shutdown", None):
            with self.subTest(reason=reason):
                name = fresh("sess")
                self.register(proxy, browser, session(name))
                proxy.send("session_closed", session_id=name,
                           **({"reason": reason} if reason else {}))
                event = browser.expect("session_closed", session_id=name)
                if reason:
                    self.assertEqual(event["reason"], reason)

    def test_a_session_id_is_required_of_the_proxy_too(self):
        browser, proxy, _ = self.stage()
        proxy.send("session_closed", reason="target_closed")
        self.assertRefused(proxy)
        browser.drain()
        self.assertFalse(browser.seen("session_closed"))

    def test_another_machine_cannot_close_the_session(self):
        browser, _, name = self.stage()
        other = self.proxy("two")
        other.send("session_closed", session_id=name, reason="target_closed")
        other.drain(), browser.drain()
        self.assertFalse(browser.seen("session_closed"))

    def test_a_closed_session_that_is_reported_again_comes_up_again(self):
        browser, proxy, name = self.stage()
        self.closed(browser, proxy, name)
        self.register(proxy, browser, session(name))
        ups = [f for f in browser.seen("session_up") if f["session"]["session_id"] == name]
        self.assertLess(ups[0]["sequence"], ups[-1]["sequence"])


class ProxyAway(RelayCase):
    """The machine of the session is not connected."""

    def test_a_close_for_a_machine_that_is_away_is_answered_with_an_error(self):
        browser, proxy, name = self.stage()
        proxy.close()
        browser.expect("session_down", session_id=name)
        browser.send("close_session", request_id="close_away", session_id=name)
        answer = browser.expect(
            ("connection_error", "session_launch_failed", "agent_control_result",
             "session_closed"))
        self.assertEqual(answer.get("request_id"), "close_away")


if __name__ == "__main__":
    unittest.main()
