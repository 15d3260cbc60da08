#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""On the host: what a rig of several nodes needs beside node 0.

  host.py SOCKETS REGIONS REGION-BYTES RAM-BYTES FOLDER...

One FOLDER for each node. For all but the first, which belongs to the caller,
it has a file "argv" with the words of a command that boots the node. SOCKETS
is a folder: in it appear "ivshmem-R", the server of shared region R, "region-R",
the region itself, "port-K" for node K's serial port, "ram-K" for its memory if
RAM-BYTES is not 0, and "ready" when all of that is there.

SIGTERM ends it: the nodes shut down, or are ended when they do not.
"""

import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

import frames

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../ivshmem-server"))
# pylint: disable=wrong-import-position
from mic_ivshmem_server import Server

SHUTDOWN_SECONDS = 240
PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Node:
    """A node: its folder, its process if it is ours, and its serial port."""

    def __init__(self, number, folder):
        self.number = number
        self.folder = folder
        self.process = None
        self.stopped = False
        self.quitting = False
        self.reset()

    def reset(self):
        self.port = None
        self.reader = frames.Reader()
        self.ready = False
        self.backlog = b""  # not yet sent, since the port is full
        self.waiting = []  # frames for a node that isn't up yet

    def start(self):
        with open(f"{self.folder}/argv", "rb") as file:
            words = file.read().decode().split("\0")[:-1]
        with open(f"{self.folder}/qemu", "ab") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=die_with_parent)
        self.stopped = False

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def mark(self, name):
        with open(f"{self.folder}/{name}", "w", encoding="ascii"):
            pass


class Host:
    def __init__(self, sockets, regions, size, ram, folders):
        self.sockets = sockets
        self.regions = regions
        self.selector = selectors.DefaultSelector()
        for i in range(regions):
            self.serve(i, size)
        for i in range(len(folders) if ram else 0):
            memory = os.memfd_create(f"mic-ram-{i}", os.MFD_CLOEXEC)
            os.ftruncate(memory, ram)
            self.publish(memory, f"ram-{i}")
        self.nodes = [Node(i, f) for i, f in enumerate(folders)]
        for node in self.nodes:
            self.listen(node)
        self.calls = {}  # (caller, call): callee
        self.deadline = None

    def wait_on(self, file, function, events=selectors.EVENT_READ):
        self.selector.register(file, events, function)

    # the regions and their devices

    def serve(self, number, size):
        memory = os.memfd_create("mic-region", os.MFD_CLOEXEC)
        os.ftruncate(memory, size)
        server = Server(f"{self.sockets}/ivshmem-{number}", memory)
        self.publish(memory, f"region-{number}")
        self.wait_on(server.selector, lambda _: server.dispatch())

    def publish(self, memory, name):
        os.symlink(f"/proc/{os.getpid()}/fd/{memory}", f"{self.sockets}/{name}")

    # the serial ports

    def listen(self, node):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"{self.sockets}/port-{node.number}")
        listener.listen(1)
        self.wait_on(listener, lambda sock: self.port_connects(node, sock))

    def port_connects(self, node, listener):
        port, _ = listener.accept()
        if node.port:
            self.port_gone(node)
        port.setblocking(False)
        node.reset()
        node.port = port
        self.wait_on(port, lambda _: self.port_event(node))

    def port_gone(self, node):
        self.selector.unregister(node.port)
        node.port.close()
        node.reset()
        for key, callee in list(self.calls.items()):
            if callee is node:
                self.answer(key, 255, f"node {node.number} is gone")
            elif key[0] == node.number:
                del self.calls[key]
                self.send(callee, node.number, frames.KILL, key[1])

    def port_event(self, node):
        self.flush(node)
        try:
            data = node.port.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.port_gone(node)
            return
        for frame in node.reader.feed(data):
            self.route(node, *frame)

    def flush(self, node):
        try:
            while node.backlog:
                sent = node.port.send(node.backlog)
                node.backlog = node.backlog[sent:]
        except BlockingIOError:
            pass
        except OSError:
            node.backlog = b""
        events = selectors.EVENT_READ
        if node.backlog:
            events |= selectors.EVENT_WRITE
        key = self.selector.get_key(node.port)
        if key.events != events:
            self.selector.modify(node.port, events, key.data)

    def send(self, node, source, kind, call, body=b""):
        frame = frames.pack(source, kind, call, body)
        if not node.ready:
            node.waiting.append(frame)
            return
        node.backlog += frame
        self.flush(node)

    def answer(self, key, status, text=""):
        """End a call in the place of a node that can't."""
        self.calls.pop(key, None)
        caller = self.nodes[key[0]]
        if text:
            self.send(caller, frames.HOST, frames.ERR, key[1],
                      f"rig: {text}\n".encode())
        self.send(caller, frames.HOST, frames.EXIT, key[1],
                  json.dumps({"status": status}).encode())

    def route(self, node, other, kind, call, body):
        if kind == frames.HELLO:
            node.ready = True
            waiting, node.waiting = node.waiting, []
            node.backlog += b"".join(waiting)
            self.flush(node)
        elif kind == frames.CONTROL:
            self.control((node.number, call), json.loads(body))
        elif kind == frames.RUN:
            key = (node.number, call)
            if other >= len(self.nodes) or other == node.number:
                self.answer(key, 255, f"there is no node {other} to run on")
                return
            callee = self.nodes[other]
            if callee.process is not None and not callee.alive():
                self.answer(key, 255, f"node {other} is not running")
                return
            self.calls[key] = callee
            self.send(callee, node.number, kind, call, body)
        elif kind == frames.KILL:
            callee = self.calls.get((node.number, call))
            if callee:
                self.send(callee, node.number, kind, call)
        elif other < len(self.nodes):
            # what a command printed, and how it ended
            if kind == frames.EXIT:
                self.calls.pop((other, call), None)
            self.send(self.nodes[other], node.number, kind, call, body)

    # what a test may do to a node

    def control(self, key, what):
        number, action = what["node"], what["action"]
        actions = {"kill": self.kill, "start": self.start,
                   "stop": self.stop, "cont": self.cont}
        if 0 <= number < len(self.nodes) and action in ("unplug", "plug"):
            self.hotplug(key, number, action)
            return
        if not 0 < number < len(self.nodes) or action not in actions:
            self.answer(key, 2, f"cannot {action} node {number}")
            return
        problem = actions[action](self.nodes[number])
        self.answer(key, 1 if problem else 0, problem)

    def kill(self, node):
        if not node.alive():
            return "it is not running"
        node.mark("killed")
        node.process.kill()
        node.process.wait()
        if node.port:
            self.port_gone(node)
        return ""

    def start(self, node):
        if node.alive():
            return "it is running"
        for name in ("setup", "status", "unload", "dmesg", "reports",
                     "heartbeat"):
            try:
                os.unlink(f"{node.folder}/{name}")
            except FileNotFoundError:
                pass
        node.mark("killed")  # or it has ended by itself: read its console
        node.start()
        return ""

    def stop(self, node):
        if not node.alive():
            return "it is not running"
        node.process.send_signal(signal.SIGSTOP)
        node.stopped = True
        return ""

    def cont(self, node):
        if not node.alive():
            return "it is not running"
        node.process.send_signal(signal.SIGCONT)
        node.stopped = False
        return ""

    def hotplug(self, key, number, action):
        """In a process of its own: the device asks us for its region meanwhile."""
        script = os.path.join(os.path.dirname(__file__), "hotplug.py")
        process = subprocess.Popen(
            [sys.executable, script, action, self.sockets, str(number),
             str(self.regions)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            preexec_fn=die_with_parent)
        self.wait_on(process.stdout,
                     lambda _: self.hotplugged(key, process))

    def hotplugged(self, key, process):
        self.selector.unregister(process.stdout)
        said, _ = process.communicate()
        self.answer(key, process.returncode, said.strip())

    # the end

    def quit(self):
        self.deadline = time.monotonic() + SHUTDOWN_SECONDS * self.slow()
        for node in self.nodes[1:]:
            if node.stopped:
                self.cont(node)
            if node.alive():
                self.send(node, frames.HOST, frames.QUIT, 0)

    def slow(self):
        return int(os.environ.get("MIC_SLOW", "1"))

    def over(self):
        if self.deadline is None:
            return False
        alive = [node for node in self.nodes[1:] if node.alive()]
        if alive and time.monotonic() > self.deadline:
            for node in alive:
                node.mark("timed-out")
                node.process.kill()
                node.process.wait()
            return True
        return not alive

    def run(self):
        wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGTERM, lambda *_: self.quit())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.wait_on(wake, lambda _: os.read(wake, 512))
        for node in self.nodes[1:]:
            node.start()
        with open(f"{self.sockets}/ready", "w", encoding="ascii"):
            pass
        while not self.over():
            timeout = None if self.deadline is None else 1
            for key, _ in self.selector.select(timeout):
                key.data(key.fileobj)


def main():
    die_with_parent()
    Host(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]),
         sys.argv[5:]).run()


main()
