#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A node with a kernel that lies: it has a path to node 0 and forges what goes there.

  forge.py NODE SLOT lies LIE...               one after the other
  forge.py NODE SLOT fuzz SECONDS SEED SHARE   requests, answers, frames: nearly right,
                                               but this share makes no sense
  forge.py NODE SLOT sums START...             a frame to 10.90.0.2 for each, whose checksum
                                               is to be completed from there on

NODE is this one's number; its driver has left SLOT. A LIE is "NAME=VALUE ...", fields of a
request that are not as they should be, by their names in Documentation/fabric.md: the
answer is printed, or that node 0 begins anew. Or it is "lie=KIND": what the next
request of node 0 is answered with; where it has an aperture on this machine, a window is
wherever "lie=extents-KIND" says (extents.py).
"""

import ctypes
import mmap
import os
import random
import struct
import sys
import time

import extents
from region import CHANNEL, LANES, NODE, Impostor, Region, find_region, gid_of

REQUEST, RESPONSE, FRAME = range(3)
PAD, TYPE_REQUEST, TYPE_RESPONSE, TYPE_FRAME = range(4)
FIRST, LAST, ACK = 1, 2, 4
OP_WRITE, OP_READ, OP_MAP = 1, 2, 6
NAK_ACCESS, OPNOTSUPP = 3, 95
RECORD = struct.Struct("<IBBHII")
BODY = struct.Struct("<4B7I3Q4I2H4B2I16s16s6s6s44x")
ANSWER = struct.Struct("<BBHI Q QQQ IHBB")
# RC, UC, UD and that of management; the others have RC alone
SERVICES = {0: (1, 1, 4, 2, 3), OP_WRITE: (2, 3)}
FIELDS = ("code", "flags", "service", "ipv4", "src_qpn", "dst_qpn", "psn", "npsn",
          "xrc_srqn", "rkey", "length", "raddr", "compare_add", "swap", "seg_off",
          "seg_len", "ex", "qkey", "pkey_index", "vlan_id", "sl",
          "traffic_class", "hop_limit", "zero0", "flow_label", "zero1",
          "sgid", "dgid", "dmac", "smac")
PATIENCE = 60
EXTENTS = "extents-"


class Broken(Exception):
    """Node 0 has begun a new session."""


class Peer(Impostor):
    """Keeps to the rules for sessions and lanes, and to no others."""

    def __init__(self, region, node, slot, memory=None):
        super().__init__(region, node, slot)
        self.memory = memory
        if memory:
            memory.publish(region, self.entry, slot)
        # that of node 0 is not this one's
        self.publish(gid_of(node), gid_of(0))
        self.node = node
        self.theirs = 0
        self.session = random.getrandbits(31) + 1
        self.head, self.tail = [0] * LANES, [0] * LANES
        self.tag = 0
        self.granted = []
        self.slots = 7
        self.bell = self.registers()
        theirs = region.table + self.victim * NODE
        self.doorbell = region.read(theirs + 8, 4)
        self.vector = slot % (region.read(theirs + 12, 4) or 1)

    def registers(self):
        device = os.path.dirname(find_region())
        with open(f"{device}/resource", encoding="ascii") as file:
            start = int(file.readline().split()[0], 16)
        file = os.open(f"{device}/resource0", os.O_RDWR | os.O_SYNC)
        try:
            # of the page that they are in, whatever the file's size
            self.page = mmap.mmap(file, 256)
        finally:
            os.close(file)
        page = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        return ctypes.c_uint32.from_address(page + (start & 4095) + 12)

    def has_interrupts(self):
        """So it says, before the first session: node 0 sleeps until it is rung."""
        self.region.write(self.entry + 8, 4, 0xffff)  # there is no such device
        self.region.write(self.entry + 12, 4, 1)

    def ring(self):
        self.bell.value = self.doorbell << 16 | self.vector

    def live(self):
        """Heartbeats, and the session. Raises Broken if there is a new one."""
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + 0.02
            self.beat += 1
            self.region.write(self.entry + 64, 8, self.beat)
        word = self.region.read(self.back, 8)
        if word & 0xffffffff != self.theirs:
            known, self.theirs = self.theirs, word & 0xffffffff
            self.begin()
            if known:
                raise Broken
        return word >> 32 == self.session

    def begin(self):
        self.session += 1
        for lane in range(LANES):
            self.head[lane] = self.tail[lane] = 0
            self.region.write(self.out + 12 + 4 * lane, 4, 0)
            self.region.write(self.back + 64 + 4 * lane, 4, 0)
        self.region.write(self.out, 8, self.theirs << 32 | self.session)
        self.ring()

    def meet(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if self.live():
                    return
            except Broken:
                pass
            time.sleep(0.001)
        sys.exit("there is no path")

    def is_taken(self, lane):
        """Node 0 has read all that is in the lane."""
        return self.region.read(self.out + 64 + 4 * lane, 4) == self.head[lane]

    def base(self, channel, lane):
        number = (channel - self.region.channels) // CHANNEL
        return (self.region.lanes +
                (number * LANES + lane) * self.region.lane_size)

    def send(self, lane, data):
        """A record; the caller knows that there is room."""
        data = data.ljust(-(-len(data) // 64) * 64, b"\0")
        size = self.region.lane_size
        base = self.base(self.out, lane)
        left = size - self.head[lane] % size
        if len(data) > left:
            at = base + size - left
            self.region.mem[at:at + 16] = RECORD.pack(left, PAD, 0, 0, 0, 0)
            self.head[lane] += left
        at = base + self.head[lane] % size
        self.region.mem[at:at + len(data)] = data
        self.head[lane] = (self.head[lane] + len(data)) & 0xffffffff
        self.region.write(self.out + 12 + 4 * lane, 4, self.head[lane])
        self.ring()

    def receive(self, lane):
        """The next record, or None."""
        size = self.region.lane_size
        while True:
            left = (self.region.read(self.back + 12 + 4 * lane, 4) -
                    self.tail[lane]) & 0xffffffff
            at = self.base(self.back, lane) + self.tail[lane] % size
            length = self.region.read(at, 4)
            # more than a lane has: node 0 has emptied it for a new session, and says
            # so in a moment; what is there is of an old one
            if not 64 <= length <= left <= size:
                return None
            data = self.region.mem[at:at + length]
            self.tail[lane] = (self.tail[lane] + length) & 0xffffffff
            self.region.write(self.back + 64 + 4 * lane, 4, self.tail[lane])
            if data[4] != PAD:
                return data

    def request(self, fields):
        """A request with these fields, the rest as it should be. Returns its tag."""
        self.tag = self.tag % 0xffff + 1
        values = {name: 0 for name in FIELDS}
        values.update(
            code=OP_WRITE, flags=FIRST | LAST, service=2, ipv4=1, npsn=1,
            vlan_id=0xffff, hop_limit=64, sgid=gid_of(self.node),
            dgid=gid_of(0), dmac=bytes(6), smac=self.MAC)
        values.update(fields)
        data = values.pop("data", b"")
        size = values.pop("size", 192 + -(-len(data) // 64) * 64)
        record = RECORD.pack(
            size, values.pop("type", TYPE_REQUEST),
            values.pop("rec_flags", FIRST | LAST | ACK), 0, self.tag,
            values.pop("payload", len(data)))
        self.send(REQUEST, record + BODY.pack(*(values[name] for name in FIELDS)) +
                  data)
        return self.tag

    def answer(self, record, ack=0, data=b"", flags=LAST, seg_off=0, **more):
        """To a request of node 0."""
        tag = more.get("tag", RECORD.unpack_from(record)[4])
        size = 64 + -(-len(data) // 64) * 64
        self.send(RESPONSE, RECORD.pack(
            size, TYPE_RESPONSE, flags, 0, tag, more.get("payload", len(data))
        ) + ANSWER.pack(
            ack, 0, 0, seg_off, more.get("result", 0), more.get("addr", 0),
            more.get("map_length", 0), more.get("offset", 0), more.get("gen", 0),
            more.get("slot", 0), more.get("access", 0), 0) + data)


def outcome(peer, tag):
    """What comes of a request."""
    end = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < end:
            peer.live()
            peer.receive(REQUEST)
            peer.receive(FRAME)
            record = peer.receive(RESPONSE)
            if record and RECORD.unpack_from(record)[4] == tag:
                ack, _, _, _, result, _, _, offset, gen, slot, _, _ = \
                    ANSWER.unpack_from(record, 16)
                byte = record[64] if len(record) > 64 else 0
                if gen:
                    peer.granted.append((slot, offset))
                return f"{ack} {result} {offset} {gen} {slot} {byte}"
            time.sleep(0)
    except Broken:
        peer.meet()
        return "broken"
    return "silent"


def parse(line):
    fields = {}
    for pair in line.split():
        name, value = pair.split("=")
        fields[name] = int(value, 0)
    if "sender" in fields:
        fields["sgid"] = gid_of(fields.pop("sender"))
    if "bytes" in fields:
        fields["data"] = bytes((fields.pop("byte"),)) * fields.pop("bytes")
    return fields


# Answers to a READ. What should make no difference is followed by the true answer.

def tell_truth(peer, record, data):
    peer.answer(record, data=data)


def tell_more(peer, record, data):
    peer.answer(record, data=data * 2)


def tell_elsewhere(peer, record, data):
    peer.answer(record, data=data, seg_off=len(data))


def tell_before(peer, record, data):
    peer.answer(record, data=data, seg_off=0xffffffc0)


def tell_twice(peer, record, data):
    peer.answer(record, data=data, flags=0)
    peer.answer(record, data=data)


def tell_little(peer, record, data):
    peer.answer(record, data=data[:64])


def tell_longer(peer, record, data):
    """The payload does not fit into the record."""
    peer.answer(record, data=data, payload=len(data) + 64)


def tell_nobody(peer, record, data):
    for tag in (0, 0xffffffff, RECORD.unpack_from(record)[4] ^ 0x10000):
        peer.answer(record, data=data, tag=tag)
    peer.answer(record, data=data)


def tell_pending(peer, record, _):
    """An answer that there is only within a kernel."""
    peer.answer(record, ack=6)


READS = {
    "truth": tell_truth, "more": tell_more, "elsewhere": tell_elsewhere,
    "before": tell_before, "twice": tell_twice, "little": tell_little,
    "longer": tell_longer, "nobody": tell_nobody, "pending": tell_pending,
}


def slice_of(peer, slot):
    return peer.region.slices + slot * peer.region.slice_size


def own_pages(peer):
    return slice_of(peer, peer.slot) + 32768


# Where the memory is that node 0 is said to be granted, and what else is untrue.
MAPS = {
    "window": lambda peer: (own_pages(peer), {}),
    "table": lambda peer: (slice_of(peer, peer.slot), {}),
    "header": lambda peer: (0, {}),
    "victim": lambda peer: (slice_of(peer, peer.victim) + 32768, {}),
    "end": lambda peer: (slice_of(peer, peer.slot + 1), {}),
    "wrap": lambda peer: ((1 << 64) - 4096, {}),
    "part": lambda peer: (own_pages(peer) + 8, {}),
    "slot": lambda peer: (own_pages(peer), {"slot": 256}),
    "dead": lambda peer: (own_pages(peer), {"live": 0}),
    "size": lambda peer: (own_pages(peer), {"map_length": 1 << 20}),
    "place": lambda peer: (own_pages(peer), {"addr": 1 << 20}),
    "rights": lambda peer: (own_pages(peer), {"access": 0}),
}


def victim_table(peer):
    """What this node lets node 0 map."""
    return slice_of(peer, peer.slot) + 256 * peer.victim * 8


def grant(peer, record, lie):
    region, number = peer.region, random.getrandbits(30) + 1
    addr, length, access = struct.unpack_from("<QQQ", record, 48)
    offset, more = MAPS[lie](peer)
    slot = more.get("slot", 7)
    region.mem[own_pages(peer):own_pages(peer) + 4096] = b"\x5c" * 4096
    region.write(victim_table(peer) + 8 * slot, 4,
                 number << 1 | more.pop("live", 1))
    values = {"addr": addr, "map_length": length, "access": access & 0xff,
              "offset": offset, "gen": number, "slot": slot}
    values.update(more)
    peer.answer(record, **values)


def begins_anew(peer):
    """Node 0 does, and then answers again."""
    end = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < end:
            peer.live()
            time.sleep(0.001)
        return False
    except Broken:
        peer.meet()
    nobody = {"dst_qpn": 0xabcdef, "data": bytes(64), "length": 64, "seg_len": 64}
    return outcome(peer, peer.request(nobody)) not in ("broken", "silent")


def grant_extents(peer, record, lie):
    """In another slot each time: windows of lies before may be there still."""
    number = random.getrandbits(30) + 1
    addr, length, access = struct.unpack_from("<QQQ", record, 48)
    peer.slots += 1
    peer.region.write(victim_table(peer) + 8 * peer.slots, 4, number << 1 | 1)
    extents.tell(peer, record, lie, {
        "addr": addr, "map_length": length, "access": access & 0xff,
        "gen": number, "slot": peer.slots})
    if lie in extents.NONSENSE and not begins_anew(peer):
        return "believed"
    return "told"


def keep(peer):
    """Writes to what was granted, also when node 0 wants it back."""
    table = slice_of(peer, peer.victim) + 256 * peer.slot * 8
    end, wanted = time.monotonic() + PATIENCE, False
    while time.monotonic() < end:
        peer.live()
        for lane in range(LANES):
            peer.receive(lane)
        for _, offset in peer.granted:
            peer.region.mem[offset:offset + 4096] = b"\x5c" * 4096
        if not wanted and not any(peer.region.read(table + 8 * slot, 4) & 1
                                  for slot, _ in peer.granted):
            end, wanted = time.monotonic() + 3, True
        time.sleep(0.01)
    return "told" if wanted else "silent"


def deceive(peer, lie):
    """Answers what node 0 asks for. A READ that is repeated is refused."""
    end, lied = time.monotonic() + PATIENCE, False
    while time.monotonic() < end:
        try:
            peer.live()
            peer.receive(FRAME)
            record = peer.receive(REQUEST)
        except Broken:
            peer.meet()
            continue
        if not record or record[4] != TYPE_REQUEST:
            time.sleep(0)
        elif record[16] == OP_MAP and lie in MAPS:
            grant(peer, record, lie)
            return "told"
        elif record[16] == OP_MAP and lie.startswith(EXTENTS):
            if not struct.unpack_from("<I", record, 80)[0]:
                return "not asked for"
            return grant_extents(peer, record, lie[len(EXTENTS):])
        elif record[16] == OP_MAP:
            peer.answer(record, result=OPNOTSUPP)
        elif record[16] == OP_READ and not lied:
            length = struct.unpack_from("<I", record, 44)[0]
            READS[lie](peer, record, b"\x5c" * length)
            if lie in ("truth", "nobody"):
                return "told"
            lied = True
        elif record[16] == OP_READ:
            peer.answer(record, ack=NAK_ACCESS)
            return "told"
    return "silent"


def frame(rng, mac):
    """One that could be from somewhere, with some fields that could not."""
    proto = rng.choice((1, 2, 6, 6, 6, 17, 17, 58, rng.randrange(256)))
    size = rng.choice((20, 64, 576, 1500, 9000, 40000, rng.randrange(65000)))
    if rng.random() < 0.7:
        kind = 0x0800
        ip = struct.pack(">BBHHHBBH4B4B", rng.choice((0x45, 0x45, 0x4f, 0x40)), 0,
                         rng.choice((size, 20, rng.randrange(65536))), 1,
                         rng.choice((0, 0x2000, 0x4000, rng.randrange(65536))),
                         64, proto, 0, 10, 80, 0, 2, 10, 80, 0, 1)
    else:
        kind = rng.choice((0x86dd, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x8915, 4))
        ip = struct.pack(">IHBB", 0x60000000, size & 0xffff, proto, 64)
        ip += bytes.fromhex("fd80" + "00" * 13 + "02" + "fd80" + "00" * 13 + "01")
    ports = struct.pack(">HH", rng.choice((22, 4420, 7000, 4791)),
                        rng.choice((7000, 4791, 53, rng.randrange(65536))))
    data = (rng.choice((mac, b"\xff" * 6, rng.randbytes(6))) + Impostor.MAC +
            struct.pack(">H", kind) + ip + ports + rng.randbytes(size))
    vnet = struct.pack(
        "<BBHHHH", rng.randrange(8),
        rng.choice((0, 0, 1, 3, 4, 5, 0x81, 0x84, rng.randrange(256))),
        rng.choice((0, 14, 34, 54, rng.randrange(65536))),
        rng.choice((0, 1, 8, 536, 1448, 0xffff, rng.randrange(65536))),
        rng.choice((0, 14, 34, 54, rng.randrange(65536))),
        rng.choice((0, 6, 16, rng.randrange(65536))))
    data = data[:65000]
    head = RECORD.pack(64 + -(-len(data) // 64) * 64, TYPE_FRAME, 0, 0, 0,
                       rng.choice((len(data), len(data), 14, 20)))
    return (head + vnet).ljust(64, b"\0") + data


def sums(peer, starts):
    """Longer than its way onward may have it, so that somebody completes the checksum."""
    entry = peer.region.table + peer.victim * NODE
    mac = peer.region.mem[entry + 16:entry + 22]
    size = 8000
    for start in starts:
        ip = struct.pack(">BBHHHBBH4B4B", 0x45, 0, 20 + size, 1, 0, 64, 17, 0,
                         10, 80, 0, 2, 10, 90, 0, 2)
        total = sum(struct.unpack(">10H", ip))
        total = (total & 0xffff) + (total >> 16)
        ip = ip[:10] + struct.pack(">H", total ^ 0xffff) + ip[12:]
        data = mac + Impostor.MAC + b"\x08\x00" + ip + bytes(size)
        head = RECORD.pack(64 + -(-len(data) // 64) * 64, TYPE_FRAME, 0, 0, 0, len(data))
        vnet = struct.pack("<BBHHHH", 1, 0, 0, 0, start, 0)
        peer.live()
        peer.send(FRAME, (head + vnet).ljust(64, b"\0") + data)
    end = time.monotonic() + PATIENCE
    while not peer.is_taken(FRAME):
        peer.live()
        if time.monotonic() > end:
            sys.exit("node 0 does not read the frames")
        time.sleep(0.01)
    time.sleep(0.5)


def number(rng):
    return rng.choice((0, 1, 8, 64, 4096, 32768, 0x7fffffff, 0xffffffff,
                       rng.getrandbits(32)))


def random_request(peer, rng, share):
    """Datagrams for the queue pair of management, and what else there may be."""
    code = rng.choice((0, 0, 0, 1, 2, 3, 4, 5, OP_MAP))
    size = rng.choice((0, 8, 24, 64, 256, 4096, 32768))
    if code >= 3:
        size = 0 if code == OP_MAP else 8
    fields = {
        "code": code,
        "service": rng.choice(SERVICES.get(code, (2,))),
        "flags": 3 | rng.choice((0, 4, 16) if code <= OP_WRITE else (0,)),
        "dst_qpn": rng.choice((0, 1, 1, 1, 17, 18, 0xffffff, number(rng))),
        "src_qpn": rng.choice((1, 17, number(rng))),
        "qkey": rng.choice((0x80010000, 0x80010000, 0x11223344, number(rng))),
        "psn": number(rng), "npsn": number(rng), "rkey": number(rng),
        "raddr": number(rng), "length": size, "seg_len": size,
    }
    if rng.random() < share:
        fields["code"] = rng.randrange(7, 256)
        fields[rng.choice(("length", "seg_off", "seg_len"))] = number(rng)
    if code in (0, OP_WRITE, 5):
        fields["data"] = rng.randbytes(size)
        if fields["dst_qpn"] == 1:
            # the beginning of a MAD, at times of another version
            begin = bytes((rng.choice((1, 1, 1, 2, 0x80)),
                           rng.choice((1, 4, 7)), 2, 3))
            fields["data"] = (begin + fields["data"])[:size]
    peer.request(fields)


def room(peer, lane):
    used = peer.head[lane] - peer.region.read(peer.out + 64 + 4 * lane, 4)
    return peer.region.lane_size - (used & 0xffffffff) > 2 * 66000


def fuzz(peer, seconds, rng, share):
    entry = peer.region.table + peer.victim * NODE
    mac = peer.region.mem[entry + 16:entry + 22]
    counts = {"frames": 0, "requests": 0, "answers": 0, "sessions": 0}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            peer.live()
            for lane in range(LANES):
                record = peer.receive(lane)
                if lane == REQUEST and record and record[4] == TYPE_REQUEST:
                    peer.answer(record, ack=rng.randrange(9),
                                data=bytes(rng.choice((0, 64, 8192))),
                                flags=rng.randrange(4), seg_off=number(rng),
                                result=number(rng), offset=number(rng),
                                gen=number(rng), slot=rng.randrange(300))
                    counts["answers"] += 1
            if room(peer, FRAME):
                peer.send(FRAME, frame(rng, mac))
                counts["frames"] += 1
            if room(peer, REQUEST):
                random_request(peer, rng, share)
                counts["requests"] += 1
        except Broken:
            counts["sessions"] += 1
            peer.meet()
    print(counts)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    node, slot, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    memory = None
    if any(line.startswith(f"lie={EXTENTS}") for line in sys.argv):
        memory = extents.Memory()
    peer = Peer(Region(), node, slot, memory)
    peer.meet()
    try:
        if mode == "fuzz":
            fuzz(peer, float(sys.argv[4]), random.Random(int(sys.argv[5])),
                 float(sys.argv[6]))
            return
        if mode == "sums":
            sums(peer, [int(word) for word in sys.argv[4:]])
            return
        for line in sys.argv[4:]:
            if line.startswith("lie="):
                print("ready", flush=True)
                lie = line[4:]
                print(keep(peer) if lie == "keep" else deceive(peer, lie),
                      flush=True)
            else:
                fields = parse(line)
                print(outcome(peer, peer.request(fields)), flush=True)
    finally:
        peer.region.write(peer.entry, 4, 0)


if __name__ == "__main__":
    main()
