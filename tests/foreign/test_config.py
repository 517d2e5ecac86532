"""agent_config, its cache, agent_config_request and agent_set_model of the text."""

import unittest

from base import RelayCase, fresh, session

FULL = {
    "model_id": "claude-opus-4-6", "permission_mode": "bypassPermissions",
    "file_access_scope": "full",
    "available_models": ["claude-opus-4-6", "claude-sonnet-4-6", "claude-haiku-4-5"],
    "capabilities": {"interrupt": True, "set_model": True,
                     "permission_mode_change": False, "permission_dialogs": True},
    "read_at": "2026-03-19T10:25:05.000Z",
}


class Config(RelayCase):
    """What the proxy reads, every browser knows."""

    def configured(self, **config):
        browser, proxy, name = self.stage()
        proxy.send("agent_config", session_id=name, **(config or FULL))
        browser.expect("agent_config", session_id=name)
        return browser, proxy, name

    def cached(self, name):
        return self.browser("reader").ack.get("session_configs", {}).get(name)

    def test_it_is_broadcast_to_every_browser_with_every_field(self):
        browser, proxy, name = self.stage()
        second = self.browser("two")
        proxy.send("agent_config", session_id=name, **FULL)
        for peer in (browser, second):
            got = peer.expect("agent_config", session_id=name)
            for field, value in FULL.items():
                self.assertEqual(got.get(field), value, field)

    def test_a_connecting_browser_finds_it_in_session_configs(self):
        _, _, name = self.configured()
        cached = self.cached(name)
        for field in ("model_id", "permission_mode", "file_access_scope", "capabilities"):
            self.assertEqual(cached.get(field), FULL[field], field)

    def test_the_cache_has_the_latest_value(self):
        browser, proxy, name = self.configured()
        proxy.send("agent_config", session_id=name, **{**FULL, "model_id": "claude-haiku-4-5"})
        browser.expect("agent_config", session_id=name, model_id="claude-haiku-4-5")
        self.assertEqual(self.cached(name)["model_id"], "claude-haiku-4-5")

    def test_only_the_session_and_the_model_are_required(self):
        _, _, name = self.configured(model_id="unknown")
        self.assertEqual(self.cached(name)["model_id"], "unknown")

    def test_what_was_not_read_is_not_made_up(self):
        browser, _, name = self.configured(model_id="m", capabilities={"interrupt": True})
        got = browser.seen("agent_config", session_id=name)[0]
        self.assertEqual(got["capabilities"], {"interrupt": True})
        for field in ("permission_mode", "file_access_scope"):
            self.assertIn(got.get(field, "unknown"), ("unknown", None))

    def test_every_mode_and_scope_of_the_text_comes_through(self):
        browser, proxy, name = self.stage()
        for mode in ("bypassPermissions", "default", "ask", "unknown"):
            proxy.send("agent_config", session_id=name, model_id="m", permission_mode=mode)
            browser.expect("agent_config", session_id=name, permission_mode=mode)
        for scope in ("full", "workspace", "none", "unknown"):
            proxy.send("agent_config", session_id=name, model_id="m", file_access_scope=scope)
            browser.expect("agent_config", session_id=name, file_access_scope=scope)

    def test_a_config_without_a_model_or_without_a_session_is_refused(self):
        browser, proxy, name = self.stage()
        proxy.send("agent_config", session_id=name)
        self.assertRefused(proxy)
        proxy.send("agent_config", model_id="m")
        self.assertRefused(proxy)
        browser.drain()
        self.assertFalse(browser.seen("agent_config"))

    def test_each_session_has_its_own(self):
        browser, proxy = self.browser(), self.proxy()
        one, two = fresh("sess"), fresh("sess")
        self.register(proxy, browser, session(one), session(two))
        for name, model in ((one, "a"), (two, "b")):
            proxy.send("agent_config", session_id=name, model_id=model)
            browser.expect("agent_config", session_id=name)
        configs = self.browser("reader").ack["session_configs"]
        self.assertEqual((configs[one]["model_id"], configs[two]["model_id"]), ("a", "b"))

    def test_another_machine_cannot_change_it(self):
        browser, _, name = self.configured()
        other = self.proxy("two")
        other.send("agent_config", session_id=name, model_id="forged")
        other.drain(), browser.drain()
        self.assertFalse(browser.seen("agent_config", model_id="forged"))
        self.assertEqual(self.cached(name)["model_id"], FULL["model_id"])


class Asking(RelayCase):
    """agent_config_request."""

    FLAGS = {"send_timeout_ms": 500}

    def test_the_request_reaches_the_proxy_and_its_answer_the_browser(self):
        browser, proxy, name = self.stage()
        browser.send("agent_config_request", request_id="cfg_1", session_id=name)
        proxy.expect("agent_config_request", session_id=name)
        proxy.send("agent_config", session_id=name, **FULL)
        browser.expect("agent_config", session_id=name, model_id=FULL["model_id"])

    def test_a_cached_answer_does_not_replace_the_fresh_one(self):
        browser, proxy, name = self.stage()
        proxy.send("agent_config", session_id=name, model_id="old")
        browser.expect("agent_config", session_id=name)
        browser.send("agent_config_request", request_id="cfg_2", session_id=name)
        proxy.expect("agent_config_request", session_id=name)
        proxy.send("agent_config", session_id=name, model_id="new")
        browser.expect("agent_config", session_id=name, model_id="new")

    def test_an_answered_request_is_not_called_failed_later(self):
        """The text asks the proxy for agent_config only, so that is the answer.

        A send that nobody answers, made later with the same patience, is the clock.
        """
        browser, proxy, name = self.stage()
        browser.send("agent_config_request", request_id="cfg_3", session_id=name)
        proxy.expect("agent_config_request", session_id=name)
        proxy.send("agent_config", session_id=name, **FULL)
        browser.expect("agent_config", session_id=name)
        clock = self.post(browser, name)
        browser.expect("message_failed", client_message_id=clock)
        browser.drain()
        self.assertFalse(browser.seen("agent_control_result", result="failed"))


class SetModel(RelayCase):
    """agent_set_model with its confirming agent_config."""

    FLAGS = {"send_timeout_ms": 500}

    def ask(self):
        browser, proxy, name = self.stage()
        browser.send("agent_set_model", request_id="mdl_abc", session_id=name,
                     model_id="claude-opus-4-6")
        got = proxy.expect("agent_set_model", session_id=name)
        self.assertEqual((got["request_id"], got["model_id"]), ("mdl_abc", "claude-opus-4-6"))
        return browser, proxy, name

    def test_the_confirming_config_is_cached_and_broadcast(self):
        second = self.browser("two")
        browser, proxy, name = self.ask()
        proxy.send("agent_config", session_id=name, model_id="claude-opus-4-6")
        for peer in (browser, second):
            peer.expect("agent_config", session_id=name, model_id="claude-opus-4-6")
        configs = self.browser("reader").ack["session_configs"]
        self.assertEqual(configs[name]["model_id"], "claude-opus-4-6")

    def test_nothing_changes_before_the_proxy_confirms(self):
        browser, proxy, name = self.stage()
        proxy.send("agent_config", session_id=name, model_id="before")
        browser.expect("agent_config", session_id=name)
        browser.send("agent_set_model", request_id="mdl", session_id=name, model_id="after")
        proxy.expect("agent_set_model", session_id=name)
        browser.drain()
        self.assertFalse(browser.seen("agent_config", model_id="after"))
        configs = self.browser("reader").ack["session_configs"]
        self.assertEqual(configs[name]["model_id"], "before")

    def test_a_failure_reaches_the_browser(self):
        for code in ("model_not_available", "control_not_supported"):
            with self.subTest(code=code):
                browser, proxy, name = self.ask()
                proxy.send("agent_control_result", request_id="mdl_abc", session_id=name,
                           command="agent_set_model", result="failed",
                           error={"code": code, "message": "x"})
                result = browser.expect("agent_control_result", request_id="mdl_abc")
                self.assertEqual((result["result"], result["error"]["code"]),
                                 ("failed", code))

    def test_a_confirmed_change_is_not_called_failed_later(self):
        """`On success, proxy emits agent_config`: no other answer is asked for."""
        browser, proxy, name = self.ask()
        proxy.send("agent_config", session_id=name, model_id="claude-opus-4-6")
        browser.expect("agent_config", session_id=name)
        clock = self.post(browser, name)
        browser.expect("message_failed", client_message_id=clock)
        browser.drain()
        self.assertFalse(browser.seen("agent_control_result", result="failed"))


if __name__ == "__main__":
    unittest.main()
