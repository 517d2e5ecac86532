"""`accepted means the relay durably accepted`: kill -9 and look again."""

import time
import unittest

from base import CREATED, RelayCase, dialog, fresh, session
from wire import DEADLINE


class PowerCut(RelayCase):
    """Each test kills the relay and starts it again on the same data."""

    def crash(self):
        """Kill -9 and start again; every socket of this test is gone."""
        self.relay.restart()

    def test_an_accepted_message_survives(self):
        browser, _, name = self.stage()
        mine = self.post(browser, name, "durable")
        browser.expect("message_accepted", client_message_id=mine)
        self.crash()
        messages = self.snapshot_of(self.browser(), name)["messages"]
        self.assertEqual([m["content"] for m in messages], ["durable"])

    def test_many_accepted_messages_all_survive(self):
        browser, _, name = self.stage()
        sent = [self.post(browser, name, str(number)) for number in range(30)]
        for mine in sent:
            browser.expect("message_accepted", client_message_id=mine)
        self.crash()
        messages = self.snapshot_of(self.browser(), name)["messages"]
        self.assertEqual([m["content"] for m in messages], [str(n) for n in range(30)])

    def test_an_accepted_message_still_reaches_a_final_state(self):
        browser, proxy, name = self.stage()
        mine = self.post(browser, name)
        browser.expect("message_accepted", client_message_id=mine)
        self.crash()
        browser, proxy = self.browser(), self.proxy()
        proxy.send("proxy_session_snapshot", sessions=[session(name)])
        browser.expect("session_up", where=lambda f: f["session"]["session_id"] == name)
        self.assertTrue(self.ends(browser, proxy, name, mine))

    def ends(self, browser, proxy, name, mine):
        """Play the proxy until the message is delivered or failed, or time is up."""
        answered, deadline = False, time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            proxy.drain(), browser.drain()
            if proxy.seen("send_message", client_message_id=mine) and not answered:
                proxy.send("proxy_send_result", session_id=name, client_message_id=mine,
                           result="delivered")
                answered = True
            browser.send("history_request", session_id=name, after_sequence=0)
            events = browser.expect("history_delta", session_id=name)["events"]
            states = [e["type"] for e in events if e.get("client_message_id") == mine]
            if states[-1] in ("message_delivered", "message_failed"):
                return True
        return False

    def test_a_delivered_message_stays_delivered_and_is_not_sent_again(self):
        browser, proxy, name = self.stage()
        mine = self.delivered(browser, proxy, name)
        self.crash()
        browser, proxy = self.browser(), self.proxy()
        self.register(proxy, browser, session(name))
        self.post(browser, name, client_message_id=mine)
        browser.expect("message_delivered", client_message_id=mine)
        barrier = self.post(browser, name)
        proxy.expect("send_message", client_message_id=barrier)
        self.assertFalse(proxy.seen("send_message", client_message_id=mine))

    def test_a_retry_after_the_crash_is_the_same_message(self):
        browser, _, name = self.stage()
        mine = self.post(browser, name, "once")
        browser.expect("message_accepted", client_message_id=mine)
        self.crash()
        browser = self.browser()
        self.post(browser, name, "once", client_message_id=mine)
        browser.expect(("message_accepted", "message_failed"), client_message_id=mine)
        messages = self.snapshot_of(browser, name)["messages"]
        self.assertEqual([m["content"] for m in messages], ["once"])

    def test_the_transcript_survives_with_its_sequences_and_ids(self):
        browser, proxy, name = self.stage()
        event = self.say(browser, proxy, name, "I said it")
        self.crash()
        browser = self.browser(resume={"sessions": [
            {"session_id": name, "last_sequence": event["sequence"] - 1}]})
        delta = browser.expect("history_delta", session_id=name)
        replayed = delta["events"][0]
        self.assertEqual((replayed["event_id"], replayed["sequence"], replayed["message"]),
                         (event["event_id"], event["sequence"], event["message"]))

    def test_the_sequence_goes_on_and_does_not_start_again(self):
        browser, proxy, name = self.stage()
        before = self.say(browser, proxy, name, "before")
        self.crash()
        browser, proxy = self.browser(), self.proxy()
        self.register(proxy, browser, session(name))
        after = self.say(browser, proxy, name, "after")
        self.assertGreater(after["sequence"], before["sequence"])

    def test_a_cursor_from_before_the_crash_is_still_good(self):
        browser, proxy, name = self.stage()
        last = self.say(browser, proxy, name, "last")["sequence"]
        self.crash()
        browser = self.browser()
        browser.send("history_request", session_id=name, after_sequence=last)
        browser.expect("history_delta", session_id=name, from_sequence=last)

    def test_no_session_is_called_healthy_before_its_proxy_is_back(self):
        _, _, name = self.stage()
        self.crash()
        for one in self.browser().expect("session_snapshot")["sessions"]:
            if one["session_id"] == name:
                self.assertEqual(one["status"], "disconnected")

    def test_an_open_prompt_survives_and_can_be_answered(self):
        browser, proxy, name = self.stage()
        prompt = fresh("prompt")
        proxy.send("permission_prompt", **dialog(name, prompt))
        browser.expect("permission_prompt", prompt_id=prompt)
        self.crash()
        browser, proxy = self.browser(), self.proxy()
        self.assertIn((name, prompt), [(p["session_id"], p["prompt_id"])
                                       for p in browser.ack["open_prompts"]])
        self.register(proxy, browser, session(name))
        browser.send("permission_response", request_id="resp", session_id=name,
                     prompt_id=prompt, choice_id="yes")
        proxy.expect("permission_response", prompt_id=prompt, choice_id="yes")

    def test_a_timed_prompt_keeps_its_hour(self):
        browser, proxy, name = self.stage()
        prompt = fresh("prompt")
        proxy.send("permission_prompt",
                   **dialog(name, prompt, timeout_ms=20000, default_choice="no"))
        browser.expect("permission_prompt", prompt_id=prompt)

        def hour(peer):
            return [p["expires_at"] for p in peer.ack["open_prompts"]
                    if p["prompt_id"] == prompt]

        before = hour(self.browser("two"))
        self.crash()
        self.assertEqual(hour(self.browser("two")), before)

    def test_an_answered_prompt_does_not_come_back(self):
        browser, proxy, name = self.stage()
        prompt = fresh("prompt")
        proxy.send("permission_prompt", **dialog(name, prompt))
        browser.expect("permission_prompt", prompt_id=prompt)
        browser.send("permission_response", request_id="resp", session_id=name,
                     prompt_id=prompt, choice_id="yes")
        proxy.expect("permission_response", prompt_id=prompt)
        proxy.send("agent_control_result", request_id="resp", session_id=name,
                   command="permission_response", result="ok")
        browser.expect("agent_control_result", request_id="resp")
        self.crash()
        self.assertNotIn(prompt, [p["prompt_id"] for p in self.browser().ack["open_prompts"]])

    def test_a_pending_launch_survives_and_can_still_succeed(self):
        browser, proxy = self.browser(), self.proxy()
        request = fresh("launch")
        browser.send("launch_session", request_id=request, agent_type="claude")
        browser.expect("session_launching", request_id=request)
        proxy.expect("launch_session", request_id=request)
        self.crash()
        browser, proxy = self.browser(), self.proxy()
        self.assertIn(request, [p["request_id"] for p in browser.ack["pending_launches"]])
        proxy.send("session_launch_ack", request_id=request, session_id=fresh("sess"),
                   agent_type="claude")
        browser.expect("session_launch_ack", request_id=request)

    def test_a_held_ack_survives(self):
        browser, proxy = self.browser(), self.proxy()
        request = fresh("launch")
        browser.send("launch_session", request_id=request, agent_type="claude")
        proxy.expect("launch_session", request_id=request)
        browser.close()
        proxy.send("session_launch_ack", request_id=request, session_id=fresh("sess"),
                   agent_type="claude")
        proxy.drain()
        self.crash()
        self.browser().expect("session_launch_ack", request_id=request)

    def test_the_cached_config_survives(self):
        browser, proxy, name = self.stage()
        proxy.send("agent_config", session_id=name, model_id="kept", read_at=CREATED)
        browser.expect("agent_config", session_id=name)
        self.crash()
        configs = self.browser().ack["session_configs"]
        self.assertEqual(configs[name]["model_id"], "kept")

    def test_the_history_of_a_closed_session_survives(self):
        browser, proxy, name = self.stage()
        self.say(browser, proxy, name, "kept")
        proxy.send("session_closed", session_id=name, reason="target_closed")
        browser.expect("session_closed", session_id=name)
        self.crash()
        browser = self.browser()
        listed = browser.expect("session_snapshot")["sessions"]
        self.assertNotIn(name, [one["session_id"] for one in listed])
        messages = self.snapshot_of(browser, name)["messages"]
        self.assertEqual([m["content"] for m in messages], ["kept"])


class LaunchOverdue(RelayCase):
    """A launch whose time runs out while the relay is down."""

    FLAGS = {"launch_timeout_ms": 500}

    def test_it_ends_in_launch_timeout_after_the_restart(self):
        browser, _ = self.browser(), self.proxy()
        request = fresh("launch")
        browser.send("launch_session", request_id=request, agent_type="claude")
        browser.expect("session_launching", request_id=request)
        self.relay.restart()
        failed = self.browser().expect("session_launch_failed", request_id=request)
        self.assertEqual(failed["error_code"], "launch_timeout")


if __name__ == "__main__":
    unittest.main()
