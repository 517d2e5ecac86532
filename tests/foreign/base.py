"""What every test file needs: a relay per class, peers per test, small checks."""

import datetime
import re
import unittest
import uuid

from relay import Relay

ACTIVITIES = {
    "thinking", "generating", "reading_files", "running_command",
    "applying_patch", "waiting_for_user", "idle",
}
CREATED = "2026-03-19T10:16:30.000Z"
UTC = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$")


def fresh(prefix):
    """An id nobody else uses, so that tests can share one relay."""
    return f"{prefix}_{uuid.uuid4().hex[:12]}"


def moment(text):
    """A protocol timestamp as a datetime."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def code_of(frame):
    """The error code of a result.

    The rules speak of `error_code`, the example of agent_control_result shows
    `error.code`; a tolerant client reads both.
    """
    return frame.get("error_code") or frame.get("code") or frame.get("error", {}).get("code")


def session(session_id, **fields):
    """A session as a proxy reports it."""
    return {"session_id": session_id, "agent_type": "codex", "status": "healthy", **fields}


CHOICES = [
    {"choice_id": "yes", "label": "Yes", "is_default": False},
    {"choice_id": "no", "label": "No", "is_default": True},
    {"choice_id": "always", "label": "Always", "is_default": False},
]


def dialog(session_id, prompt_id, **fields):
    """A permission_prompt with its required fields."""
    return {
        "session_id": session_id, "prompt_id": prompt_id,
        "prompt_text": "Edit file relay-server/index.js?",
        "choices": [dict(choice) for choice in CHOICES], **fields,
    }


class RelayCase(unittest.TestCase):
    """One relay for the class; tokens by name; every peer closed in the end."""

    FLAGS = {}
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.relay = Relay(**cls.FLAGS)
        cls.addClassCleanup(cls.relay.remove)
        cls.tokens = {}
        cls.relay.start()

    def setUp(self):
        self.peers = []

    def tearDown(self):
        for peer in self.peers:
            peer.close()
        # The envelope is required on every message, so every test checks it.
        for peer in self.peers:
            for frame in peer.log:
                self.assertIsInstance(frame.get("type"), str, frame)
                self.assertEqual(frame.get("protocol_version"), 1, frame)

    # -- peers -----------------------------------------------------------

    def token(self, role, name):
        """The token of a browser or a machine known by this name."""
        key = (role, name)
        if key not in self.tokens:
            self.tokens[key] = self.relay.token(role, f"{role}-{name}")
        return self.tokens[key]

    def socket(self, role, name="one"):
        """A socket on which nothing has been said yet."""
        peer = self.relay.open(role, self.token(role, name))
        self.peers.append(peer)
        return peer

    def browser(self, name="one", **hello):
        """A browser after the handshake; its session_snapshot is unread."""
        peer = self.socket("browser", name)
        peer.send("connection_hello", peer_role="browser", client_name="foreign", **hello)
        peer.ack = peer.expect("connection_ack")
        return peer

    def proxy(self, name="one", **hello):
        """A proxy after the handshake, with no sessions yet."""
        peer = self.socket("proxy", name)
        hello.setdefault("machine_label", f"Machine-{name}")
        peer.send("connection_hello", peer_role="proxy", client_name="foreign", **hello)
        peer.ack = peer.expect("connection_ack")
        return peer

    def register(self, proxy, browser, *sessions):
        """Let the proxy report these sessions, and wait until a browser sees them."""
        proxy.send("proxy_session_snapshot", sessions=list(sessions))
        for one in sessions:
            browser.expect(
                "session_up",
                where=lambda f, wanted=one["session_id"]: f["session"]["session_id"] == wanted,
            )

    def stage(self, proxy_name="one"):
        """The usual cast: a browser, a proxy, and one healthy session."""
        browser, proxy, name = self.browser(), self.proxy(proxy_name), fresh("sess")
        self.register(proxy, browser, session(name))
        return browser, proxy, name

    # -- messages --------------------------------------------------------

    def post(self, browser, session_id, content="hello", **fields):
        """Send a message and give its client_message_id."""
        fields.setdefault("client_message_id", fresh("msg"))
        fields.setdefault("created_at", CREATED)
        browser.send("send_message", session_id=session_id, content=content, **fields)
        return fields["client_message_id"]

    def delivered(self, browser, proxy, session_id, content="hello"):
        """Take one message through its whole happy life."""
        name = self.post(browser, session_id, content)
        browser.expect("message_accepted", client_message_id=name)
        proxy.expect("send_message", client_message_id=name)
        proxy.send("proxy_send_result", session_id=session_id, client_message_id=name,
                   result="delivered", delivered_at=CREATED)
        browser.expect("message_delivered", client_message_id=name)
        return name

    def say(self, browser, proxy, session_id, content, role="assistant"):
        """Let the agent say something; give the message_event."""
        proxy.send("proxy_message", session_id=session_id,
                   message={"role": role, "content": content, "created_at": CREATED})
        return browser.expect(
            "message_event", session_id=session_id,
            where=lambda f: f["message"]["content"] == content,
        )

    def snapshot_of(self, browser, session_id):
        """The whole history of a session."""
        browser.send("history_request", session_id=session_id)
        return browser.expect("history_snapshot", session_id=session_id)

    # -- checks ----------------------------------------------------------

    def assertHas(self, frame, *names):
        """The frame carries these fields, and they are not null."""
        for name in names:
            self.assertIsNotNone(frame.get(name), f"{name} is missing in {frame}")

    def assertUtc(self, text):
        """The text is an ISO 8601 UTC timestamp."""
        self.assertRegex(text, UTC)

    def assertRefused(self, peer, request=None):
        """The relay calls the last thing we said an error; give that error."""
        error = peer.expect("connection_error")
        self.assertHas(error, "code", "message")
        self.assertIsInstance(error["code"], str)
        self.assertIsInstance(error["message"], str)
        return error

    def assertAlive(self, peer):
        """The connection still works."""
        peer.drain()
