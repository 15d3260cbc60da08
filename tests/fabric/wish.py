#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A node that has room for one answer at a time: does node 0 say that it waits?

  wish.py NODE SLOT COUNT

NODE and SLOT are as for forge.py. Node 0 always has pings to answer, and its lane of
answers is full. With the answer to each of COUNT requests of its own it gets room for
one pong. Whoever receives there: each time it has to say that it waits for more room,
or nobody would ring when there is some. Prints how often it did not.
"""

import sys
import time

from forge import (FRAME, PATIENCE, RECORD, REQUEST, RESPONSE, TYPE_REQUEST, Peer)
from region import Region

TYPE_PING = 4
PING = RECORD.pack(64, TYPE_PING, 0, 0, 1, 0)
ROOM = 2 * 64  # what it looks for before it answers one


def wants_room(peer):
    return peer.region.read(peer.back + 8, 4) != 0


def give_room(peer, size):
    """So much in node 0's lane of answers, and no more."""
    prod = peer.region.read(peer.back + 12 + 4 * RESPONSE, 4)
    peer.region.write(peer.back + 64 + 4 * RESPONSE, 4,
                      (prod - peer.region.lane_size + size) & 0xffffffff)


def ask(peer):
    """There are two pings that have no answer."""
    while (peer.head[REQUEST] -
           peer.region.read(peer.out + 64 + 4 * REQUEST, 4)) < 2 * 64:
        peer.send(REQUEST, PING)


def until(peer, look):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        peer.live()
        peer.receive(FRAME)
        found = look()
        if found:
            return found
    sys.exit("node 0 does nothing")


def next_request(peer):
    record = peer.receive(REQUEST)
    return record if record and record[4] == TYPE_REQUEST else None


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    node, slot, count = (int(word) for word in sys.argv[1:])
    peer, missing = Peer(Region(), node, slot), 0
    peer.has_interrupts()
    peer.meet()
    try:
        peer.ring = lambda: None  # who receives there looks by himself
        give_room(peer, 0)
        ask(peer)
        until(peer, lambda: wants_room(peer))
        print("ready", flush=True)
        for _ in range(count):
            record = until(peer, lambda: next_request(peer))
            missing += not wants_room(peer)
            ask(peer)
            give_room(peer, ROOM)
            peer.answer(record)
        # who leaves before that may take the last one with him
        until(peer, lambda: peer.is_taken(RESPONSE))
        print(missing)
    finally:
        peer.region.write(peer.entry, 4, 0)


if __name__ == "__main__":
    main()
