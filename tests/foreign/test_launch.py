"""Session Launch Lifecycle of the text."""

import unittest

from base import RelayCase, fresh, moment, session

HINTS = {"workspace_path": "C:\\Users\\Robert\\Documents\\Remote Agent Chat",
         "window_title": "Remote Agent Chat"}


class LaunchCase(RelayCase):
    """Short cuts for launches."""

    def launch(self, browser, **fields):
        request = fresh("launch")
        browser.send("launch_session", request_id=request,
                     **{"agent_type": "claude", **fields})
        return request

    def launching(self, **fields):
        """A launch that the proxy has been given and has not answered."""
        browser, proxy = self.browser(), self.proxy()
        request = self.launch(browser, **fields)
        proxy.expect("launch_session", request_id=request)
        browser.expect("session_launching", request_id=request)
        return browser, proxy, request

    def pending(self, name="one"):
        """The pending launches that a browser is told when it connects."""
        ack = self.browser(name).ack
        return {p["request_id"]: p for p in ack.get("pending_launches", [])}


class Launch(LaunchCase):
    """From pending to launched or failed."""

    def test_the_command_is_forwarded_as_it_came(self):
        browser, proxy = self.browser(), self.proxy()
        request = self.launch(browser, **HINTS)
        got = proxy.expect("launch_session")
        # server_ts is an optional envelope field that relays add; all else stays.
        got.pop("server_ts", None)
        self.assertEqual(got, {"type": "launch_session", "protocol_version": 1,
                               "request_id": request, "agent_type": "claude", **HINTS})

    def test_every_agent_type_of_the_text_can_be_launched(self):
        browser, proxy = self.browser(), self.proxy()
        for kind in ("claude", "codex", "gemini"):
            with self.subTest(agent_type=kind):
                request = self.launch(browser, agent_type=kind)
                self.assertEqual(proxy.expect("launch_session", request_id=request)["agent_type"],
                                 kind)
                launching = browser.expect("session_launching", request_id=request)
                self.assertEqual(launching["agent_type"], kind)

    def test_session_launching_has_every_field_of_the_text(self):
        browser, _ = self.browser(), self.proxy()
        request = self.launch(browser)
        event = browser.expect("session_launching", request_id=request)
        self.assertEqual(event["agent_type"], "claude")
        self.assertUtc(event["server_ts"])

    def test_session_launching_goes_only_to_the_one_who_asked(self):
        other = self.browser("two")
        self.launching()
        other.drain()
        self.assertFalse(other.seen("session_launching"))

    def test_the_ack_reaches_the_one_who_asked_and_only_him(self):
        other = self.browser("two")
        browser, proxy, request = self.launching()
        name = fresh("sess")
        proxy.send("session_launch_ack", request_id=request, session_id=name,
                   agent_type="claude")
        ack = browser.expect("session_launch_ack", request_id=request)
        self.assertEqual((ack["session_id"], ack["agent_type"]), (name, "claude"))
        self.assertUtc(ack["server_ts"])
        other.drain()
        self.assertFalse(other.seen("session_launch_ack"))

    def test_every_browser_sees_the_launched_session(self):
        other = self.browser("two")
        other.expect("session_snapshot")
        browser, proxy, request = self.launching()
        name = fresh("sess")
        proxy.send("session_launch_ack", request_id=request, session_id=name,
                   agent_type="claude")

        def shows(frame):
            sessions = frame.get("sessions", []) + [frame.get("session", {})]
            return name in [one.get("session_id") for one in sessions]

        for peer in (browser, other):
            peer.expect(("session_up", "session_snapshot"), where=shows)

    def test_a_session_that_was_reported_before_the_ack_is_not_announced_as_two(self):
        browser, proxy, request = self.launching()
        name = fresh("sess")
        self.register(proxy, browser, session(name, agent_type="claude"))
        proxy.send("session_launch_ack", request_id=request, session_id=name,
                   agent_type="claude")
        browser.expect("session_launch_ack", request_id=request)
        listed = self.browser("two").expect("session_snapshot")["sessions"]
        self.assertEqual([s["session_id"] for s in listed].count(name), 1)

    def test_the_launched_session_can_be_written_to(self):
        browser, proxy, request = self.launching()
        name = fresh("sess")
        proxy.send("session_launch_ack", request_id=request, session_id=name,
                   agent_type="claude")
        browser.expect("session_launch_ack", request_id=request)
        self.delivered(browser, proxy, name)

    def test_an_ack_ends_the_pending_request(self):
        browser, proxy, request = self.launching()
        self.assertIn(request, self.pending())
        proxy.send("session_launch_ack", request_id=request, session_id=fresh("sess"),
                   agent_type="claude")
        browser.expect("session_launch_ack", request_id=request)
        self.assertNotIn(request, self.pending())

    def test_a_failure_is_passed_on_and_ends_the_pending_request(self):
        other = self.browser("two")
        browser, proxy, request = self.launching()
        proxy.send("session_launch_failed", request_id=request, agent_type="claude",
                   reason="Antigravity is not running", error_code="agent_not_open")
        failed = browser.expect("session_launch_failed", request_id=request)
        self.assertEqual(failed["error_code"], "agent_not_open")
        self.assertEqual(failed["reason"], "Antigravity is not running")
        self.assertEqual(failed["agent_type"], "claude")
        self.assertUtc(failed["server_ts"])
        self.assertNotIn(request, self.pending())
        other.drain()
        self.assertFalse(other.seen("session_launch_failed"))

    def test_a_request_ends_only_once(self):
        browser, proxy, request = self.launching()
        proxy.send("session_launch_failed", request_id=request, agent_type="claude",
                   reason="no", error_code="agent_not_open")
        proxy.send("session_launch_failed", request_id=request, agent_type="claude",
                   reason="no", error_code="agent_not_open")
        proxy.drain(), browser.drain()
        self.assertEqual(len(browser.seen("session_launch_failed", request_id=request)), 1)

    def test_an_ack_without_a_session_id_is_no_ack(self):
        browser, proxy, request = self.launching()
        proxy.send("session_launch_ack", request_id=request, agent_type="claude")
        self.assertRefused(proxy)
        browser.drain()
        self.assertFalse(browser.seen("session_launch_ack"))

    def test_an_answer_to_a_request_nobody_made_is_told_to_nobody(self):
        browser, proxy = self.browser(), self.proxy()
        proxy.send("session_launch_failed", request_id="launch_ghost", agent_type="claude",
                   reason="x", error_code="agent_not_open")
        proxy.drain(), browser.drain()
        self.assertFalse(browser.seen("session_launch_failed"))

    def test_a_launch_starts_at_most_one_session_with_two_machines(self):
        browser, one, two = self.browser(), self.proxy("one"), self.proxy("two")
        self.launch(browser)
        browser.expect(("session_launching", "session_launch_failed"))
        one.drain(), two.drain()
        got = one.seen("launch_session") + two.seen("launch_session")
        self.assertLessEqual(len(got), 1)


class LaunchFields(LaunchCase):
    """The required fields of launch_session."""

    def refused(self, **fields):
        browser, proxy = self.browser(), self.proxy()
        browser.send("launch_session", **fields)
        answer = browser.expect(("connection_error", "session_launch_failed"))
        proxy.drain()
        self.assertFalse(proxy.seen("launch_session"))
        self.assertFalse(browser.seen("session_launching"))
        return answer

    def test_a_request_id_is_required(self):
        self.refused(agent_type="claude")

    def test_an_agent_type_is_required(self):
        self.assertEqual(self.refused(request_id="launch_1").get("request_id"), "launch_1")

    def test_an_agent_type_that_the_text_does_not_list_ends_in_a_failure(self):
        """By the relay at once, or by the proxy, for which launch_not_supported exists."""
        browser, proxy = self.browser(), self.proxy()
        request = self.launch(browser, agent_type="toaster")
        answer = browser.expect(
            ("session_launching", "connection_error", "session_launch_failed"))
        if answer["type"] == "session_launching":
            proxy.send("session_launch_failed", request_id=request, agent_type="toaster",
                       reason="No such agent", error_code="launch_not_supported")
            answer = browser.expect("session_launch_failed")
        self.assertEqual(answer.get("request_id"), request)


class NoProxy(LaunchCase):
    """`emit session_launch_failed immediately` when there is no proxy."""

    def test_a_launch_without_a_proxy_fails_at_once_and_is_not_pending(self):
        browser = self.browser()
        request = self.launch(browser)
        failed = browser.expect("session_launch_failed", request_id=request)
        self.assertEqual(failed["error_code"], "no_proxy_connected")
        self.assertHas(failed, "reason", "server_ts")
        self.assertNotIn(request, self.pending())
        self.assertFalse(browser.seen("session_launching"))

    def test_a_proxy_that_has_left_does_not_count(self):
        watcher, proxy = self.browser(), self.proxy()
        name = fresh("sess")
        self.register(proxy, watcher, session(name))
        proxy.close()
        watcher.expect("session_down", session_id=name)
        request = self.launch(watcher)
        failed = watcher.expect("session_launch_failed", request_id=request)
        self.assertEqual(failed["error_code"], "no_proxy_connected")


class LaunchTimeout(LaunchCase):
    """The timeout window of a launch."""

    FLAGS = {"launch_timeout_ms": 600}

    def test_a_proxy_that_does_not_answer_ends_in_launch_timeout(self):
        browser, _, request = self.launching()
        failed = browser.expect("session_launch_failed", request_id=request)
        self.assertEqual(failed["error_code"], "launch_timeout")
        self.assertHas(failed, "reason", "server_ts", "agent_type")
        self.assertNotIn(request, self.pending())

    def test_the_timeout_at_is_the_configured_one(self):
        _, _, request = self.launching()
        pending = self.pending()[request]
        span = moment(pending["timeout_at"]) - moment(pending["launched_at"])
        self.assertAlmostEqual(span.total_seconds(), 0.6, delta=0.05)


class LaunchReconnect(LaunchCase):
    """A browser that goes away while its launch is under way."""

    def test_a_reconnecting_browser_is_told_its_pending_launches(self):
        browser, _, request = self.launching()
        browser.cut()
        pending = self.pending()[request]
        self.assertEqual(pending["agent_type"], "claude")
        self.assertUtc(pending["launched_at"]), self.assertUtc(pending["timeout_at"])
        span = moment(pending["timeout_at"]) - moment(pending["launched_at"])
        self.assertAlmostEqual(span.total_seconds(), 30, delta=0.05)

    def test_the_answer_reaches_the_browser_after_its_reconnect(self):
        browser, proxy, request = self.launching()
        browser.cut()
        back = self.browser()
        proxy.send("session_launch_ack", request_id=request, session_id=fresh("sess"),
                   agent_type="claude")
        back.expect("session_launch_ack", request_id=request)

    def test_an_ack_is_held_for_a_browser_that_went_away(self):
        browser, proxy, request = self.launching()
        browser.close()
        name = fresh("sess")
        proxy.send("session_launch_ack", request_id=request, session_id=name,
                   agent_type="claude")
        proxy.drain()
        ack = self.browser().expect("session_launch_ack", request_id=request)
        self.assertEqual(ack["session_id"], name)

    def test_a_held_ack_is_not_given_to_another_browser(self):
        browser, proxy, request = self.launching()
        browser.close()
        proxy.send("session_launch_ack", request_id=request, session_id=fresh("sess"),
                   agent_type="claude")
        proxy.drain()
        other = self.browser("two")
        other.drain()
        self.assertFalse(other.seen("session_launch_ack"))
        self.browser().expect("session_launch_ack", request_id=request)

    def test_another_browser_is_not_told_of_launches_it_did_not_ask_for(self):
        _, _, request = self.launching()
        self.assertNotIn(request, self.pending("two"))


if __name__ == "__main__":
    unittest.main()
