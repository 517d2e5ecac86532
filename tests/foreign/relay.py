"""Runs the real relay binary on a folder of its own, and always ends it."""

import atexit
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from wire import Peer

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.environ.get("REMORA_RELAY_BIN") or os.path.abspath(
    os.path.join(HERE, "..", "..", "target", "debug", "relay-server")
)
START_DEADLINE = 20.0
STOP_DEADLINE = 10.0

_running = set()


def _end_leftovers():
    """End what a crashed test left behind: our own processes, by their pid."""
    for relay in list(_running):
        relay.kill9()


atexit.register(_end_leftovers)


def _environment():
    """The caller's settings must not leak into the relay under test."""
    return {k: v for k, v in os.environ.items() if not k.startswith("REMORA_")}


class Relay:
    """One relay process and its data folder, which outlives the process."""

    def __init__(self, **flags):
        self.flags = flags
        self.folder = tempfile.mkdtemp(prefix="foreign-relay-")
        self.data = os.path.join(self.folder, "data")
        self.process = None
        self._labels = 0

    def start(self):
        command = [BINARY, "serve", "--listen", "127.0.0.1:0", "--data-dir", self.data]
        for name, value in self.flags.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        errors = open(os.path.join(self.folder, "stderr.txt"), "ab")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors,
            stdin=subprocess.DEVNULL, env=_environment(), cwd=self.folder,
        )
        errors.close()
        _running.add(self)
        line = self._first_line()
        found = re.search(r"http://([^\s:/]+):(\d+)", line)
        if not found:
            self.kill9()
            raise AssertionError(f"no address in the first line: {line!r}")
        self.host, self.port = found.group(1), int(found.group(2))
        # Nobody reads further lines, but a full pipe must not stop the relay.
        threading.Thread(
            target=_swallow, args=(self.process.stdout,), daemon=True
        ).start()
        return self

    def _first_line(self):
        deadline = time.monotonic() + START_DEADLINE
        pipe, line = self.process.stdout.fileno(), b""
        while b"\n" not in line:
            ready, _, _ = select.select([pipe], [], [], deadline - time.monotonic())
            chunk = os.read(pipe, 4096) if ready else b""
            if not chunk:
                self.kill9()
                raise AssertionError(f"the relay did not start: {self.stderr()}")
            line += chunk
        return line.decode().splitlines()[0]

    def stderr(self):
        with open(os.path.join(self.folder, "stderr.txt"), encoding="utf-8") as file:
            return file.read()

    def stop(self):
        """Ask the relay to end, and insist after a while."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_DEADLINE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(STOP_DEADLINE)
        _running.discard(self)

    def kill9(self):
        """The power cut: nothing in the relay gets to say good-bye."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(STOP_DEADLINE)
        _running.discard(self)

    def restart(self):
        """Kill -9 and start again on the same data."""
        self.kill9()
        return self.start()

    def remove(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def token(self, role, label=None):
        """Make a token with the command line, as an operator would."""
        self._labels += 1
        label = label or f"{role}-{self._labels}"
        done = subprocess.run(
            [BINARY, "token", "create", "--role", role, "--label", label,
             "--data-dir", self.data],
            capture_output=True, text=True, timeout=START_DEADLINE,
            env=_environment(), check=True,
        )
        return done.stdout.split()[-1]

    def open(self, role, token):
        """Open a socket for this role without saying anything on it yet."""
        path = "/client-ws" if role == "browser" else "/proxy-ws"
        return Peer(self.host, self.port, path, token)


def _swallow(pipe):
    """Read a pipe to its end and drop what is in it."""
    with pipe:
        while pipe.read(65536):
            pass
