# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Frames between the nodes of a rig: what travels over their serial ports.

A frame is a header and a body. The header names the other node: towards the
relay the one it is for, from the relay the one it comes from.
"""

import struct

HEADER = struct.Struct("<IBBHI")  # body bytes, node, kind, 0, call
HOST = 255  # the node number of the relay itself
BODY_MAX = 65536

HELLO = 1  # a node is there
RUN = 2  # JSON: run a command
OUT = 3  # what it printed
ERR = 4
EXIT = 5  # JSON: it ended so
KILL = 6  # the caller has gone: end it
QUIT = 7  # the node is to end
CONTROL = 8  # JSON, to the relay: do something with a node


def pack(node, kind, call=0, body=b""):
    return HEADER.pack(len(body), node, kind, 0, call) + body


class Reader:
    """Bytes as they arrive, into frames."""

    def __init__(self):
        self.data = b""

    def feed(self, data):
        self.data += data
        while len(self.data) >= HEADER.size:
            size, node, kind, _, call = HEADER.unpack_from(self.data)
            end = HEADER.size + size
            if len(self.data) < end:
                return
            body = self.data[HEADER.size:end]
            self.data = self.data[end:]
            yield node, kind, call, body
