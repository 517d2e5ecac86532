"""Timed prompts: the default choice, permission_prompt_expired, and late answers."""

import unittest

from base import code_of, moment
from test_prompts import PromptCase


class Expiry(PromptCase):
    """`On timeout: relay emits a synthetic permission_response with default_choice`."""

    def expiring(self, **fields):
        return self.open(**{"timeout_ms": 300, "default_choice": "no", **fields})

    def test_the_default_choice_is_applied_and_every_browser_is_told(self):
        second = self.browser("two")
        browser, proxy, name, prompt = self.expiring()
        applied = proxy.expect("permission_response", prompt_id=prompt)
        self.assertEqual((applied["session_id"], applied["choice_id"]), (name, "no"))
        for peer in (browser, second):
            event = peer.expect("permission_prompt_expired", prompt_id=prompt)
            self.assertEqual((event["session_id"], event["applied_choice"]), (name, "no"))
            self.assertUtc(event["server_ts"])

    def test_a_default_choice_that_is_not_marked_default_still_counts(self):
        browser, proxy, _, prompt = self.expiring(default_choice="always")
        proxy.expect("permission_response", prompt_id=prompt, choice_id="always")
        browser.expect("permission_prompt_expired", prompt_id=prompt, applied_choice="always")

    def test_the_proxy_is_told_before_the_browsers(self):
        browser, proxy, _, prompt = self.expiring()
        applied = proxy.expect("permission_response", prompt_id=prompt)
        event = browser.expect("permission_prompt_expired", prompt_id=prompt)
        if "server_ts" in applied:
            self.assertLessEqual(moment(applied["server_ts"]), moment(event["server_ts"]))

    def test_it_does_not_expire_early(self):
        browser, _, _, prompt = self.expiring()
        opened = browser.seen("permission_prompt", prompt_id=prompt)[0]
        event = browser.expect("permission_prompt_expired", prompt_id=prompt)
        passed = moment(event["server_ts"]) - moment(opened["server_ts"])
        self.assertGreaterEqual(passed.total_seconds(), 0.29)

    def test_an_expired_prompt_has_left_the_store(self):
        browser, _, name, prompt = self.expiring()
        browser.expect("permission_prompt_expired", prompt_id=prompt)
        self.assertNotIn((name, prompt), self.stored())

    def test_a_late_answer_is_prompt_not_found_and_changes_nothing(self):
        browser, proxy, name, prompt = self.expiring()
        browser.expect("permission_prompt_expired", prompt_id=prompt)
        request = self.answer(browser, name, prompt, "yes")
        result = browser.expect("agent_control_result", request_id=request)
        self.assertEqual((result["result"], code_of(result)), ("failed", "prompt_not_found"))
        self.assertEqual([a["choice_id"] for a in self.answers(proxy, prompt)], ["no"])

    def test_an_answered_prompt_does_not_expire(self):
        """A second dialog with the same timeout, opened later, is the clock."""
        browser, proxy, name, prompt = self.expiring()
        request = self.answer(browser, name, prompt, "yes")
        proxy.expect("permission_response", prompt_id=prompt, choice_id="yes")
        proxy.send("agent_control_result", request_id=request, session_id=name,
                   command="permission_response", result="ok")
        clock = {"session_id": name, "prompt_id": prompt + "_clock", "prompt_text": "?",
                 "choices": [{"choice_id": "no", "label": "No", "is_default": True}],
                 "timeout_ms": 300, "default_choice": "no"}
        proxy.send("permission_prompt", **clock)
        browser.expect("permission_prompt_expired", prompt_id=clock["prompt_id"])
        browser.drain()
        self.assertFalse(browser.seen("permission_prompt_expired", prompt_id=prompt))
        self.assertEqual(len(self.answers(proxy, prompt)), 1)

    def test_a_prompt_without_a_timeout_does_not_expire(self):
        browser, proxy, name, prompt = self.open()
        clock = {"session_id": name, "prompt_id": prompt + "_clock", "prompt_text": "?",
                 "choices": [{"choice_id": "no", "label": "No", "is_default": True}],
                 "timeout_ms": 300, "default_choice": "no"}
        proxy.send("permission_prompt", **clock)
        browser.expect("permission_prompt_expired", prompt_id=clock["prompt_id"])
        self.assertIn((name, prompt), self.stored())

    def test_a_timeout_without_a_default_choice_still_clears_the_prompt(self):
        """Which choice applies is not written down; that it ends is."""
        browser, _, name, prompt = self.open(timeout_ms=300)
        browser.expect("permission_prompt_expired", prompt_id=prompt)
        self.assertNotIn((name, prompt), self.stored())

    def test_a_prompt_whose_proxy_is_away_expires_too(self):
        browser, proxy, name, prompt = self.expiring(timeout_ms=600)
        proxy.close()
        browser.expect("session_down", session_id=name)
        browser.expect("permission_prompt_expired", prompt_id=prompt)
        self.assertNotIn((name, prompt), self.stored())


class Unconfirmed(PromptCase):
    """The section on permission_response asks the proxy for a click, not for a receipt."""

    FLAGS = {"send_timeout_ms": 400}

    def wait_out(self, browser, name):
        """Let the patience of the relay pass: a later unanswered send is the clock."""
        clock = self.post(browser, name)
        browser.expect("message_failed", client_message_id=clock)

    def test_an_answer_that_the_proxy_does_not_confirm_leaves_the_store_for_good(self):
        """`Relay removes the prompt from store immediately on forwarding`."""
        browser, proxy, name, prompt = self.open()
        self.answer(browser, name, prompt)
        proxy.expect("permission_response", prompt_id=prompt)
        self.wait_out(browser, name)
        self.assertNotIn((name, prompt), self.stored())

    def test_an_already_answered_prompt_is_never_answered_a_second_time(self):
        """`must reject permission_response for an ... already-answered prompt_id`."""
        browser, proxy, name, prompt = self.open()
        self.answer(browser, name, prompt, "yes")
        proxy.expect("permission_response", prompt_id=prompt)
        self.wait_out(browser, name)
        self.answer(browser, name, prompt, "no")
        browser.drain()
        self.assertEqual([a["choice_id"] for a in self.answers(proxy, prompt)], ["yes"])


if __name__ == "__main__":
    unittest.main()
