#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Reads and writes the shared region, as a machine does whose kernel is hostile.

  region.py path                     the device's file of it
  region.py where                    a file that can be mapped, and where it begins there
  region.py peek OFFSET SIZE         one number
  region.py poke OFFSET SIZE VALUE   one number
  region.py blank                    a header as of a new region
  region.py header                   its fields
  region.py random SECONDS SEED      random bytes everywhere but in the header
  region.py chosen SECONDS SEED      what looks like something, where it matters
  region.py full SECONDS NODE SLOT   as NODE, which has left SLOT: reads nothing
  region.py slow SECONDS NODE SLOT   reads a frame now and then
  region.py pads SECONDS NODE SLOT   sends records without a meaning
  region.py words SECONDS NODE SLOT  begins a session, and another, and another
  region.py usurp SECONDS SLOT...    has entries, whose nodes may be there
  region.py free SECONDS             all entries are nobody's, again and again
  region.py scribble SECONDS OFFSET  random numbers of 8 bytes in one place
  region.py copy SECONDS FROM TO SIZE  what is in one place also in another
  region.py again SECONDS PAUSE poke|blank|random ...  that, and after so many seconds again

The offsets are those of Documentation/fabric.md.
"""

import ctypes
import glob
import mmap
import os
import random
import struct
import sys
import time

WORDS = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32,
         8: ctypes.c_uint64}
HEADER = 4096
NODE = 2048
GID = 32
CHANNEL = 128
LANES = 3
MAP = 8
MAPS = 16 * 256


def find_region():
    # apertures come behind it
    for device in sorted(glob.glob("/sys/bus/pci/devices/*")):
        with open(f"{device}/uevent", encoding="ascii") as file:
            if "PCI_ID=1AF4:1110" in file.read():
                return f"{device}/resource2"
    sys.exit("there is no region")


def physical_address(path):
    with open(f"{os.path.dirname(path)}/resource", encoding="ascii") as file:
        return int(file.readlines()[2].split()[0], 16)


class Region:
    def __init__(self):
        self.path, self.start = find_region(), 0
        self.size = os.stat(self.path).st_size
        try:
            self.map()
        except OSError:
            # the driver has it cached, and this file is not
            self.start = physical_address(self.path)
            self.path = "/dev/mem"
            self.map()

    def map(self):
        file = os.open(self.path, os.O_RDWR)
        try:
            self.mem = mmap.mmap(file, self.size, offset=self.start)
        finally:
            os.close(file)

    # one access each, as a kernel has it

    def read(self, offset, size):
        return WORDS[size].from_buffer(self.mem, offset).value

    def write(self, offset, size, value):
        WORDS[size].from_buffer(self.mem, offset).value = value

    def geometry(self):
        self.nodes = self.read(12, 4)
        self.lane_size = self.read(24, 4)
        self.table = self.read(32, 8)
        self.channels = self.read(40, 8)
        self.lanes = self.read(48, 8)
        self.slices = self.read(56, 8)
        self.slice_size = self.read(64, 8)


def until(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


def write_random(region, rng, seconds):
    for _ in until(seconds):
        for _ in range(200):
            offset = rng.randrange(HEADER, region.size - 8)
            region.mem[offset:offset + 8] = rng.randbytes(8)


def interesting(rng, region):
    """A number that may be nearly right."""
    return rng.choice((
        0, 1, 63, 64, 65, 127, 192, 256, region.lane_size - 64,
        region.lane_size, region.lane_size + 64, 0x7fffffff, 0x80000000,
        0xffffffff, 0xffffffc0, rng.getrandbits(32),
        rng.randrange(0, region.lane_size, 64)))


def write_index(region, rng):
    channel = rng.randrange(region.nodes ** 2)
    offset = rng.choice((0, 4, 8, 12, 16, 20, 24, 64, 68, 72, 76))
    region.write(region.channels + channel * CHANNEL + offset, 4,
                 interesting(rng, region))


def write_entry(region, rng):
    node = rng.randrange(region.nodes)
    offset = rng.choice((0, 4, 8, 12, 16, 64, 128, 132, 192, 208, 224))
    region.write(region.table + node * NODE + offset, 4,
                 interesting(rng, region))


def write_map(region, rng):
    entry = rng.randrange(region.nodes) * region.slice_size
    entry += rng.choice((rng.randrange(MAPS), 256 * rng.randrange(3))) * MAP
    region.write(region.slices + entry + rng.choice((0, 4)), 4,
                 interesting(rng, region))


def record(region, rng):
    """A record that could be a request, with some fields that could not."""
    fields = [rng.choice((64, 192, 256, 384, interesting(rng, region))),
              rng.randrange(6), rng.randrange(8), 0, rng.getrandbits(32),
              rng.choice((0, 8, 64, 4096, interesting(rng, region)))]
    head = struct.pack("<IBBHII", *fields)
    body = bytes((rng.randrange(8), rng.randrange(32),
                  rng.choice((1, 2, 3, 4, 9)), 1))
    words = [rng.choice((1, 17, 0xffffff, interesting(rng, region)))
             for _ in range(21)]
    return (head + body + struct.pack("<21I", *words)).ljust(192, b"\0")


def write_record(region, rng):
    channel = rng.randrange(region.nodes ** 2)
    lane = rng.randrange(LANES)
    base = region.lanes + (channel * LANES + lane) * region.lane_size
    prod = region.channels + channel * CHANNEL + 12 + 4 * lane
    at = region.read(prod, 4) % region.lane_size
    data = record(region, rng)
    end = min(at + len(data), region.lane_size)
    region.mem[base + at:base + end] = data[:end - at]
    size = struct.unpack_from("<I", data)[0]
    region.write(prod, 4, (region.read(prod, 4) + size) & 0xffffffff)


def write_chosen(region, rng, seconds):
    """In bursts: what is never let come up is not disturbed."""
    region.geometry()
    for _ in until(seconds):
        for _ in range(rng.choice((1, 20, 2000))):
            rng.choice((write_index, write_entry, write_map, write_record,
                        write_record))(region, rng)
        time.sleep(rng.uniform(0, 3))


def header(region):
    """All but the lock."""
    region.geometry()
    fields = [region.read(offset, size) for offset, size in (
        (0, 8), (8, 4), (16, 8), (28, 4))]
    print(*fields, region.nodes, region.lane_size, region.table,
          region.channels, region.lanes, region.slices, region.slice_size)


def again(region, seconds, pause, words):
    for _ in until(seconds):
        write_once(region, words)
        time.sleep(pause)


def write_once(region, words):
    if words[0] == "blank":
        region.mem[0:HEADER] = bytes(HEADER)
    elif words[0] == "random":
        offset = random.randrange(0, HEADER, 8)
        region.mem[offset:offset + 8] = random.randbytes(8)
    else:
        region.write(int(words[1], 0), int(words[2]), int(words[3], 0))


def scribble(region, seconds, offset):
    for _ in until(seconds):
        region.write(offset, 8, random.getrandbits(64))


def copy(region, seconds, source, target, size):
    """Without a pause: who owns TO writes there, too."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(1000):
            region.mem[target:target + size] = region.mem[source:source + size]


def usurp(region, seconds, slots):
    """An owner of another generation, with a heart that beats."""
    region.geometry()
    for _ in until(seconds):
        for slot in slots:
            entry = region.table + slot * NODE
            region.write(entry, 4, 12345)
            region.write(entry + 4, 4, 0)
            region.write(entry + 64, 8, region.read(entry + 64, 8) + 1)
        time.sleep(0.02)


def free(region, seconds):
    region.geometry()
    for _ in until(seconds):
        for slot in range(region.nodes):
            region.write(region.table + slot * NODE, 4, 0)
        time.sleep(0.01)


def gid_of(node):
    return bytes(10) + b"\xff\xff" + bytes((10, 80, 0, node + 1))


def slot_of(region, node):
    """Where a node is that publishes its GID."""
    for slot in range(region.nodes):
        entry = region.table + slot * NODE
        if region.read(entry, 4) and gid_of(node) in region.mem[
                entry + 192:entry + NODE]:
            return slot
    sys.exit(f"node {node} is not there")


class Impostor:
    """Pretends to be a node that has left its slot, and has a path to node 0."""

    MAC = bytes((2, 0, 0, 0, 0, 0x66))
    SESSION = 4321

    def __init__(self, region, node, slot):
        region.geometry()
        self.region = region
        self.slot = slot
        self.victim = slot_of(region, 0)
        self.entry = region.table + slot * NODE
        self.out = self.channel(slot, self.victim)
        self.back = self.channel(self.victim, slot)
        self.next = 0
        self.read = 0
        self.beat = 0
        region.mem[self.entry + 12:self.entry + 22] = bytes(4) + self.MAC
        self.publish(gid_of(node))
        region.write(self.entry, 4, 12345)

    def publish(self, *gids):
        """As those of this node. Before they can be read."""
        for number, gid in enumerate(gids):
            at = self.entry + 192 + GID * number
            self.region.mem[at:at + 22] = gid + self.MAC
        self.region.write(self.entry + 132, 4, len(gids))
        self.region.write(self.entry + 128, 4, 2)

    def channel(self, sender, receiver):
        region = self.region
        return region.channels + CHANNEL * (sender * region.nodes + receiver)

    def live(self):
        """Heartbeats, and the answer to whatever session node 0 is in."""
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + 0.02
        self.beat += 1
        self.region.write(self.entry + 64, 8, self.beat)
        theirs = self.region.read(self.back, 8) & 0xffffffff
        self.region.write(self.out, 8, theirs << 32 | self.SESSION)

    def fill_requests(self):
        """The reader's index says that it reads nothing."""
        prod = self.region.read(self.back + 12, 4)
        self.region.write(self.back + 64, 4,
                          (prod - self.region.lane_size) & 0xffffffff)

    def read_frames(self):
        """Always too late, and never so late that they are dropped."""
        if time.monotonic() < self.read:
            return
        self.read = time.monotonic() + 0.15
        prod = self.region.read(self.back + 20, 4)
        cons = self.region.read(self.back + 72, 4)
        used = self.region.lane_size - (132 << 10)  # room for one remains
        if (prod - cons) & 0xffffffff > used:
            self.region.write(self.back + 72, 4, (prod - used) & 0xffffffff)

    def write_pads(self):
        size = self.region.lane_size
        if not self.beat:
            base = self.region.lanes + LANES * size * (
                (self.out - self.region.channels) // CHANNEL)
            pad = struct.pack("<I", 64).ljust(64, b"\0")
            self.region.mem[base:base + size] = pad * (size // 64)
        cons = self.region.read(self.out + 64, 4)
        self.region.write(self.out + 12, 4, (cons + size // 2) & 0xffffffff)

    def write_words(self):
        self.region.write(self.out, 8, random.getrandbits(64))


def pretend(region, name, seconds, node, slot):
    impostor = Impostor(region, node, slot)
    attack = {"full": impostor.fill_requests, "slow": impostor.read_frames,
              "pads": impostor.write_pads,
              "words": impostor.write_words}[name]
    for _ in until(seconds):
        attack()
        impostor.live()
    region.write(impostor.entry, 4, 0)


def main():
    words = sys.argv[1:]
    if words == ["path"]:
        print(find_region())
        return
    region = Region()
    if words == ["where"]:
        print(region.path, region.start)
    elif words[0] == "peek":
        print(region.read(int(words[1], 0), int(words[2])))
    elif words[0] in ("poke", "blank"):
        write_once(region, words)
    elif words[0] == "header":
        header(region)
    elif words[0] == "again":
        again(region, float(words[1]), float(words[2]), words[3:])
    elif words[0] == "random":
        write_random(region, random.Random(int(words[2])), float(words[1]))
    elif words[0] == "chosen":
        write_chosen(region, random.Random(int(words[2])), float(words[1]))
    elif words[0] == "usurp":
        usurp(region, float(words[1]), [int(word) for word in words[2:]])
    elif words[0] == "free":
        free(region, float(words[1]))
    elif words[0] == "scribble":
        scribble(region, float(words[1]), int(words[2], 0))
    elif words[0] == "copy":
        copy(region, float(words[1]), *(int(word) for word in words[2:]))
    elif words[0] in ("full", "slow", "pads", "words"):
        pretend(region, words[0], float(words[1]), int(words[2]),
                int(words[3]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
