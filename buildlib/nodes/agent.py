#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""In a node: runs what other nodes ask for, and takes what this one asks of
others to them.

  agent.py PORT GROUP [--until-quit]

PORT is the serial port to the host, GROUP the cgroup below which each command
gets its own. Local callers (buildlib/nodes/on.py) connect to SOCKET.
"""

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys

import frames

SOCKET = "/run/mic-rig"


class Command:
    """A command that another node has us run."""

    def __init__(self, agent, node, call, what):
        self.agent, self.node, self.call = agent, node, call
        self.group = agent.group_of(node, call)
        os.makedirs(self.group, exist_ok=True)
        self.process = subprocess.Popen(
            what["argv"], cwd=what["cwd"], env={**os.environ, **what["env"]},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=self.enter)
        self.pipes = {self.process.stdout: frames.OUT,
                      self.process.stderr: frames.ERR}
        for pipe in self.pipes:
            os.set_blocking(pipe.fileno(), False)
            agent.wait_on(pipe, self.read)
        self.pidfd = os.pidfd_open(self.process.pid)
        agent.wait_on(self.pidfd, self.ended)

    def enter(self):
        with open(f"{self.group}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")

    def send(self, kind, body):
        self.agent.send(self.node, kind, self.call, body)

    def read(self, pipe):
        """What is there; False if there is no more now."""
        try:
            data = os.read(pipe.fileno(), frames.BODY_MAX)
        except BlockingIOError:
            return False
        if not data:
            self.agent.forget(pipe)
            return False
        self.send(self.pipes[pipe], data)
        return True

    def kill(self):
        with open(f"{self.group}/cgroup.kill", "w", encoding="ascii") as file:
            file.write("1")

    def ended(self, _):
        """It ended; what it left behind ends with it."""
        status = self.process.wait()
        self.kill()
        for pipe in self.pipes:
            while not pipe.closed and self.read(pipe):
                pass
            self.agent.forget(pipe)
        self.agent.forget(self.pidfd)
        os.close(self.pidfd)
        if status < 0:
            status = 128 - status
        self.send(frames.EXIT, json.dumps({"status": status}).encode())
        del self.agent.commands[self.node, self.call]
        self.agent.remove_group(self.group)


class Agent:
    def __init__(self, port, group):
        self.group = group
        self.port = os.open(port, os.O_RDWR | os.O_CLOEXEC)
        self.reader = frames.Reader()
        self.selector = selectors.DefaultSelector()
        self.commands = {}
        self.callers = {}  # call: the local caller's socket
        self.readers = {}
        self.next = 1
        self.ended_groups = []
        self.wait_on(self.port, self.port_says)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Who sees it can connect.
        self.listener.bind(SOCKET + ".new")
        self.listener.listen(64)
        os.rename(SOCKET + ".new", SOCKET)
        self.wait_on(self.listener, self.caller_connects)
        self.quit = False

    def wait_on(self, file, function):
        self.selector.register(file, selectors.EVENT_READ, function)

    def forget(self, file):
        try:
            self.selector.unregister(file)
        except (KeyError, ValueError):
            return
        if not isinstance(file, int):
            file.close()

    def send(self, node, kind, call, body=b""):
        data = frames.pack(node, kind, call, body)
        while data:
            data = data[os.write(self.port, data):]

    # what other nodes want

    def port_says(self, _):
        data = os.read(self.port, 1 << 16)
        for node, kind, call, body in self.reader.feed(data):
            if kind == frames.RUN:
                self.start(node, call, json.loads(body))
            elif kind == frames.KILL:
                command = self.commands.get((node, call))
                if command:
                    command.kill()
            elif kind == frames.QUIT:
                self.quit = True
            else:
                self.to_caller(kind, call, body)

    def start(self, node, call, what):
        try:
            self.commands[node, call] = Command(self, node, call, what)
        except OSError as error:
            self.send(node, frames.ERR, call, f"rig: {error}\n".encode())
            self.send(node, frames.EXIT, call,
                      json.dumps({"status": 127}).encode())
            self.remove_group(self.group_of(node, call))

    def group_of(self, node, call):
        return f"{self.group}/on-{node}-{call}"

    def remove_group(self, group):
        """Or later: what was killed in it may take its time."""
        groups = self.ended_groups + [group]
        self.ended_groups = []
        for group in groups:
            try:
                os.rmdir(group)
            except OSError:
                self.ended_groups.append(group)

    # what local callers want

    def caller_connects(self, _):
        sock, _ = self.listener.accept()
        call, self.next = self.next, self.next + 1
        self.callers[call] = sock
        self.readers[call] = frames.Reader()
        self.wait_on(sock, lambda _: self.caller_says(call))

    def caller_says(self, call):
        try:
            data = self.callers[call].recv(1 << 16)
        except ConnectionResetError:  # killed, with something unread
            data = b""
        if not data:
            self.caller_gone(call)
            return
        for node, kind, _, body in self.readers[call].feed(data):
            self.send(node, kind, call, body)

    def caller_gone(self, call):
        """It has its answer, or it was killed: so is what it asked for."""
        self.forget(self.callers.pop(call))
        del self.readers[call]
        self.send(frames.HOST, frames.KILL, call)

    def to_caller(self, kind, call, body):
        sock = self.callers.get(call)
        if sock:
            try:
                sock.sendall(frames.pack(0, kind, call, body))
            except OSError:
                pass  # seen as gone by its own event

    def run(self, until_quit):
        self.send(frames.HOST, frames.HELLO, 0)
        while not (self.quit and until_quit):
            for key, _ in self.selector.select():
                if self.selector.get_map().get(key.fd) is key:
                    key.data(key.fileobj)
        for command in list(self.commands.values()):
            command.kill()


def main():
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET)
    Agent(sys.argv[1], sys.argv[2]).run("--until-quit" in sys.argv)


main()
