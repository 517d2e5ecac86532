"""Transport Rules and Envelope of the text, on top of RFC 6455."""

import json
import struct
import unittest

from base import CREATED, RelayCase, fresh, session
from wire import BINARY, CLOSE, CONTINUATION, PING, TEXT, Closed


class Frames(RelayCase):
    """What RFC 6455 promises to any client library."""

    def test_a_ping_is_answered_by_a_pong_with_the_same_bytes(self):
        browser = self.browser()
        browser.ws.send_frame(PING, b"are you there")
        browser.drain()
        self.assertEqual(browser.ws.pongs, [b"are you there"])

    def test_a_fragmented_frame_is_one_frame(self):
        browser = self.browser()
        text = json.dumps({"type": "heartbeat", "protocol_version": 1, "request_id": "cut"})
        browser.ws.send_text(text, pieces=7)
        browser.expect("heartbeat_ack", request_id="cut")

    def test_a_ping_may_come_between_two_fragments(self):
        browser = self.browser()
        text = json.dumps(
            {"type": "heartbeat", "protocol_version": 1, "request_id": "between"}).encode()
        browser.ws.send_frame(TEXT, text[:20], fin=False)
        browser.ws.send_frame(PING, b"mid")
        browser.ws.send_frame(CONTINUATION, text[20:])
        browser.expect("heartbeat_ack", request_id="between")
        self.assertEqual(browser.ws.pongs, [b"mid"])

    def test_a_character_may_be_cut_by_a_fragment(self):
        browser, proxy, name = self.stage()
        text = json.dumps({
            "type": "send_message", "protocol_version": 1, "session_id": name,
            "client_message_id": fresh("msg"), "content": "größer 🐟", "created_at": CREATED,
        }, ensure_ascii=False)
        browser.ws.send_text(text, pieces=len(text.encode()))
        self.assertEqual(proxy.expect("send_message")["content"], "größer 🐟")

    def test_a_close_is_answered_by_a_close(self):
        browser = self.browser()
        browser.ws.sent_close = True
        browser.ws.send_frame(CLOSE, struct.pack(">H", 1000) + b"bye")
        self.assertEqual(browser.expect_close(), 1000)

    def test_text_that_is_not_utf_8_closes_with_1007(self):
        browser = self.browser()
        browser.ws.send_frame(TEXT, b'{"type":"\xff\xfe"}')
        self.assertEqual(browser.expect_close(), 1007)

    def test_an_unmasked_frame_ends_the_connection(self):
        browser = self.browser()
        browser.ws.sock.sendall(b"\x81\x02{}")
        self.assertIn(browser.expect_close(), (1002, None))

    def test_a_binary_frame_is_not_a_protocol_frame(self):
        """Binary is not UTF-8 JSON: an error frame or a close, but no service."""
        browser = self.browser()
        frame = {"type": "heartbeat", "protocol_version": 1, "request_id": "binary"}
        browser.ws.send_frame(BINARY, json.dumps(frame).encode())
        try:
            browser.expect(("connection_error", "heartbeat_ack"))
        except AssertionError:
            self.assertIsInstance(browser.ws.closed, Closed)
        self.assertFalse(browser.seen("heartbeat_ack", request_id="binary"))

    def test_a_large_frame_comes_through_whole(self):
        browser, proxy, name = self.stage()
        content = "0123456789ä" * 20_000
        self.post(browser, name, content)
        self.assertEqual(proxy.expect("send_message")["content"], content)
        self.assertEqual(self.snapshot_of(browser, name)["messages"][0]["content"], content)


class Json(RelayCase):
    """`All protocol frames are UTF-8 JSON objects`, each with a `type`."""

    def refused(self, value):
        for peer in (self.browser(), self.proxy()):
            peer.send_raw(value)
            self.assertEqual(self.assertRefused(peer)["code"], "invalid_message")

    def test_text_that_is_not_json_is_an_error(self):
        self.refused("hello there")

    def test_half_an_object_is_an_error(self):
        self.refused('{"type": "heartbeat", ')

    def test_an_empty_frame_is_an_error(self):
        self.refused("")

    def test_an_array_is_not_an_object(self):
        self.refused([{"type": "heartbeat", "protocol_version": 1}])

    def test_a_string_is_not_an_object(self):
        self.refused('"heartbeat"')

    def test_null_is_not_an_object(self):
        self.refused("null")

    def test_a_frame_without_a_type_is_an_error(self):
        self.refused({"protocol_version": 1, "request_id": "x"})

    def test_a_type_that_is_not_a_string_is_an_error(self):
        self.refused({"type": 7, "protocol_version": 1})

    def test_null_as_a_type_is_an_error(self):
        self.refused({"type": None, "protocol_version": 1})

    def test_a_bad_frame_does_not_cost_the_connection(self):
        """The text asks for a close on a wrong version, not on a wrong frame."""
        browser = self.browser()
        browser.send_raw("{")
        self.assertRefused(browser)
        self.assertAlive(browser)


class Unknown(RelayCase):
    """Unknown types are errors, unknown fields are nothing."""

    def test_an_unknown_type_is_a_protocol_error(self):
        for peer in (self.browser(), self.proxy()):
            peer.send("make_coffee")
            self.assertRefused(peer)
            self.assertAlive(peer)

    def test_the_error_for_an_unknown_type_can_be_correlated(self):
        browser = self.browser()
        browser.send("make_coffee", request_id="coffee_1")
        self.assertEqual(self.assertRefused(browser).get("request_id"), "coffee_1")

    def test_the_names_of_the_old_implementation_are_unknown(self):
        browser = self.browser()
        for old in ("session_list", "send", "history", "message", "status"):
            with self.subTest(type=old):
                browser.send(old, session_id="s", content="x")
                self.assertRefused(browser)

    def test_an_error_from_a_peer_is_not_answered_by_an_error(self):
        """A client must report unknown types too; two such peers must not loop."""
        for peer in (self.browser(), self.proxy()):
            peer.send("connection_error", code="invalid_message", message="what is that?")
            peer.drain()
            self.assertFalse(peer.seen("connection_error"))

    def test_frames_of_the_other_role_have_no_effect(self):
        browser, proxy, name = self.stage()
        watcher = self.browser("two")
        browser.send("proxy_message", session_id=name,
                     message={"role": "assistant", "content": "forged", "created_at": CREATED})
        self.assertRefused(browser)
        browser.send("proxy_session_snapshot", sessions=[session(fresh("sess"))])
        self.assertRefused(browser)
        proxy.send("send_message", session_id=name, client_message_id=fresh("msg"),
                   content="forged", created_at=CREATED)
        self.assertRefused(proxy)
        watcher.drain()
        for type in ("message_event", "session_up", "message_accepted"):
            self.assertFalse(watcher.seen(type))

    def test_frames_only_the_relay_may_send_are_errors(self):
        browser = self.browser()
        for type in ("connection_ack", "session_snapshot", "message_accepted", "heartbeat_ack"):
            with self.subTest(type=type):
                browser.send(type, session_id="s", sessions=[])
                self.assertRefused(browser)

    def test_unknown_fields_are_ignored_everywhere(self):
        extra = {"x_future": {"deep": [1, None, "ä"]}, "x_null": None}
        browser = self.browser(**extra, resume={"sessions": [], "x_more": 1})
        proxy, name = self.proxy(**extra), fresh("sess")
        self.register(proxy, browser, session(name, **extra))
        mine = self.post(browser, name, "hi", **extra)
        browser.expect("message_accepted", client_message_id=mine)
        proxy.expect("send_message", client_message_id=mine)
        proxy.send("proxy_send_result", session_id=name, client_message_id=mine,
                   result="delivered", delivered_at=CREATED, **extra)
        browser.expect("message_delivered", client_message_id=mine)
        proxy.send("proxy_message", session_id=name, **extra, message={
            "role": "assistant", "content": "yo", "created_at": CREATED, **extra})
        browser.expect("message_event", session_id=name)
        proxy.send("proxy_status", session_id=name, status="degraded", **extra,
                   activity={"kind": "idle", "label": "Idle", "updated_at": CREATED, **extra})
        browser.expect("session_status", session_id=name)
        proxy.send("agent_config", session_id=name, model_id="m", **extra,
                   capabilities={"interrupt": True, "x_future": True})
        browser.expect("agent_config", session_id=name)
        browser.send("history_request", session_id=name, **extra)
        browser.expect("history_snapshot", session_id=name)
        browser.send("heartbeat", request_id="extra", **extra)
        browser.expect("heartbeat_ack", request_id="extra")
        browser.drain(), proxy.drain()
        self.assertFalse(browser.seen("connection_error") + proxy.seen("connection_error"))


if __name__ == "__main__":
    unittest.main()
