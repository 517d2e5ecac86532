"""Core Identifiers, Session Metadata Contract and Session Lifecycle Events."""

import unittest

from base import ACTIVITIES, CREATED, RelayCase, fresh, session

FULL = {
    "agent_type": "codex", "display_name": "Codex", "window_title": "repo-name",
    "workspace_name": "repo-name",
    "workspace_path": "C:\\Users\\Robert\\Documents\\Remote Agent Chat",
    "machine_label": "Robert-Windows", "target_signature": "sig_abc",
    "target_id": "transient-target-id", "last_seen_at": "2026-03-19T10:15:30.000Z",
    "status": "healthy",
    "activity": {"kind": "thinking", "label": "Thinking", "updated_at": CREATED},
}


def listed(browser):
    """What a freshly connected browser is told about all sessions."""
    return {s["session_id"]: s for s in browser.expect("session_snapshot")["sessions"]}


class Snapshot(RelayCase):
    """session_snapshot after the handshake."""

    def test_it_follows_the_handshake_unasked(self):
        browser = self.browser()
        self.assertIsInstance(browser.expect("session_snapshot")["sessions"], list)
        self.assertEqual([f["type"] for f in browser.log[:2]],
                         ["connection_ack", "session_snapshot"])

    def test_it_is_sent_again_on_every_reconnect(self):
        for _ in range(2):
            browser = self.browser()
            browser.expect("session_snapshot")
            browser.close()

    def test_a_proxy_is_not_sent_one(self):
        proxy = self.proxy()
        proxy.drain()
        self.assertFalse(proxy.seen("session_snapshot"))

    def test_it_has_metadata_and_not_just_ids(self):
        browser, proxy, name = self.browser(), self.proxy(), fresh("sess")
        self.register(proxy, browser, session(name, **FULL))
        shown = listed(self.browser("two"))[name]
        for field in ("session_id", "agent_type", "status"):
            self.assertHas(shown, field)
        for field in ("agent_type", "display_name", "window_title", "workspace_name",
                      "workspace_path", "target_signature", "status", "activity"):
            self.assertEqual(shown[field], FULL[field], field)
        self.assertUtc(shown["last_seen_at"])

    def test_the_required_fields_are_there_for_a_bare_session(self):
        browser, proxy, name = self.browser(), self.proxy(), fresh("sess")
        self.register(proxy, browser, session(name, agent_type="gemini"))
        shown = listed(self.browser("two"))[name]
        self.assertEqual((shown["agent_type"], shown["status"]), ("gemini", "healthy"))


class Up(RelayCase):
    """session_up."""

    def test_a_new_session_is_announced_to_every_browser(self):
        first, second, proxy = self.browser(), self.browser("two"), self.proxy()
        name = fresh("sess")
        self.register(proxy, first, session(name, **FULL))
        up = second.expect("session_up")
        self.assertHas(up, "event_id", "sequence", "session")
        self.assertIsInstance(up["sequence"], int)
        for field in ("agent_type", "display_name", "window_title", "workspace_name",
                      "workspace_path", "target_signature", "status"):
            self.assertEqual(up["session"][field], FULL[field], field)
        self.assertEqual(up["session"]["session_id"], name)

    def test_the_target_id_is_never_the_session_id(self):
        browser, proxy, name = self.browser(), self.proxy(), fresh("sess")
        self.register(proxy, browser, session(name, target_id="target_7"))
        self.assertNotIn("target_7", listed(self.browser("two")))

    def test_a_resumed_session_comes_up_with_its_old_id_and_a_later_sequence(self):
        browser, proxy, name = self.browser(), self.proxy(), fresh("sess")
        self.register(proxy, browser, session(name, target_id="before"))
        proxy.close()
        down = browser.expect("session_down", session_id=name)
        self.register(self.proxy(), browser, session(name, target_id="after"))
        ups = [f for f in browser.seen("session_up") if f["session"]["session_id"] == name]
        self.assertEqual(len(ups), 2)
        self.assertLess(ups[0]["sequence"], down["sequence"])
        self.assertLess(down["sequence"], ups[1]["sequence"])

    def test_the_same_snapshot_twice_is_not_a_second_session(self):
        browser, proxy, name = self.browser(), self.proxy(), fresh("sess")
        self.register(proxy, browser, session(name))
        proxy.send("proxy_session_snapshot", sessions=[session(name)])
        proxy.drain()
        sessions = self.browser("two").expect("session_snapshot")["sessions"]
        self.assertEqual([s["session_id"] for s in sessions].count(name), 1)
        browser.drain()
        self.assertFalse(browser.seen("session_down", session_id=name))

    def test_renamed_metadata_reaches_the_browsers(self):
        browser, proxy, name = self.browser(), self.proxy(), fresh("sess")
        self.register(proxy, browser, session(name, window_title="old"))
        proxy.send("proxy_session_snapshot", sessions=[session(name, window_title="new")])
        proxy.drain()
        self.assertEqual(listed(self.browser("two"))[name]["window_title"], "new")

    def test_two_machines_can_both_have_sessions(self):
        browser, one, two = self.browser(), self.proxy("one"), self.proxy("two")
        a, b = fresh("sess"), fresh("sess")
        self.register(one, browser, session(a))
        self.register(two, browser, session(b))
        browser.drain()
        self.assertFalse(browser.seen("session_down", session_id=a))
        shown = listed(self.browser("two"))
        self.assertEqual(shown[a]["machine_label"], "Machine-one")
        self.assertEqual(shown[b]["machine_label"], "Machine-two")


class Down(RelayCase):
    """session_down."""

    def check(self, browser, name):
        down = browser.expect("session_down", session_id=name)
        self.assertHas(down, "event_id", "sequence", "reason")
        up = [f for f in browser.seen("session_up") if f["session"]["session_id"] == name]
        self.assertGreater(down["sequence"], up[-1]["sequence"])
        shown = listed(self.browser("two"))
        # Listed as disconnected or not listed: both are "unavailable".
        if name in shown:
            self.assertEqual(shown[name]["status"], "disconnected")
        return down

    def test_a_proxy_that_closes_takes_its_sessions_down(self):
        browser, proxy, name = self.stage()
        proxy.close()
        self.assertEqual(self.check(browser, name)["reason"], "proxy_disconnected")

    def test_a_proxy_that_vanishes_takes_its_sessions_down(self):
        browser, proxy, name = self.stage()
        proxy.cut()
        self.assertEqual(self.check(browser, name)["reason"], "proxy_disconnected")

    def test_a_session_left_out_of_the_next_snapshot_goes_down(self):
        browser, proxy = self.browser(), self.proxy()
        stays, goes = fresh("sess"), fresh("sess")
        self.register(proxy, browser, session(stays), session(goes))
        proxy.send("proxy_session_snapshot", sessions=[session(stays)])
        self.check(browser, goes)
        browser.drain()
        self.assertFalse(browser.seen("session_down", session_id=stays))

    def test_an_empty_snapshot_takes_everything_of_that_machine_down(self):
        browser, proxy, other = self.browser(), self.proxy(), self.proxy("two")
        mine, theirs = fresh("sess"), fresh("sess")
        self.register(other, browser, session(theirs))
        self.register(proxy, browser, session(mine))
        proxy.send("proxy_session_snapshot", sessions=[])
        self.check(browser, mine)
        browser.drain()
        self.assertFalse(browser.seen("session_down", session_id=theirs))

    def test_every_browser_hears_of_it(self):
        browser, proxy, name = self.stage()
        second = self.browser("two")
        proxy.close()
        a = browser.expect("session_down", session_id=name)
        b = second.expect("session_down", session_id=name)
        self.assertEqual((a["event_id"], a["sequence"]), (b["event_id"], b["sequence"]))


class Status(RelayCase):
    """session_status from proxy_status."""

    def test_a_change_of_health_and_activity_is_told_to_every_browser(self):
        browser, proxy, name = self.stage()
        second = self.browser("two")
        activity = {"kind": "thinking", "label": "Thinking",
                    "updated_at": "2026-03-19T10:18:00.000Z"}
        proxy.send("proxy_status", session_id=name, status="degraded", activity=activity)
        for peer in (browser, second):
            status = peer.expect("session_status", session_id=name)
            self.assertHas(status, "event_id", "sequence")
            self.assertEqual(status["status"], "degraded")
            self.assertEqual(status["activity"], activity)
        self.assertEqual(listed(self.browser())[name]["status"], "degraded")

    def test_every_status_of_the_text_comes_through(self):
        browser, proxy, name = self.stage()
        for status in ("degraded", "scraping_failed", "agent_ui_changed", "healthy"):
            with self.subTest(status=status):
                proxy.send("proxy_status", session_id=name, status=status)
                browser.expect("session_status", session_id=name, status=status)

    def test_every_activity_of_the_text_comes_through(self):
        browser, proxy, name = self.stage()
        for kind in sorted(ACTIVITIES):
            with self.subTest(kind=kind):
                proxy.send("proxy_status", session_id=name, status="healthy",
                           activity={"kind": kind, "label": kind, "updated_at": CREATED})
                browser.expect("session_status", session_id=name,
                               where=lambda f: f.get("activity", {}).get("kind") == kind)

    def test_the_sequence_grows_with_every_change(self):
        browser, proxy, name = self.stage()
        for status in ("degraded", "healthy", "scraping_failed"):
            proxy.send("proxy_status", session_id=name, status=status)
            browser.expect("session_status", session_id=name, status=status)
        numbers = [f["sequence"] for f in browser.seen("session_status", session_id=name)]
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_a_word_that_the_text_does_not_list_harms_nobody_else(self):
        """The text says "should": refusing, translating and passing on are all sound."""
        browser, proxy, name = self.stage()
        odd = fresh("sess")
        proxy.send("proxy_status", session_id=name, status="purple",
                   activity={"kind": "dancing", "label": "Dancing", "updated_at": CREATED})
        proxy.send("proxy_session_snapshot",
                   sessions=[session(name), session(odd, agent_type="toaster", status="odd")])
        proxy.drain()
        self.delivered(browser, proxy, name)

    def test_the_status_of_a_session_nobody_knows_is_not_told(self):
        browser, proxy, _ = self.stage()
        proxy.send("proxy_status", session_id="sess_ghost", status="degraded")
        proxy.drain(), browser.drain()
        self.assertFalse(browser.seen("session_status", session_id="sess_ghost"))


if __name__ == "__main__":
    unittest.main()
