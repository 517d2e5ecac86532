"""A small strict RFC 6455 client, written from the RFC and the protocol text alone.

It is deliberately strict about what the relay sends (no masked frames, no
reserved bits, whole UTF-8, unfragmented control frames), because a client
author in another language will use a library that is just as strict.
"""

import base64
import hashlib
import json
import os
import socket
import struct
import time
import uuid

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 0x1, 0x2, 0x8, 0x9, 0xA, 0x0

# Generous: it only bounds a wait that should end at once, so that a busy
# machine does not turn a passing suite into a failing one.
DEADLINE = 10.0


class Refused(Exception):
    """The HTTP upgrade was answered with something other than 101."""

    def __init__(self, status, head):
        super().__init__(f"upgrade refused with {status}")
        self.status = status
        self.head = head


class Violation(AssertionError):
    """The server broke RFC 6455."""


class Closed(Exception):
    """The connection has ended; code is None when no close frame came."""

    def __init__(self, code, reason=""):
        super().__init__(f"closed with {code} {reason!r}")
        self.code = code
        self.reason = reason


class Deadline(AssertionError):
    """What was awaited did not come in time."""


class WebSocket:
    """One client connection: frames in, frames out, nothing in the background."""

    def __init__(self, host, port, path, headers=None, timeout=DEADLINE):
        self.closed = None
        self.sent_close = False
        self.pongs = []
        self._buffer = b""
        self._fragments = None
        self.sock = socket.create_connection((host, port), timeout=timeout)
        try:
            self._upgrade(f"{host}:{port}", path, headers or {})
        except BaseException:
            self.sock.close()
            raise

    def _upgrade(self, host, path, headers):
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        ]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self._buffer:
            chunk = self.sock.recv(65536)
            if not chunk:
                raise Refused(0, self._buffer.decode("latin-1"))
            self._buffer += chunk
        head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        first, *rest = head.decode("latin-1").split("\r\n")
        status = int(first.split()[1])
        if status != 101:
            raise Refused(status, head.decode("latin-1"))
        fields = {}
        for line in rest:
            name, _, value = line.partition(":")
            fields[name.strip().lower()] = value.strip()
        wanted = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
        if fields.get("sec-websocket-accept") != wanted:
            raise Violation("wrong Sec-WebSocket-Accept")
        if fields.get("upgrade", "").lower() != "websocket":
            raise Violation("101 without Upgrade: websocket")
        if "sec-websocket-extensions" in fields:
            raise Violation("an extension was chosen that was not offered")

    # -- sending ---------------------------------------------------------

    def send_frame(self, opcode, payload=b"", fin=True):
        """Send one masked frame exactly as asked, even when the RFC forbids it."""
        head = bytes([(0x80 if fin else 0) | opcode])
        size = len(payload)
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += bytes([0x80 | 126]) + struct.pack(">H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", size)
        mask = os.urandom(4)
        keys = mask * (size // 4 + 1)
        body = bytes(a ^ b for a, b in zip(payload, keys))
        self.sock.sendall(head + mask + body)

    def send_text(self, text, pieces=1):
        """Send one text message, cut into several fragments when asked."""
        data = text.encode() if isinstance(text, str) else text
        step = max(1, -(-len(data) // pieces))
        parts = [data[i:i + step] for i in range(0, len(data), step)] or [b""]
        for index, part in enumerate(parts):
            opcode = TEXT if index == 0 else CONTINUATION
            self.send_frame(opcode, part, fin=index == len(parts) - 1)

    # -- receiving -------------------------------------------------------

    def _fill(self, size, deadline):
        while len(self._buffer) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Deadline("no whole frame before the deadline")
            self.sock.settimeout(left)
            try:
                chunk = self.sock.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                chunk = b""
            if not chunk:
                self.closed = Closed(None, "the stream ended without a close frame")
                raise self.closed
            self._buffer += chunk

    def _frame(self, deadline):
        """Read one frame; the buffer is only cut once the frame is whole."""
        self._fill(2, deadline)
        first, second = self._buffer[0], self._buffer[1]
        if first & 0x70:
            raise Violation("reserved bits are set")
        if second & 0x80:
            raise Violation("a server must not mask")
        size, at = second & 0x7F, 2
        if size == 126:
            self._fill(4, deadline)
            size, at = struct.unpack(">H", self._buffer[2:4])[0], 4
        elif size == 127:
            self._fill(10, deadline)
            size, at = struct.unpack(">Q", self._buffer[2:10])[0], 10
        self._fill(at + size, deadline)
        payload, self._buffer = self._buffer[at:at + size], self._buffer[at + size:]
        fin, opcode = bool(first & 0x80), first & 0x0F
        if opcode >= 0x8 and (not fin or size > 125):
            raise Violation("a control frame is fragmented or too long")
        return fin, opcode, payload

    def receive(self, timeout=DEADLINE):
        """The next whole message as (opcode, bytes); control frames are handled."""
        if self.closed:
            raise self.closed
        deadline = time.monotonic() + timeout
        while True:
            fin, opcode, payload = self._frame(deadline)
            if opcode == PING:
                self.send_frame(PONG, payload)
            elif opcode == PONG:
                self.pongs.append(payload)
            elif opcode == CLOSE:
                self._on_close(payload)
            elif opcode in (TEXT, BINARY):
                if self._fragments is not None:
                    raise Violation("a new message inside a fragmented one")
                if fin:
                    return opcode, payload
                self._fragments = [opcode, payload]
            elif opcode == CONTINUATION:
                if self._fragments is None:
                    raise Violation("a continuation of nothing")
                self._fragments[1] += payload
                if fin:
                    message, self._fragments = tuple(self._fragments), None
                    return message
            else:
                raise Violation(f"unknown opcode {opcode}")

    def _on_close(self, payload):
        if len(payload) == 1:
            raise Violation("a close frame of one byte")
        code = struct.unpack(">H", payload[:2])[0] if payload else 1005
        reason = payload[2:].decode("utf-8")
        if not self.sent_close:
            self.sent_close = True
            try:
                self.send_frame(CLOSE, payload[:2])
            except OSError:
                pass  # the server is already gone, which is its right by now
        self.closed = Closed(code, reason)
        raise self.closed

    def close(self, code=1000, timeout=DEADLINE):
        """Close politely, and wait until the relay has said that it saw it."""
        try:
            if not self.closed and not self.sent_close:
                self.sent_close = True
                self.send_frame(CLOSE, struct.pack(">H", code))
            deadline = time.monotonic() + timeout
            while not self.closed:
                self.receive(deadline - time.monotonic())
        except (Closed, Deadline, OSError):
            pass
        finally:
            self.sock.close()

    def cut(self):
        """Go away without a word, as a phone in a tunnel does."""
        self.closed = self.closed or Closed(None, "cut by the client")
        self.sock.close()


class Peer:
    """A protocol peer: JSON frames on top of a WebSocket.

    `log` holds every frame ever received, in order, so that a test can ask
    about order and absence; `inbox` holds those not yet handed to the test.
    """

    def __init__(self, host, port, path, token=None, headers=None):
        headers = dict(headers or {})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self.ws = WebSocket(host, port, path, headers)
        self.log = []
        self.inbox = []
        self.ack = None

    def send(self, type, **fields):
        """Send one frame with the envelope that every message must include."""
        frame = {"type": type, "protocol_version": 1, **fields}
        self.ws.send_text(json.dumps(frame))
        return frame

    def send_raw(self, value):
        """Send any JSON value, or any text, without adding an envelope."""
        self.ws.send_text(value if isinstance(value, str) else json.dumps(value))

    def _pull(self, timeout):
        opcode, payload = self.ws.receive(timeout)
        if opcode != TEXT:
            raise Violation("protocol frames are UTF-8 JSON, this one was binary")
        frame = json.loads(payload.decode("utf-8"))
        if not isinstance(frame, dict):
            raise AssertionError(f"protocol frames are objects: {frame!r}")
        self.log.append(frame)
        self.inbox.append(frame)

    def expect(self, type, timeout=DEADLINE, where=None, **fields):
        """Take the first unread frame of this type whose fields match."""
        types = (type,) if isinstance(type, str) else tuple(type)
        deadline = time.monotonic() + timeout
        while True:
            for index, frame in enumerate(self.inbox):
                if frame.get("type") not in types:
                    continue
                if any(frame.get(key) != value for key, value in fields.items()):
                    continue
                if where and not where(frame):
                    continue
                return self.inbox.pop(index)
            left = deadline - time.monotonic()
            try:
                if left <= 0:
                    raise Deadline("deadline")
                self._pull(left)
            except (Deadline, Closed) as end:
                raise Deadline(
                    f"no {types} {fields} came ({end}); unread: {self.inbox}"
                ) from None

    def expect_close(self, timeout=DEADLINE):
        """Wait until the relay ends this connection; give its close code."""
        deadline = time.monotonic() + timeout
        try:
            while True:
                self._pull(max(0.0, deadline - time.monotonic()))
        except Closed as end:
            return end.code

    def drain(self):
        """Take all that the relay had for us, with a heartbeat as the barrier.

        The relay answers on one ordered stream, so what it had queued before
        our heartbeat has arrived when the heartbeat_ack has.
        """
        mark = f"drain_{uuid.uuid4()}"
        self.send("heartbeat", request_id=mark)
        self.expect("heartbeat_ack", request_id=mark)
        taken, self.inbox = self.inbox, []
        return taken

    def seen(self, type, **fields):
        """Every frame of this type that has ever come, in order."""
        return [
            frame for frame in self.log
            if frame.get("type") == type
            and all(frame.get(key) == value for key, value in fields.items())
        ]

    def close(self):
        """Close politely."""
        self.ws.close()

    def cut(self):
        """Vanish."""
        self.ws.cut()
