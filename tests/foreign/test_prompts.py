"""Permission prompts: storing, broadcasting, answering once."""

import unittest

from base import CHOICES, RelayCase, code_of, dialog, fresh, moment, session


class PromptCase(RelayCase):
    """Short cuts for dialogs."""

    def open(self, **fields):
        """A dialog that the browser has seen and nobody has answered."""
        browser, proxy, name = self.stage()
        prompt = fresh("prompt")
        proxy.send("permission_prompt", **dialog(name, prompt, **fields))
        browser.expect("permission_prompt", prompt_id=prompt)
        return browser, proxy, name, prompt

    def answer(self, browser, name, prompt, choice="yes"):
        request = fresh("resp")
        browser.send("permission_response", request_id=request, session_id=name,
                     prompt_id=prompt, choice_id=choice)
        return request

    def stored(self):
        """The open prompts that a connecting browser is told."""
        ack = self.browser("reader").ack
        return {(p["session_id"], p["prompt_id"]): p for p in ack.get("open_prompts", [])}

    def answers(self, proxy, prompt):
        proxy.drain()
        return proxy.seen("permission_response", prompt_id=prompt)


class Broadcast(PromptCase):
    """permission_prompt from the proxy to the browsers."""

    def test_every_browser_gets_the_dialog_as_the_proxy_saw_it(self):
        browser, proxy, name = self.stage()
        second, prompt = self.browser("two"), fresh("prompt")
        sent = dialog(name, prompt, timeout_ms=30000, default_choice="no",
                      detected_at="2026-03-19T10:25:00.000Z")
        proxy.send("permission_prompt", **sent)
        for peer in (browser, second):
            got = peer.expect("permission_prompt", prompt_id=prompt)
            for field, value in sent.items():
                self.assertEqual(got.get(field), value, field)

    def test_the_optional_fields_may_be_left_out(self):
        self.open()

    def test_one_choice_is_enough(self):
        self.open(choices=[{"choice_id": "ok", "label": "OK", "is_default": True}])

    def test_a_connecting_browser_is_told_the_open_prompts(self):
        _, _, name, prompt = self.open(timeout_ms=30000, default_choice="no")
        stored = self.stored()[(name, prompt)]
        self.assertEqual(stored["prompt_text"], "Edit file relay-server/index.js?")
        self.assertEqual(stored["choices"], CHOICES)
        self.assertUtc(stored["expires_at"])

    def test_expires_at_is_the_timeout_from_now(self):
        _, _, name, prompt = self.open(timeout_ms=30000, default_choice="no")
        ack = self.browser("reader").ack
        stored = [p for p in ack["open_prompts"] if p["prompt_id"] == prompt][0]
        left = (moment(stored["expires_at"]) - moment(ack["server_ts"])).total_seconds()
        self.assertTrue(20 < left <= 30, left)

    def test_several_open_prompts_are_all_told(self):
        browser, proxy, name, first = self.open()
        second = fresh("prompt")
        proxy.send("permission_prompt", **dialog(name, second))
        browser.expect("permission_prompt", prompt_id=second)
        self.assertLessEqual({(name, first), (name, second)}, set(self.stored()))

    def test_the_same_dialog_again_is_not_a_second_dialog(self):
        """A proxy must not do so; if it does, nobody should see it twice."""
        browser, proxy, name, prompt = self.open()
        proxy.send("permission_prompt", **dialog(name, prompt))
        proxy.drain(), browser.drain()
        self.assertEqual(len(browser.seen("permission_prompt", prompt_id=prompt)), 1)
        told = [p for p in self.browser("reader").ack["open_prompts"]
                if p["prompt_id"] == prompt]
        self.assertEqual(len(told), 1)

    def test_the_store_is_keyed_by_session_and_prompt(self):
        browser, proxy = self.browser(), self.proxy()
        one, two, prompt = fresh("sess"), fresh("sess"), fresh("prompt")
        self.register(proxy, browser, session(one), session(two))
        for name in (one, two):
            proxy.send("permission_prompt", **dialog(name, prompt))
            browser.expect("permission_prompt", session_id=name, prompt_id=prompt)
        self.answer(browser, one, prompt)
        proxy.expect("permission_response", session_id=one, prompt_id=prompt)
        stored = self.stored()
        self.assertNotIn((one, prompt), stored)
        self.assertIn((two, prompt), stored)

    def test_a_dialog_outlives_the_reconnect_of_its_proxy(self):
        """The proxy must not send it again, so only the relay can remember it."""
        browser, proxy, name, prompt = self.open()
        proxy.cut()
        browser.expect("session_down", session_id=name)
        back = self.proxy()
        self.register(back, browser, session(name))
        self.assertIn((name, prompt), self.stored())
        self.answer(browser, name, prompt)
        back.expect("permission_response", prompt_id=prompt, choice_id="yes")


class PromptFields(PromptCase):
    """The required fields of permission_prompt."""

    def refused(self, **changes):
        browser, proxy, name = self.stage()
        frame = dialog(name, fresh("prompt"))
        frame.update(changes)
        proxy.send("permission_prompt",
                   **{key: value for key, value in frame.items() if value is not None})
        self.assertRefused(proxy)
        browser.drain()
        self.assertFalse(browser.seen("permission_prompt"))

    def test_each_required_field_is_required(self):
        for field in ("session_id", "prompt_id", "prompt_text", "choices"):
            with self.subTest(field=field):
                self.refused(**{field: None})

    def test_there_is_at_least_one_choice(self):
        self.refused(choices=[])

    def test_a_choice_has_an_id_a_label_and_says_whether_it_is_the_default(self):
        for field in ("choice_id", "label", "is_default"):
            with self.subTest(field=field):
                choice = dict(CHOICES[0])
                del choice[field]
                self.refused(choices=[choice])

    def test_the_default_choice_is_one_of_the_choices(self):
        self.refused(default_choice="perhaps", timeout_ms=30000)


class Answering(PromptCase):
    """permission_response: first answer wins."""

    def test_the_answer_reaches_the_proxy(self):
        browser, proxy, name, prompt = self.open()
        request = self.answer(browser, name, prompt, "always")
        got = proxy.expect("permission_response", prompt_id=prompt)
        self.assertEqual((got["session_id"], got["choice_id"]), (name, "always"))
        self.assertEqual(got["request_id"], request)

    def test_an_answered_prompt_leaves_the_store_at_once(self):
        browser, proxy, name, prompt = self.open()
        self.answer(browser, name, prompt)
        proxy.expect("permission_response", prompt_id=prompt)
        self.assertNotIn((name, prompt), self.stored())

    def test_the_second_answer_is_prompt_not_found_and_is_not_forwarded(self):
        browser, proxy, name, prompt = self.open()
        second = self.browser("two")
        self.answer(browser, name, prompt, "yes")
        proxy.expect("permission_response", prompt_id=prompt)
        request = self.answer(second, name, prompt, "no")
        result = second.expect("agent_control_result", request_id=request)
        self.assertEqual((result["result"], code_of(result)), ("failed", "prompt_not_found"))
        self.assertEqual(result["session_id"], name)
        self.assertEqual(result["command"], "permission_response")
        self.assertEqual(len(proxy.seen("permission_response")), 1)
        browser.drain()
        self.assertFalse(browser.seen("agent_control_result", request_id=request))

    def test_of_two_answers_at_the_same_time_exactly_one_wins(self):
        browser, proxy, name, prompt = self.open()
        second = self.browser("two")
        self.answer(browser, name, prompt, "yes")
        self.answer(second, name, prompt, "no")
        proxy.expect("permission_response", prompt_id=prompt)
        browser.drain(), second.drain()
        self.assertEqual(len(self.answers(proxy, prompt)), 1)
        refused = [f for peer in (browser, second) for f in peer.seen("agent_control_result")
                   if code_of(f) == "prompt_not_found"]
        self.assertEqual(len(refused), 1)

    def test_a_prompt_nobody_knows_is_prompt_not_found(self):
        browser, proxy, name = self.stage()
        request = self.answer(browser, name, "prompt_ghost")
        result = browser.expect("agent_control_result", request_id=request)
        self.assertEqual((result["result"], code_of(result)), ("failed", "prompt_not_found"))
        self.assertFalse(self.answers(proxy, "prompt_ghost"))

    def test_a_choice_that_was_not_offered_is_refused_and_the_prompt_stays_open(self):
        browser, proxy, name, prompt = self.open()
        request = self.answer(browser, name, prompt, "perhaps")
        refusal = browser.expect(("agent_control_result", "connection_error"),
                                 request_id=request)
        self.assertNotEqual(refusal.get("result"), "ok")
        self.assertFalse(self.answers(proxy, prompt))
        self.assertIn((name, prompt), self.stored())
        self.answer(browser, name, prompt, "no")
        proxy.expect("permission_response", prompt_id=prompt, choice_id="no")

    def test_each_required_field_of_the_answer_is_required(self):
        for field in ("session_id", "prompt_id", "choice_id"):
            with self.subTest(field=field):
                browser, proxy, name, prompt = self.open()
                frame = {"session_id": name, "prompt_id": prompt, "choice_id": "yes"}
                del frame[field]
                browser.send("permission_response", request_id="resp", **frame)
                browser.expect(("connection_error", "agent_control_result"))
                self.assertFalse(self.answers(proxy, prompt))

    def test_the_request_id_of_an_answer_is_not_required(self):
        browser, proxy, name, prompt = self.open()
        browser.send("permission_response", session_id=name, prompt_id=prompt,
                     choice_id="yes")
        proxy.expect("permission_response", prompt_id=prompt, choice_id="yes")

    def test_the_result_of_the_proxy_goes_to_the_one_who_answered(self):
        browser, proxy, name, prompt = self.open()
        second = self.browser("two")
        request = self.answer(browser, name, prompt)
        proxy.expect("permission_response", prompt_id=prompt)
        proxy.send("agent_control_result", request_id=request, session_id=name,
                   command="permission_response", result="ok")
        result = browser.expect("agent_control_result", request_id=request)
        self.assertEqual(result["result"], "ok")
        second.drain()
        self.assertFalse(second.seen("agent_control_result"))

    def test_an_answered_dialog_may_be_asked_again(self):
        """`not yet received a permission_response for`: after that it may be sent."""
        browser, proxy, name, prompt = self.open()
        request = self.answer(browser, name, prompt)
        proxy.expect("permission_response", prompt_id=prompt)
        proxy.send("agent_control_result", request_id=request, session_id=name,
                   command="permission_response", result="ok")
        browser.expect("agent_control_result", request_id=request)
        proxy.send("permission_prompt", **dialog(name, prompt))
        browser.expect("permission_prompt", prompt_id=prompt)
        self.assertIn((name, prompt), self.stored())

    def test_an_answer_that_could_not_be_forwarded_does_not_use_up_the_prompt(self):
        browser, proxy, name, prompt = self.open()
        proxy.close()
        browser.expect("session_down", session_id=name)
        request = self.answer(browser, name, prompt)
        result = browser.expect("agent_control_result", request_id=request)
        self.assertEqual((result["result"], code_of(result)), ("failed", "no_proxy_connected"))
        back = self.proxy()
        self.register(back, browser, session(name))
        self.answer(browser, name, prompt)
        back.expect("permission_response", prompt_id=prompt)


if __name__ == "__main__":
    unittest.main()
