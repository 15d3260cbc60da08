# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""QEMU's machine protocol (qemu-qmp-ref(7)), as much of it as the tests need."""

import json
import os
import socket

SECONDS = 60 * int(os.environ.get("MIC_SLOW", "1"))


class Refused(Exception):
    """QEMU does not carry a command out."""


class Monitor:
    """A connection to a QEMU: at a path, or at a pair of host and port."""

    def __init__(self, address):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(address)
        self.file = self.sock.makefile("rw", encoding="utf-8")
        self.events = []
        self.read()  # its greeting
        self.call("qmp_capabilities")

    def read(self):
        line = self.file.readline()
        if not line:
            raise Refused("QEMU has ended")
        return json.loads(line)

    def call(self, command, **arguments):
        json.dump({"execute": command, "arguments": arguments}, self.file)
        self.file.write("\n")
        self.file.flush()
        while True:
            said = self.read()
            if "event" in said:
                self.events.append(said)
            elif "error" in said:
                raise Refused(f"{command}: {said['error']['desc']}")
            else:
                return said["return"]

    def await_event(self, name, **data):
        """An event of that NAME, which has at least this DATA."""
        while True:
            event = self.events.pop(0) if self.events else self.read()
            if event.get("event") == name and \
                    data.items() <= event["data"].items():
                return
