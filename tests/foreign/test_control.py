"""Relay Routing Rules, agent_interrupt and agent_control_result of the text."""

import unittest

from base import RelayCase, code_of, fresh, session

COMMANDS = {
    "agent_interrupt": {},
    "agent_set_model": {"model_id": "claude-opus-4-6"},
    "agent_config_request": {},
}


class ControlCase(RelayCase):
    """Short cuts for commands."""

    def command(self, browser, type, name, **fields):
        request = fresh("req")
        browser.send(type, request_id=request, session_id=name, **COMMANDS[type], **fields)
        return request

    def result(self, proxy, type, name, request, **fields):
        proxy.send("agent_control_result", request_id=request, session_id=name,
                   command=type, **{"result": "ok", **fields})


class Routing(ControlCase):
    """Commands go to the one proxy, results to the one browser."""

    def test_every_command_reaches_the_proxy_of_its_session_as_it_was_sent(self):
        browser, proxy, name = self.stage()
        other = self.proxy("two")
        self.register(other, browser, session(fresh("sess")))
        for type, fields in COMMANDS.items():
            with self.subTest(command=type):
                request = self.command(browser, type, name)
                got = proxy.expect(type)
                self.assertEqual((got["request_id"], got["session_id"]), (request, name))
                for field, value in fields.items():
                    self.assertEqual(got[field], value)
                other.drain()
                self.assertFalse(other.seen(type))

    def test_a_result_goes_only_to_the_browser_that_asked(self):
        browser, proxy, name = self.stage()
        second, twin = self.browser("two"), self.browser("one")
        for type in ("agent_interrupt", "agent_set_model"):
            with self.subTest(command=type):
                request = self.command(browser, type, name)
                proxy.expect(type, request_id=request)
                self.result(proxy, type, name, request)
                result = browser.expect("agent_control_result", request_id=request)
                self.assertEqual((result["session_id"], result["command"], result["result"]),
                                 (name, type, "ok"))
                self.assertUtc(result["server_ts"])
        second.drain(), twin.drain()
        self.assertFalse(second.seen("agent_control_result"))
        self.assertFalse(twin.seen("agent_control_result"))

    def test_two_browsers_each_get_their_own_result(self):
        browser, proxy, name = self.stage()
        second = self.browser("two")
        first = self.command(browser, "agent_interrupt", name)
        other = self.command(second, "agent_interrupt", name)
        proxy.expect("agent_interrupt", request_id=first)
        proxy.expect("agent_interrupt", request_id=other)
        self.result(proxy, "agent_interrupt", name, other, result="failed",
                    error={"code": "agent_not_active", "message": "x"})
        self.result(proxy, "agent_interrupt", name, first)
        self.assertEqual(browser.expect("agent_control_result")["request_id"], first)
        self.assertEqual(second.expect("agent_control_result")["request_id"], other)
        browser.drain(), second.drain()
        self.assertEqual(len(browser.seen("agent_control_result")), 1)
        self.assertEqual(len(second.seen("agent_control_result")), 1)

    def test_two_browsers_that_chose_the_same_request_id_do_not_mix_results(self):
        """Ids are made by the browsers, so they may collide; each asked once."""
        browser, proxy, name = self.stage()
        second = self.browser("two")
        for peer in (browser, second):
            peer.send("agent_interrupt", request_id="intr_1", session_id=name)
        asked = [proxy.expect("agent_interrupt") for _ in range(2)]
        for frame in asked:
            self.result(proxy, "agent_interrupt", name, frame["request_id"])
        for peer in (browser, second):
            peer.expect("agent_control_result", request_id="intr_1")

    def test_a_failure_keeps_its_code_and_message(self):
        browser, proxy, name = self.stage()
        request = self.command(browser, "agent_interrupt", name)
        proxy.expect("agent_interrupt", request_id=request)
        error = {"code": "agent_not_active", "message": "no Stop button found"}
        self.result(proxy, "agent_interrupt", name, request, result="failed", error=error)
        result = browser.expect("agent_control_result", request_id=request)
        self.assertEqual((result["result"], result["error"]), ("failed", error))

    def test_a_failure_in_the_words_of_the_rules_keeps_its_code_too(self):
        """The rules let the proxy emit `error_code`, the example has `error.code`."""
        browser, proxy, name = self.stage()
        request = self.command(browser, "agent_interrupt", name)
        proxy.expect("agent_interrupt", request_id=request)
        self.result(proxy, "agent_interrupt", name, request, result="failed",
                    error_code="agent_not_active")
        result = browser.expect("agent_control_result", request_id=request)
        self.assertEqual((result["result"], code_of(result)), ("failed", "agent_not_active"))

    def test_a_result_nobody_asked_for_is_told_to_nobody(self):
        browser, proxy, name = self.stage()
        self.result(proxy, "agent_interrupt", name, "req_ghost")
        proxy.drain(), browser.drain()
        self.assertFalse(browser.seen("agent_control_result"))

    def test_the_result_for_a_browser_that_left_is_not_given_to_others(self):
        browser, proxy, name = self.stage()
        second = self.browser("two")
        request = self.command(browser, "agent_interrupt", name)
        proxy.expect("agent_interrupt", request_id=request)
        browser.close()
        self.result(proxy, "agent_interrupt", name, request)
        proxy.drain(), second.drain()
        self.assertFalse(second.seen("agent_control_result"))

    def test_another_machine_cannot_answer(self):
        browser, proxy, name = self.stage()
        other = self.proxy("two")
        request = self.command(browser, "agent_interrupt", name)
        proxy.expect("agent_interrupt", request_id=request)
        self.result(other, "agent_interrupt", name, request)
        other.drain(), browser.drain()
        self.assertFalse(browser.seen("agent_control_result"))


class Interrupt(ControlCase):
    """agent_interrupt."""

    def test_an_interrupt_ends_with_a_result_and_a_status(self):
        browser, proxy, name = self.stage()
        request = self.command(browser, "agent_interrupt", name)
        proxy.expect("agent_interrupt", request_id=request)
        self.result(proxy, "agent_interrupt", name, request)
        proxy.send("proxy_status", session_id=name, status="healthy",
                   activity={"kind": "idle", "label": "Idle",
                             "updated_at": "2026-03-19T10:25:06.000Z"})
        browser.expect("agent_control_result", request_id=request, result="ok")
        status = browser.expect("session_status", session_id=name)
        self.assertEqual(status["activity"]["kind"], "idle")

    def refused(self, type, **fields):
        browser, proxy, name = self.stage()
        if fields.get("session_id") == "its":
            fields["session_id"] = name
        browser.send(type, **fields)
        browser.expect(("connection_error", "agent_control_result"))
        proxy.drain()
        self.assertFalse(proxy.seen(type))

    def test_an_interrupt_needs_a_request_id(self):
        self.refused("agent_interrupt", session_id="its")

    def test_an_interrupt_needs_a_session_id(self):
        self.refused("agent_interrupt", request_id="r")

    def test_a_model_change_needs_a_model_id(self):
        self.refused("agent_set_model", request_id="r", session_id="its")

    def test_a_model_change_needs_a_session_id(self):
        self.refused("agent_set_model", request_id="r", model_id="m")

    def test_a_config_request_needs_a_session_id(self):
        self.refused("agent_config_request", request_id="r")

    def test_a_command_for_a_session_nobody_knows_fails_and_reaches_nobody(self):
        browser, proxy, _ = self.stage()
        for type in COMMANDS:
            with self.subTest(command=type):
                request = self.command(browser, type, "sess_ghost")
                answer = browser.expect(("agent_control_result", "connection_error"),
                                        request_id=request)
                self.assertIn(code_of(answer), ("session_unknown", "no_proxy_connected"))
                proxy.drain()
                self.assertFalse(proxy.seen(type))

    def test_the_request_id_of_the_other_commands_is_not_required(self):
        browser, proxy, name = self.stage()
        browser.send("agent_config_request", session_id=name)
        proxy.expect("agent_config_request", session_id=name)
        browser.send("agent_set_model", session_id=name, model_id="m")
        proxy.expect("agent_set_model", session_id=name, model_id="m")


class NoProxy(ControlCase):
    """`If no proxy is connected when a control command arrives`."""

    def check(self, answer, name, type):
        self.assertEqual(answer["result"], "failed")
        self.assertEqual(code_of(answer), "no_proxy_connected")
        self.assertEqual((answer["session_id"], answer["command"]), (name, type))

    def test_every_command_fails_with_no_proxy_connected(self):
        browser, proxy, name = self.stage()
        proxy.close()
        browser.expect("session_down", session_id=name)
        for type in COMMANDS:
            with self.subTest(command=type):
                request = self.command(browser, type, name)
                self.check(browser.expect("agent_control_result", request_id=request),
                           name, type)

    def test_an_answer_to_a_dialog_fails_with_no_proxy_connected_too(self):
        browser, proxy, name = self.stage()
        proxy.close()
        browser.expect("session_down", session_id=name)
        browser.send("permission_response", request_id="resp", session_id=name,
                     prompt_id="prompt_any", choice_id="yes")
        answer = browser.expect("agent_control_result", request_id="resp")
        # Both rules apply to a prompt that is not there and a proxy that is not there.
        self.assertIn(code_of(answer), ("no_proxy_connected", "prompt_not_found"))

    def test_the_failure_is_told_only_to_the_one_who_asked(self):
        browser, proxy, name = self.stage()
        second = self.browser("two")
        proxy.close()
        browser.expect("session_down", session_id=name)
        self.command(browser, "agent_interrupt", name)
        browser.expect("agent_control_result")
        second.drain()
        self.assertFalse(second.seen("agent_control_result"))

    def test_the_code_is_where_the_rule_says_or_where_the_example_shows_it(self):
        browser, proxy, name = self.stage()
        proxy.close()
        browser.expect("session_down", session_id=name)
        self.command(browser, "agent_interrupt", name)
        answer = browser.expect("agent_control_result")
        self.assertIn("no_proxy_connected",
                      (answer.get("error_code"), answer.get("error", {}).get("code")))


if __name__ == "__main__":
    unittest.main()
