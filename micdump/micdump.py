#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What the devices of mic say to each other, as the packets that RoCE v2 would need.

There are no packets: the kernel copies from memory to memory. Its tracepoints tell of
each segment of a request (mic_submit), of what it begins with (mic_data) and of its
answer (mic_ack). A segment is at most 256 KiB; here it is cut into packets of the path's
MTU, whose sequence numbers are those that the queue pairs count with (IBA 9.7).
"""

import argparse
import collections
import os
import re
import signal
import socket
import struct
import sys
import time
import zlib

TRACING = "/sys/kernel/tracing"
EVENTS = ("mic_submit", "mic_ack", "mic_data")
EVENT = re.compile(r"\[\d+\] \S+ +(\d+)\.(\d{6}): (mic_\w+): (dev=.*)")
LOST = re.compile(r"LOST (\d+) EVENTS")
DATA_MOST = 256  # bytes of a segment that mic_data has at most
BATCH = 1 << 20
PAUSE = 0.05  # seconds
UDP_PORT = 4791
SNAPLEN = 65535
LINKTYPE_RAW = 101  # each packet begins with its IP header

# IBA 9.2.1, OpCode: the transport's three bits, and the operation's five
SERVICES = {"RC": 0x00, "UC": 0x20, "UD": 0x60, "GSI": 0x60, "XRC": 0xa0}
RELIABLE = ("RC", "XRC")
SEND, WRITE, READ_RESPONSE = "SEND", "WRITE", "READ response"
FIRST, MIDDLE, LAST, ONLY = "first", "middle", "last", "only"
OPERATIONS = {
    (SEND, FIRST): 0x00, (SEND, MIDDLE): 0x01,
    (SEND, LAST): 0x02, (SEND, ONLY): 0x04,
    (WRITE, FIRST): 0x06, (WRITE, MIDDLE): 0x07,
    (WRITE, LAST): 0x08, (WRITE, ONLY): 0x0a,
    (READ_RESPONSE, FIRST): 0x0d, (READ_RESPONSE, MIDDLE): 0x0e,
    (READ_RESPONSE, LAST): 0x0f, (READ_RESPONSE, ONLY): 0x10,
}
READ_REQUEST, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x0c, 0x11, 0x12
CMP_SWAP, FETCH_ADD, ATOMIC_WRITE = 0x13, 0x14, 0x1d
WITH_IMMEDIATE = 1  # more than the same without
SEND_LAST_INVALIDATE, SEND_ONLY_INVALIDATE = 0x16, 0x17

# IBA 9.7.5.1, AETH: of an ACK without credits, of an RNR NAK with its timer, of a NAK
SYNDROMES = {"OK": 0x1f, "RNR": 0x20, "NAK_INVALID_REQUEST": 0x61,
             "NAK_ACCESS": 0x62, "NAK_OPERATION": 0x63}


def fail(message, advice):
    sys.exit(f"micdump: error: {message}\nmicdump: what to do: {advice}")


class Packet:
    """From one queue pair to another; its headers, and what is known of its data."""

    def __init__(self, message, opcode, name, psn, answer=False):
        self.seconds = message.seconds
        self.micros = message.micros
        self.service = message.service
        self.opcode = SERVICES[message.service] | opcode
        self.name = name
        self.psn = psn & 0xffffff
        self.solicited = False
        self.ack = False
        self.headers = b""
        self.notes = []
        self.length = 0
        self.data = b""
        ends = (message.sgid, message.qpn), (message.dgid, message.dst_qpn)
        (self.src, self.src_qpn), (self.dst, self.dst_qpn) = \
            reversed(ends) if answer else ends

    def carry(self, length, data):
        """So many bytes, of which these are known."""
        self.length = length
        self.data = data[:length]

    def bth(self):
        return struct.pack(">BBHII", self.opcode,
                           self.solicited << 7 | 1 << 6 | (-self.length & 3) << 4,
                           0xffff, self.dst_qpn, self.ack << 31 | self.psn)

    def encode(self):
        """From the IP header on. Wireshark takes no half packets for RoCE: data that is
        not known is 0, and so is the CRC then, which it would be the sum of."""
        padded = self.length + 3 & ~3
        inner = self.bth() + self.headers + self.data.ljust(padded, b"\0")
        length = 8 + len(inner) + 4
        port = 0xc000 | (self.src_qpn * 31 ^ self.dst_qpn) & 0x3fff
        ip = ip_header(self.src, self.dst, length)
        udp = struct.pack(">HHHH", port, UDP_PORT, length, 0)
        crc = (invariant_crc(ip, udp + inner) if len(self.data) == self.length
               else bytes(4))
        if not is_ipv4(self.src):  # where UDP has no datagrams without checksum
            pseudo = ip[8:] + struct.pack(">II", length, socket.IPPROTO_UDP)
            udp = udp[:6] + checksum(pseudo + udp + inner + crc)
        return ip + udp + inner + crc

    def text(self):
        stamp = time.strftime("%H:%M:%S", time.localtime(self.seconds))
        notes = "".join(f" {note}" for note in self.notes)
        length = f" length {self.length}" if self.length else ""
        return (f"{stamp}.{self.micros:06} {address(self.src)}.{self.src_qpn} > "
                f"{address(self.dst)}.{self.dst_qpn}: {self.service} {self.name} "
                f"psn {self.psn}{notes}{length}")


def is_ipv4(gid):
    return gid[:12] == bytes(10) + b"\xff\xff"


def address(gid):
    if is_ipv4(gid):
        return socket.inet_ntop(socket.AF_INET, gid[12:])
    return socket.inet_ntop(socket.AF_INET6, gid)


def checksum(data):
    """That of IP and UDP; data of an even length."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return struct.pack(">H", ~total & 0xffff or 0xffff)


def ip_header(src, dst, length):
    """Of a UDP datagram of so many bytes."""
    if not is_ipv4(src):
        return struct.pack(">IHBB", 6 << 28, length, socket.IPPROTO_UDP, 64) + src + dst
    head = struct.pack(">BBHHHBB", 0x45, 0, 20 + length, 0, 0x4000, 64,
                       socket.IPPROTO_UDP)
    addresses = src[12:] + dst[12:]
    return head + checksum(head + addresses) + addresses


def invariant_crc(ip, rest):
    """IBA A17.3.3: what routers change counts as ones, and so does an absent LRH."""
    ip, rest = bytearray(ip), bytearray(rest)
    if len(ip) == 20:
        ip[1] = ip[8] = ip[10] = ip[11] = 0xff
    else:
        ip[0:4] = bytes([ip[0] | 0x0f, 0xff, 0xff, 0xff])
        ip[7] = 0xff
    rest[6] = rest[7] = 0xff  # checksum of UDP
    rest[12] = 0xff  # the BTH's reserved byte
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + rest))


class Message:
    """A segment of a request, from its mic_submit."""

    def __init__(self, seconds, micros, fields):
        self.seconds = seconds
        self.micros = micros
        self.service = fields["service"]
        self.qpn = int(fields["qpn"])
        self.dst_qpn = int(fields["dst_qpn"])
        self.op = fields["op"]
        self.psn = int(fields["psn"])
        self.offset = int(fields["offset"])
        self.bytes = int(fields["bytes"])
        self.length = int(fields["of"])
        self.flags = fields["flags"].split("|")
        self.mtu = int(fields["mtu"])
        self.sgid = socket.inet_pton(socket.AF_INET6, fields["sgid"])
        self.dgid = socket.inet_pton(socket.AF_INET6, fields["dgid"])
        for name in ("raddr", "rkey", "ex", "qkey", "compare_add", "swap"):
            setattr(self, name, int(fields[name], 16))
        self.srqn = int(fields["srqn"])
        self.data = b""

    def carries_data(self):
        return self.op in ("SEND", "WRITE", "ATOMIC_WRITE")

    def pieces(self, name):
        """Its packets: number, where it is in the message, offset and length."""
        count = max(1, -(-self.length // self.mtu))
        first = self.offset // self.mtu
        last = first + max(1, -(-self.bytes // self.mtu))
        for i in range(first, last):
            if count == 1:
                place = ONLY
            elif i in (0, count - 1):
                place = FIRST if i == 0 else LAST
            else:
                place = MIDDLE
            at = i * self.mtu
            yield i, (name, place), at, min(self.mtu, self.length - at)

    def last_psn(self):
        return self.psn + (self.offset + max(1, self.bytes) - 1) // self.mtu

    def request(self, opcode, name, psn):
        """A packet with the headers that the service has."""
        packet = Packet(self, opcode, name, psn)
        if self.service == "XRC":
            packet.headers = struct.pack(">I", self.srqn)
            packet.notes.append(f"srqn {self.srqn}")
        elif SERVICES[self.service] == SERVICES["UD"]:
            packet.headers = struct.pack(">II", self.qkey, self.qpn)
            packet.notes.append(f"qkey {self.qkey:#x}")
        return packet

    def aim(self, packet, skip=0):
        """The RETH."""
        packet.headers += struct.pack(">QII", self.raddr + skip & (1 << 64) - 1,
                                      self.rkey, self.length - skip)
        packet.notes.append(f"va {self.raddr + skip:#x} rkey {self.rkey:#x} "
                            f"dma {self.length - skip}")

    def end(self, packet, place):
        """What only the last packet says."""
        packet.solicited = "SOLICITED" in self.flags
        if "IMM" in self.flags:
            packet.opcode += WITH_IMMEDIATE
            packet.name += " with immediate"
            immediate = struct.pack("=I", self.ex)  # in the order of memory
            packet.headers += immediate
            packet.notes.append(f"imm 0x{immediate.hex()}")
        elif "INV" in self.flags:
            packet.opcode = SERVICES[self.service] | (
                SEND_ONLY_INVALIDATE if place == ONLY else SEND_LAST_INVALIDATE)
            packet.name += " with invalidate"
            packet.headers += struct.pack(">I", self.ex)
            packet.notes.append(f"inv {self.ex:#x}")

    def pushed(self):
        """The packets of a SEND or WRITE."""
        for i, kind, at, length in self.pieces(self.op):
            name, place = kind
            packet = self.request(OPERATIONS[kind], f"{name} {place}", self.psn + i)
            if name == WRITE and place in (FIRST, ONLY):
                self.aim(packet)
            if place in (LAST, ONLY):
                self.end(packet, place)
            start = at - self.offset
            packet.carry(length, self.data[start:])
            packet.ack = (self.service in RELIABLE and
                          at + length >= self.offset + self.bytes)
            yield packet

    def asked(self):
        """The one packet of a READ or atomic."""
        skip = self.offset  # a READ that goes on after it was interrupted
        psn = self.psn + skip // self.mtu
        if self.op == "READ":
            packet = self.request(READ_REQUEST, "READ request", psn)
            self.aim(packet, skip)
        elif self.op == "ATOMIC_WRITE":
            packet = self.request(ATOMIC_WRITE, "ATOMIC WRITE", psn)
            self.aim(packet)
            packet.carry(self.bytes, self.data)
        else:
            swaps = self.op == "CMP_SWAP"
            packet = self.request(CMP_SWAP if swaps else FETCH_ADD,
                                  "CMP SWAP" if swaps else "FETCH ADD", psn)
            operands = ((self.swap, self.compare_add) if swaps
                        else (self.compare_add, 0))
            packet.headers += struct.pack(">QIQQ", self.raddr, self.rkey, *operands)
            packet.notes.append(f"va {self.raddr:#x} rkey {self.rkey:#x} " + (
                f"compare {self.compare_add:#x} swap {self.swap:#x}" if swaps
                else f"add {self.compare_add:#x}"))
        packet.ack = True
        yield packet

    def acknowledged(self, count):
        """What comes back for it, after so many messages."""
        if self.op == "READ":
            yield from self.responses(count)
            return
        atomic = self.op in ("CMP_SWAP", "FETCH_ADD")
        packet = self.answer(ATOMIC_ACKNOWLEDGE if atomic else ACKNOWLEDGE,
                             "ATOMIC ACK" if atomic else "ACK", self.last_psn(),
                             SYNDROMES["OK"], count)
        if atomic:
            packet.headers += struct.pack(">Q", self.result)
            packet.notes.append(f"was {self.result:#x}")
        yield packet

    def responses(self, count):
        for i, kind, at, length in self.pieces(READ_RESPONSE):
            name = " ".join(kind)
            if kind[1] == MIDDLE:
                packet = Packet(self, OPERATIONS[kind], name, self.psn + i, True)
            else:
                packet = self.answer(OPERATIONS[kind], name, self.psn + i,
                                     SYNDROMES["OK"], count)
            packet.carry(length, self.data[at - self.offset:])
            yield packet

    def refused(self, ack, rnr_timer, count):
        syndrome = SYNDROMES[ack] | (rnr_timer if ack == "RNR" else 0)
        name = f"RNR NAK timer {rnr_timer}" if ack == "RNR" else ack.replace("_", " ")
        yield self.answer(ACKNOWLEDGE, name, self.psn + self.offset // self.mtu,
                          syndrome, count)

    def answer(self, opcode, name, psn, syndrome, count):
        packet = Packet(self, opcode, name, psn, True)
        packet.headers = struct.pack(">I", syndrome << 24 | count & 0xffffff)
        packet.notes.append(f"msn {count & 0xffffff}")
        return packet


class QueuePair:
    """What is under way from one queue pair."""

    def __init__(self):
        self.waiting = None  # for its data
        self.sent = collections.deque()
        self.reads_up_to = None  # psn and offset where the READ under way goes on
        self.completed = 0

    def submit(self, message, with_data):
        yield from self.leave()
        self.waiting = message
        if not (with_data and message.carries_data() and message.bytes):
            yield from self.leave()

    def leave(self):
        message, self.waiting = self.waiting, None
        if not message:
            return
        if message.service in RELIABLE:
            self.sent.append(message)
        if message.op in (SEND, WRITE):
            yield from message.pushed()
            return
        here = message.psn, message.offset
        if message.op != "READ" or not message.offset or here != self.reads_up_to:
            yield from message.asked()
        self.reads_up_to = message.psn, message.offset + message.bytes

    def take_data(self, psn, offset, data):
        waiting = [self.waiting] if self.waiting else []
        for message in (*waiting, *self.sent):
            if (message.psn, message.offset) == (psn, offset):
                message.data = data
                break
        yield from self.leave()

    def take_ack(self, seconds, micros, fields):
        """Those before it that have no answer were given up, and sent anew."""
        yield from self.leave()
        what = int(fields["psn"]), int(fields["offset"])
        if what not in [(message.psn, message.offset) for message in self.sent]:
            return
        while True:
            message = self.sent.popleft()
            if (message.psn, message.offset) == what:
                break
        message.seconds, message.micros = seconds, micros
        if fields["ack"] == "OK":
            message.result = int(fields["result"], 16)
            self.completed += "LAST" in message.flags
            yield from message.acknowledged(self.completed)
        elif fields["ack"] in SYNDROMES:
            self.sent.clear()
            self.reads_up_to = None
            yield from message.refused(fields["ack"], int(fields["rnr_timer"]),
                                       self.completed)


class Wire:
    """Packets from lines of the trace."""

    def __init__(self, with_data):
        self.with_data = with_data
        self.pairs = collections.defaultdict(QueuePair)
        self.lost = 0
        self.began = time.time() - time.monotonic()

    def packets(self, line):
        event = EVENT.search(line)
        if not event:
            lost = LOST.search(line)
            self.lost += int(lost[1]) if lost else 0
            return ()
        micros = int(event[1]) * 1000000 + int(event[2]) + int(self.began * 1000000)
        seconds, micros = divmod(micros, 1000000)
        fields = dict(word.partition("=")[::2] for word in event[4].split())
        pair = self.pairs[fields["dev"], fields["qpn"]]
        if event[3] == "mic_submit":
            return pair.submit(Message(seconds, micros, fields), self.with_data)
        if event[3] == "mic_data":
            return pair.take_data(int(fields["psn"]), int(fields["offset"]),
                                  bytes.fromhex(fields["data"]))
        return pair.take_ack(seconds, micros, fields)


class Trace:
    """An instance of the kernel's tracing, for this program alone."""

    def __init__(self, devices, with_data, kib):
        self.folder = f"{TRACING}/instances/micdump-{os.getpid()}"
        self.events = EVENTS if with_data else EVENTS[:2]
        if os.geteuid():
            fail("only root sees the kernel's events", "run it as root")
        if not os.path.isdir(f"{TRACING}/instances"):
            fail(f"nothing is in {TRACING}", "mount -t tracefs tracefs " + TRACING)
        if not os.path.isdir(f"{TRACING}/events/ib_mic/mic_data"):
            fail("the kernel has no events of a device of mic",
                 "modprobe ib_mic; if it is loaded, it is older than micdump")
        for device in devices:
            if not os.path.isdir(f"/sys/class/infiniband/{device}"):
                fail(f"there is no device {device}", "rdma link show has them all")
        os.mkdir(self.folder)
        self.pipe = None
        try:
            self.write("trace_clock", "mono")
            self.write("buffer_size_kb", str(kib))
            names = " || ".join(f'dev == "{device}"' for device in devices)
            for event in self.events:
                if names:
                    self.write(f"events/ib_mic/{event}/filter", names)
            self.pipe = os.open(f"{self.folder}/trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
            self.enable("1")
        except OSError:
            self.close()
            raise
        self.rest = b""

    def write(self, name, text):
        with open(f"{self.folder}/{name}", "w", encoding="ascii") as file:
            file.write(text)

    def enable(self, value):
        for event in self.events:
            self.write(f"events/ib_mic/{event}/enable", value)

    def lines(self):
        """Those that are there by now."""
        while True:
            try:
                text = os.read(self.pipe, BATCH)
            except BlockingIOError:
                return
            if not text:
                return
            *whole, self.rest = (self.rest + text).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace")

    def close(self):
        """What is on is turned off with it."""
        if self.pipe is not None:
            os.close(self.pipe)
        os.rmdir(self.folder)


class Text:
    def __init__(self):
        self.file = sys.stdout

    def put(self, packet):
        self.file.write(packet.text() + "\n")


def private(path, flags):
    """What messages say only root may see, so a new file is nobody else's."""
    return os.open(path, flags, 0o600)


class Pcap:
    """A file as tcpdump writes it."""

    def __init__(self, name):
        self.file = sys.stdout.buffer if name == "-" else \
            open(name, "wb", opener=private)
        self.file.write(struct.pack("=IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, SNAPLEN,
                                    LINKTYPE_RAW))

    def put(self, packet):
        data = packet.encode()
        self.file.write(struct.pack("=IIII", packet.seconds, packet.micros, len(data),
                                    len(data)) + data)


class Dump:
    """From the trace to the output, until it is enough."""

    def __init__(self, options):
        self.options = options
        self.left = options.count
        self.packets = 0
        self.ended = False
        self.output = None

    def end(self, *_):
        self.ended = True

    def wants(self, packet):
        qpn = self.options.qpn
        return qpn is None or qpn in (packet.src_qpn, packet.dst_qpn)

    def put(self, packet):
        if self.left == 0 or not self.wants(packet):
            return
        self.output.put(packet)
        self.packets += 1
        if self.left is not None:
            self.left -= 1
            self.ended = self.ended or self.left == 0

    def run(self):
        with_data = not self.options.headers
        trace = Trace(self.options.device, with_data, self.options.buffer)
        wire = Wire(with_data)
        try:
            self.output = Pcap(self.options.write) if self.options.write else Text()
            print("micdump: listening; what processes execute by themselves is not "
                  "seen (MIC_DIRECT=0)", file=sys.stderr, flush=True)
            while not self.ended:
                self.drain(trace, wire)
                time.sleep(PAUSE)
            trace.enable("0")
            self.drain(trace, wire)
        except BrokenPipeError:
            # nobody reads what is left in its buffer
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            trace.close()
        print(f"micdump: {self.packets} packets, {wire.lost} events lost",
              file=sys.stderr)

    def drain(self, trace, wire):
        for line in trace.lines():
            for packet in wire.packets(line):
                self.put(packet)
        self.output.file.flush()


def natural(text):
    value = int(text, 0)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def parse():
    parser = argparse.ArgumentParser(
        prog="micdump", description="Shows what devices of mic say to each other, as "
        "packets of RoCE v2.")
    parser.add_argument("-d", "--device", action="append", default=[],
                        help="requests of this device only; may be repeated")
    parser.add_argument("-q", "--qpn", type=natural,
                        help="from or to a queue pair with this number only")
    parser.add_argument("-w", "--write", metavar="FILE",
                        help="to a file that Wireshark and tcpdump read; - is stdout")
    parser.add_argument("-c", "--count", type=natural, help="end after so many packets")
    parser.add_argument("-n", "--headers", action="store_true",
                        help="no data, only headers")
    parser.add_argument("-B", "--buffer", type=natural, metavar="KIB", default=4096,
                        help="room for events, for each processor (4096)")
    return parser.parse_args()


def main():
    dump = Dump(parse())
    signal.signal(signal.SIGINT, dump.end)
    signal.signal(signal.SIGTERM, dump.end)
    try:
        dump.run()
    except OSError as error:
        fail(str(error), "see micdump(8)")


if __name__ == "__main__":
    main()
