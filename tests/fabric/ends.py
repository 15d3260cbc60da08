#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A node that ends sessions in order, while frames are on their way.

  ends.py NODE SLOT to COUNT     it sends frames to node 0
  ends.py NODE SLOT from COUNT   somebody there sends frames to it, all the time

NODE and SLOT are as for forge.py. In each of COUNT sessions frames arrive, and then it
begins the next one, as a driver does whose side of the path goes down.
"""

import struct
import sys
import time

from forge import FRAME, LANES, PATIENCE, RECORD, TYPE_FRAME, Broken, Peer
from region import NODE, Region

BURST = 200


def end_session(peer):
    """And begin one; node 0's, which has not changed, is seen as if it were new."""
    write = peer.region.write
    write(peer.out, 8, 0)
    for lane in range(LANES):
        write(peer.out + 12 + 4 * lane, 4, 0)
    peer.session += 1
    write(peer.out, 8, peer.session)
    for lane in range(LANES):
        write(peer.back + 64 + 4 * lane, 4, 0)
        peer.head[lane] = peer.tail[lane] = 0
    write(peer.out, 8, peer.theirs << 32 | peer.session)


def node_0_notices(peer):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            peer.live()
        except Broken:
            return
    sys.exit("node 0 stays in a session that has ended")


def until(peer, look):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        peer.live()
        if look():
            return
    sys.exit("no frames arrive")


def taken(peer):
    """How much of the lane of frames node 0 has read."""
    return peer.region.read(peer.out + 64 + 4 * FRAME, 4)


def frames_to(peer):
    """Many at once. It ends while node 0 reads them."""
    mac = peer.region.mem[peer.region.table + peer.victim * NODE + 16:][:6]
    # of a type for experiments
    data = mac + peer.MAC + struct.pack(">H", 0x88b5) + bytes(46)
    record = RECORD.pack(128, TYPE_FRAME, 0, 0, 0, len(data)).ljust(64, b"\0")
    base = peer.base(peer.out, FRAME)
    before = taken(peer)
    for i in range(BURST):
        peer.region.mem[base + 128 * i:base + 128 * (i + 1)] = \
            (record + data).ljust(128, b"\0")
    peer.region.write(peer.out + 12 + 4 * FRAME, 4, BURST * 128)
    peer.ring()
    until(peer, lambda: taken(peer) != before)


def frames_from(peer):
    """More than a lane has place for, so that the index shows what became of it."""
    ring, peer.ring = peer.ring, lambda: None

    def enough():
        peer.receive(FRAME)
        return peer.tail[FRAME] > peer.region.lane_size

    until(peer, enough)
    peer.ring = ring


def main():
    if len(sys.argv) != 5 or sys.argv[3] not in ("to", "from"):
        sys.exit(__doc__)
    arrive = frames_to if sys.argv[3] == "to" else frames_from
    peer = Peer(Region(), int(sys.argv[1]), int(sys.argv[2]))
    peer.has_interrupts()
    try:
        for _ in range(int(sys.argv[4])):
            peer.meet()
            arrive(peer)
            end_session(peer)
            node_0_notices(peer)
        peer.meet()
    finally:
        peer.region.write(peer.entry, 4, 0)


if __name__ == "__main__":
    main()
