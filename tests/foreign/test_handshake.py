"""Protocol Version, Connection Roles and Connection Lifecycle of the text."""

import unittest

from base import RelayCase
from wire import Refused


class Versions(RelayCase):
    """`If versions are incompatible, the receiver must reply with an error and close`."""

    def refuse(self, role, version):
        peer = self.socket(role)
        frame = {"type": "connection_hello", "peer_role": role, "client_name": "x"}
        if version is not None:
            frame["protocol_version"] = version
        peer.send_raw(frame)
        error = self.assertRefused(peer)
        self.assertFalse(peer.seen("connection_ack"))
        peer.expect_close()
        return error

    def test_a_browser_of_version_2_is_told_why_and_closed(self):
        error = self.refuse("browser", 2)
        self.assertEqual(error["code"], "protocol_version_unsupported")

    def test_a_proxy_of_version_2_is_told_why_and_closed(self):
        error = self.refuse("proxy", 2)
        self.assertEqual(error["code"], "protocol_version_unsupported")

    def test_version_0_is_as_unsupported_as_version_2(self):
        error = self.refuse("browser", 0)
        self.assertEqual(error["code"], "protocol_version_unsupported")

    def test_a_browser_that_declares_no_version_is_told_so_and_closed(self):
        self.refuse("browser", None)

    def test_a_proxy_that_declares_no_version_is_told_so_and_closed(self):
        self.refuse("proxy", None)

    def test_the_string_1_is_not_the_version_1(self):
        self.refuse("browser", "1")

    def test_a_version_that_changes_after_the_handshake_is_an_error_and_closes(self):
        browser = self.browser()
        browser.send_raw({"type": "heartbeat", "protocol_version": 2, "request_id": "h"})
        error = self.assertRefused(browser)
        self.assertEqual(error["code"], "protocol_version_unsupported")
        browser.expect_close()

    def test_the_version_is_required_on_every_message_not_only_on_the_first(self):
        browser = self.browser()
        browser.send_raw({"type": "heartbeat", "request_id": "without"})
        self.assertRefused(browser)
        self.assertFalse(browser.seen("heartbeat_ack", request_id="without"))


class Hello(RelayCase):
    """connection_hello and its required fields."""

    def hello_without(self, role, missing):
        peer = self.socket(role)
        frame = {"type": "connection_hello", "protocol_version": 1,
                 "peer_role": role, "client_name": "x"}
        del frame[missing]
        peer.send_raw(frame)
        self.assertRefused(peer)
        self.assertFalse(peer.seen("connection_ack"))

    def test_a_browser_must_say_its_role(self):
        self.hello_without("browser", "peer_role")

    def test_a_browser_must_say_its_client_name(self):
        self.hello_without("browser", "client_name")

    def test_a_proxy_must_say_its_role(self):
        self.hello_without("proxy", "peer_role")

    def test_a_proxy_must_say_its_client_name(self):
        self.hello_without("proxy", "client_name")

    def test_a_role_that_is_neither_browser_nor_proxy_is_refused(self):
        peer = self.socket("browser")
        peer.send("connection_hello", peer_role="relay", client_name="x")
        self.assertRefused(peer)
        self.assertFalse(peer.seen("connection_ack"))

    def test_the_role_must_fit_the_door(self):
        for role, other in (("browser", "proxy"), ("proxy", "browser")):
            with self.subTest(door=role):
                peer = self.socket(role)
                peer.send("connection_hello", peer_role=other, client_name="x")
                self.assertRefused(peer)
                self.assertFalse(peer.seen("connection_ack"))

    def test_client_version_machine_label_and_resume_may_be_left_out(self):
        for role in ("browser", "proxy"):
            with self.subTest(role=role):
                peer = self.socket(role)
                peer.send("connection_hello", peer_role=role, client_name="x")
                peer.expect("connection_ack")

    def test_the_example_hello_of_the_text_is_welcome_word_for_word(self):
        browser, proxy = self.socket("browser"), self.socket("proxy")
        browser.send_raw({
            "type": "connection_hello", "protocol_version": 1, "peer_role": "browser",
            "client_name": "webui", "client_version": "dev",
            "resume": {"sessions": [{"session_id": "sess_123", "last_sequence": 42}]},
        })
        browser.expect("connection_ack")
        proxy.send_raw({
            "type": "connection_hello", "protocol_version": 1, "peer_role": "proxy",
            "client_name": "agent-proxy", "client_version": "dev",
            "machine_label": "Robert-Windows",
        })
        proxy.expect("connection_ack")

    def test_nothing_else_is_answered_before_the_hello(self):
        peer = self.socket("browser")
        peer.send("history_request", session_id="sess_123")
        error = self.assertRefused(peer)
        self.assertNotEqual(error["code"], "session_unknown", "it was carried out")

    def test_a_proxy_that_skips_the_hello_registers_nothing(self):
        watcher, rude = self.browser(), self.socket("proxy", "rude")
        rude.send("proxy_session_snapshot",
                  sessions=[{"session_id": "sess_rude", "agent_type": "codex",
                             "status": "healthy"}])
        self.assertRefused(rude)
        watcher.drain()
        self.assertFalse(watcher.seen("session_up"))


class Ack(RelayCase):
    """connection_ack."""

    FLAGS = {"heartbeat_interval_ms": 7000, "heartbeat_timeout_ms": 21000}

    def test_the_ack_has_every_field_of_the_text(self):
        for peer in (self.browser(), self.proxy()):
            self.assertHas(peer.ack, "connection_id", "server_ts",
                           "heartbeat_interval_ms", "heartbeat_timeout_ms")
            self.assertIsInstance(peer.ack["connection_id"], str)
            self.assertUtc(peer.ack["server_ts"])

    def test_the_ack_tells_the_configured_heartbeat(self):
        ack = self.browser().ack
        self.assertEqual(ack["heartbeat_interval_ms"], 7000)
        self.assertEqual(ack["heartbeat_timeout_ms"], 21000)

    def test_the_ack_is_the_first_frame(self):
        for peer in (self.browser(), self.proxy()):
            self.assertEqual(peer.log[0]["type"], "connection_ack")

    def test_every_connection_has_an_id_of_its_own(self):
        peers = [self.browser(), self.browser(), self.browser("two"), self.proxy()]
        self.assertEqual(len({peer.ack["connection_id"] for peer in peers}), 4)

    def test_a_reconnect_is_a_new_connection_id(self):
        first = self.browser()
        first.close()
        self.assertNotEqual(first.ack["connection_id"], self.browser().ack["connection_id"])


class DefaultHeartbeat(RelayCase):
    """The numbers of the example are the defaults."""

    def test_without_settings_the_heartbeat_is_that_of_the_text(self):
        ack = self.browser().ack
        self.assertEqual(ack["heartbeat_interval_ms"], 10000)
        self.assertEqual(ack["heartbeat_timeout_ms"], 30000)


class Strangers(RelayCase):
    """`reject ... unauthenticated browser sockets`: two sound ways to do so.

    Either there are no unauthenticated sockets because the upgrade is refused,
    or the socket opens and each command is refused in the words of the text.
    """

    COMMANDS = {
        "permission_response": {"prompt_id": "p", "choice_id": "yes"},
        "agent_interrupt": {},
        "agent_set_model": {"model_id": "m"},
        "agent_config_request": {},
        "close_session": {},
    }

    def attempt(self, role, token):
        """Open with a bad token; None means that the door stayed shut."""
        try:
            peer = self.relay.open(role, token)
        except Refused as refused:
            self.assertIn(refused.status, (401, 403))
            return None
        self.peers.append(peer)
        peer.send("connection_hello", peer_role=role, client_name="stranger")
        return peer

    def check_browser(self, token):
        peer = self.attempt("browser", token)
        if peer is None:
            return
        for command, fields in self.COMMANDS.items():
            peer.send(command, request_id=command, session_id="s", **fields)
            self.assertEqual(peer.expect("connection_error")["code"], "unauthorized")
        peer.send("launch_session", request_id="launch", agent_type="claude")
        failed = peer.expect("session_launch_failed")
        self.assertEqual(failed["error_code"], "unauthorized")

    def test_a_browser_without_a_token_can_do_nothing(self):
        self.check_browser(None)

    def test_a_browser_with_a_made_up_token_can_do_nothing(self):
        self.check_browser("made-up")

    def test_a_proxy_token_does_not_open_the_browser_door(self):
        self.check_browser(self.token("proxy", "one"))

    def test_a_browser_token_does_not_open_the_proxy_door(self):
        peer = self.attempt("proxy", self.token("browser", "one"))
        if peer is not None:
            peer.expect("connection_error")
            self.assertFalse(peer.seen("connection_ack"))

    def test_a_proxy_without_a_token_stays_outside(self):
        peer = self.attempt("proxy", None)
        if peer is not None:
            peer.expect("connection_error")
            self.assertFalse(peer.seen("connection_ack"))


if __name__ == "__main__":
    unittest.main()
