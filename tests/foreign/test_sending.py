"""Browser Send Lifecycle: required fields, acceptance, delivery, failure."""

import unittest

from base import CREATED, RelayCase, fresh, session


class Fields(RelayCase):
    """The required fields of send_message."""

    def refused(self, **changes):
        """Leave out (None) or change fields; nothing may reach the proxy."""
        browser, proxy, name = self.stage()
        frame = {"client_message_id": fresh("msg"), "session_id": name,
                 "content": "x", "created_at": CREATED, **changes}
        browser.send("send_message",
                     **{key: value for key, value in frame.items() if value is not None})
        answer = browser.expect(("connection_error", "message_failed"))
        barrier = self.post(browser, name)
        proxy.expect("send_message", client_message_id=barrier)
        self.assertEqual(len(proxy.seen("send_message")), 1)
        browser.drain()
        self.assertEqual(len(browser.seen("message_accepted")), 1)
        return answer

    def test_a_client_message_id_is_required(self):
        self.assertEqual(self.refused(client_message_id=None)["code"], "invalid_message")

    def test_a_session_id_is_required(self):
        self.refused(session_id=None)

    def test_created_at_is_required(self):
        self.refused(created_at=None)

    def test_content_or_attachments_are_required(self):
        self.refused(content=None)

    def test_an_empty_list_of_attachments_is_not_an_attachment(self):
        self.refused(content=None, attachments=[])

    def test_a_client_message_id_must_be_a_string(self):
        self.refused(client_message_id=17)

    def test_the_error_names_the_message_it_is_about(self):
        """Without it a browser cannot tell which of its pending sends was refused."""
        answer = self.refused(created_at=None, client_message_id="msg_named",
                              request_id="req_named")
        named = answer.get("request_id") == "req_named"
        self.assertTrue(named or answer.get("client_message_id") == "msg_named", answer)

    def test_content_alone_is_enough(self):
        browser, proxy, name = self.stage()
        self.delivered(browser, proxy, name)

    def test_attachments_alone_are_enough(self):
        browser, proxy, name = self.stage()
        files = [{"attachment_id": "att_123", "name": "Screenshot.png", "kind": "uploaded_file"}]
        mine = fresh("msg")
        browser.send("send_message", client_message_id=mine, session_id=name,
                     attachments=files, created_at=CREATED)
        browser.expect("message_accepted", client_message_id=mine)
        self.assertEqual(proxy.expect("send_message")["attachments"], files)


class Lifecycle(RelayCase):
    """queued, accepted, then delivered or failed."""

    def test_accepted_has_every_field_of_the_text(self):
        browser, _, name = self.stage()
        mine = self.post(browser, name)
        event = browser.expect("message_accepted", client_message_id=mine)
        self.assertHas(event, "event_id", "sequence", "message_id")
        self.assertEqual((event["session_id"], event["status"]), (name, "accepted"))
        self.assertUtc(event["accepted_at"])

    def test_the_proxy_gets_what_the_browser_said(self):
        browser, proxy, name = self.stage()
        files = [{"attachment_id": "att_123", "name": "S.png", "kind": "uploaded_file"}]
        mine = self.post(browser, name, "Zeile 1\n\tZeile 2 🐟", attachments=files)
        got = proxy.expect("send_message", client_message_id=mine)
        self.assertEqual(got["session_id"], name)
        self.assertEqual(got["content"], "Zeile 1\n\tZeile 2 🐟")
        self.assertEqual(got["attachments"], files)
        self.assertEqual(got["created_at"], CREATED)

    def test_delivered_comes_when_the_proxy_reports_it_and_not_before(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name)
        proxy.expect("send_message", client_message_id=mine)
        browser.drain()
        self.assertFalse(browser.seen("message_delivered"))
        proxy.send("proxy_send_result", session_id=name, client_message_id=mine,
                   result="delivered", delivered_at="2026-03-19T10:16:32.000Z")
        event = browser.expect("message_delivered", client_message_id=mine)
        accepted = browser.seen("message_accepted", client_message_id=mine)[0]
        self.assertHas(event, "event_id")
        self.assertEqual((event["session_id"], event["status"]), (name, "delivered"))
        self.assertEqual(event["message_id"], accepted["message_id"])
        self.assertGreater(event["sequence"], accepted["sequence"])
        self.assertUtc(event["delivered_at"])

    def test_failed_comes_with_the_error_of_the_proxy(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name)
        accepted = browser.expect("message_accepted", client_message_id=mine)
        proxy.expect("send_message", client_message_id=mine)
        proxy.send("proxy_send_result", session_id=name, client_message_id=mine,
                   result="failed", failed_at="2026-03-19T10:16:35.000Z",
                   error={"code": "send_button_not_found", "message": "No button"})
        event = browser.expect("message_failed", client_message_id=mine)
        self.assertHas(event, "event_id")
        self.assertEqual((event["session_id"], event["status"]), (name, "failed"))
        self.assertEqual(event["message_id"], accepted["message_id"])
        self.assertGreater(event["sequence"], accepted["sequence"])
        self.assertUtc(event["failed_at"])
        self.assertEqual(event["error"],
                         {"code": "send_button_not_found", "message": "No button"})

    def test_the_times_may_be_left_to_the_relay(self):
        """The list of required fields of proxy_send_result does not exist."""
        browser, proxy, name = self.stage()
        mine = self.post(browser, name)
        proxy.expect("send_message", client_message_id=mine)
        proxy.send("proxy_send_result", session_id=name, client_message_id=mine,
                   result="delivered")
        self.assertUtc(browser.expect("message_delivered")["delivered_at"])

    def test_every_browser_sees_the_lifecycle(self):
        """Sequences count per session, so leaving one browser out would be a gap."""
        browser, proxy, name = self.stage()
        second = self.browser("two")
        mine = self.delivered(browser, proxy, name)
        for type in ("message_accepted", "message_delivered"):
            second.expect(type, client_message_id=mine)

    def test_the_message_goes_only_to_the_machine_of_its_session(self):
        browser, owner, name = self.stage()
        other = self.proxy("two")
        self.register(other, browser, session(fresh("sess")))
        self.delivered(browser, owner, name)
        other.drain()
        self.assertFalse(other.seen("send_message"))

    def test_messages_of_one_session_arrive_in_their_order(self):
        browser, proxy, name = self.stage()
        sent = [self.post(browser, name, str(number)) for number in range(20)]
        for mine in sent:
            browser.expect("message_accepted", client_message_id=mine)
        proxy.expect("send_message", client_message_id=sent[0])
        while len(proxy.seen("send_message")) < len(sent):
            last = proxy.seen("send_message")[-1]["client_message_id"]
            proxy.send("proxy_send_result", session_id=name, client_message_id=last,
                       result="delivered")
            following = sent[sent.index(last) + 1]
            proxy.expect("send_message", client_message_id=following)
        self.assertEqual([f["client_message_id"] for f in proxy.seen("send_message")], sent)

    def test_delivery_does_not_depend_on_the_echo(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name, "echo me")
        proxy.expect("send_message", client_message_id=mine)
        proxy.send("proxy_message", session_id=name, message={
            "role": "user", "content": "echo me", "created_at": CREATED})
        proxy.drain(), browser.drain()
        self.assertFalse(browser.seen("message_delivered"), "an echo is not a delivery")
        proxy.send("proxy_send_result", session_id=name, client_message_id=mine,
                   result="delivered")
        browser.expect("message_delivered", client_message_id=mine)

    def test_a_result_that_is_neither_delivered_nor_failed_changes_nothing(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name)
        proxy.expect("send_message", client_message_id=mine)
        proxy.send("proxy_send_result", session_id=name, client_message_id=mine, result="maybe")
        self.assertRefused(proxy)
        browser.drain()
        self.assertFalse(browser.seen("message_delivered") + browser.seen("message_failed"))

    def test_a_result_for_a_message_nobody_sent_changes_nothing(self):
        browser, proxy, name = self.stage()
        proxy.send("proxy_send_result", session_id=name, client_message_id="msg_ghost",
                   result="delivered")
        proxy.drain(), browser.drain()
        self.assertFalse(browser.seen("message_delivered"))

    def test_another_machine_cannot_answer_for_the_session(self):
        browser, proxy, name = self.stage()
        other = self.proxy("two")
        mine = self.post(browser, name)
        proxy.expect("send_message", client_message_id=mine)
        other.send("proxy_send_result", session_id=name, client_message_id=mine,
                   result="delivered")
        other.drain(), browser.drain()
        self.assertFalse(browser.seen("message_delivered"))


class Failures(RelayCase):
    """`the relay or proxy has determined the send cannot currently be completed`."""

    FLAGS = {"send_timeout_ms": 700}

    def test_a_proxy_that_never_answers_fails_the_message(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name)
        proxy.expect("send_message", client_message_id=mine)
        event = browser.expect("message_failed", client_message_id=mine)
        self.assertHas(event["error"], "code", "message")
        self.assertUtc(event["failed_at"])

    def test_a_message_for_a_session_nobody_knows_fails(self):
        browser, _, _ = self.stage()
        mine = self.post(browser, "sess_ghost")
        answer = browser.expect(("message_failed", "connection_error"))
        self.assertIn("session_unknown", (answer.get("code"), answer.get("error", {}).get("code")))
        browser.drain()
        self.assertFalse(browser.seen("message_accepted", client_message_id=mine))

    def test_a_message_for_a_disconnected_session_fails_or_waits_for_it(self):
        browser, proxy, name = self.stage()
        proxy.close()
        browser.expect("session_down", session_id=name)
        mine = self.post(browser, name)
        answer = browser.expect(("message_failed", "message_accepted"), client_message_id=mine)
        if answer["type"] == "message_accepted":
            back = self.proxy()
            back.send("proxy_session_snapshot", sessions=[session(name)])
            back.expect("send_message", client_message_id=mine)
        else:
            self.assertEqual(answer["error"]["code"], "session_not_connected")

    def test_an_accepted_message_whose_proxy_leaves_still_gets_a_final_state(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name)
        proxy.expect("send_message", client_message_id=mine)
        proxy.cut()
        browser.expect("session_down", session_id=name)
        back = self.proxy()
        back.send("proxy_session_snapshot", sessions=[session(name)])
        event = browser.expect(("message_failed", "message_delivered"), client_message_id=mine)
        self.assertIn(event["status"], ("failed", "delivered"))


if __name__ == "__main__":
    unittest.main()
