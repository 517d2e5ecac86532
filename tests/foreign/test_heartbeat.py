"""Heartbeat And Health of the text."""

import time
import unittest

from base import RelayCase, fresh, session


class Answers(RelayCase):
    """heartbeat and heartbeat_ack."""

    def test_a_heartbeat_is_answered_with_its_request_id_and_the_connection_id(self):
        for peer in (self.browser(), self.proxy()):
            peer.send("heartbeat", request_id="hb_123", client_ts="2026-03-19T10:15:30.000Z",
                      connection_id=peer.ack["connection_id"])
            ack = peer.expect("heartbeat_ack")
            self.assertEqual(ack["request_id"], "hb_123")
            self.assertEqual(ack["connection_id"], peer.ack["connection_id"])
            self.assertUtc(ack["server_ts"])

    def test_the_ack_goes_only_to_the_one_who_asked(self):
        asking, other = self.browser(), self.browser("two")
        asking.send("heartbeat", request_id="mine")
        asking.expect("heartbeat_ack", request_id="mine")
        other.drain()
        self.assertFalse(other.seen("heartbeat_ack", request_id="mine"))

    def test_many_heartbeats_are_answered_in_their_order(self):
        browser = self.browser()
        for number in range(50):
            browser.send("heartbeat", request_id=f"hb_{number}")
        browser.expect("heartbeat_ack", request_id="hb_49")
        self.assertEqual([ack["request_id"] for ack in browser.seen("heartbeat_ack")],
                         [f"hb_{number}" for number in range(50)])


class Stale(RelayCase):
    """`mark a connection stale if no heartbeat or other message arrives`."""

    FLAGS = {"heartbeat_interval_ms": 300, "heartbeat_timeout_ms": 1000}

    def talk_for(self, peer, seconds, say):
        """Say something now and then; time itself is what is tested here."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            say(peer)
            time.sleep(0.2)

    def test_a_silent_browser_is_let_go_after_the_timeout(self):
        browser, start = self.browser(), time.monotonic()
        browser.expect_close(timeout=6)
        self.assertGreater(time.monotonic() - start, 0.8)

    def test_a_socket_that_never_says_hello_is_let_go(self):
        self.socket("browser").expect_close(timeout=6)

    def test_the_sessions_of_a_silent_proxy_go_down(self):
        browser, proxy, name = self.browser(), self.proxy(), fresh("sess")
        proxy.send("proxy_session_snapshot", sessions=[session(name)])
        # The watcher has to keep talking meanwhile, or it would be stale itself.
        end = time.monotonic() + 6
        while not browser.seen("session_down", session_id=name):
            self.assertLess(time.monotonic(), end, "the session never went down")
            browser.drain()
            time.sleep(0.1)
        proxy.expect_close(timeout=6)

    def test_heartbeats_keep_a_connection(self):
        browser = self.browser()
        self.talk_for(browser, 2.2, lambda peer: peer.drain())

    def test_any_other_message_keeps_a_connection_too(self):
        browser = self.browser()

        def ask(peer):
            peer.send("history_request", session_id="sess_nobody")
            peer.expect(("connection_error", "history_snapshot"))

        self.talk_for(browser, 2.2, ask)
        self.assertAlive(browser)


class Health(RelayCase):
    """`session health must be derived separately from socket liveness`."""

    def test_a_living_socket_does_not_make_a_sick_session_healthy(self):
        browser, proxy, name = self.stage()
        proxy.send("proxy_status", session_id=name, status="scraping_failed")
        browser.expect("session_status", session_id=name, status="scraping_failed")
        proxy.drain()
        listed = {s["session_id"]: s for s in
                  self.browser("two").expect("session_snapshot")["sessions"]}
        self.assertEqual(listed[name]["status"], "scraping_failed")


if __name__ == "__main__":
    unittest.main()
