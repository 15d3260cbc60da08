#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The server of QEMU's ivshmem-doorbell devices: who connects to its socket
gets the shared memory, and every peer's interrupts as eventfds.

What travels are 8-byte numbers, little-endian, some with a descriptor: the
protocol's version, one's own number, -1 with the memory; then for each peer
and vector the peer's number with an eventfd, oneself last. A peer's number
without a descriptor: it has left.

A device can't tell its kernel that another has left. So this server does, in
the region (Documentation/fabric.md): it frees the entries of the node table
that name the device as their doorbell, and rings everybody.

A device that reads nothing, since its machine is stopped, keeps nobody: what it
is to be told waits until it reads.
"""

import argparse
import collections
import errno
import fcntl
import grp
import mmap
import os
import re
import resource
import selectors
import signal
import socket
import stat
import struct
import sys
import time

VERSION = 0
VECTORS = 8
MAGIC = b"mic-fab1"
REGION_VERSION = 2
HEADER = struct.Struct("<8sII")  # magic, version, nodes
TABLE = 4096
ENTRY_SIZE = 2048
ENTRY = struct.Struct("<IIII")  # owner, generation, doorbell, vectors
NODES_MAX = 16
SIZE_MIN = 1 << 20


class Peer:
    """A device: its socket, its number, and what it was not told yet."""

    def __init__(self, sock, number, vectors):
        self.sock = sock
        self.number = number
        self.events = []
        self.backlog = collections.deque()
        self.lost = False
        try:
            for _ in range(vectors):
                self.events.append(os.eventfd(0, os.EFD_CLOEXEC |
                                              os.EFD_NONBLOCK))
        except OSError:
            self.close()
            raise

    def tell(self, number, fd=None):
        """Later, what can't be told now. A descriptor is kept for that."""
        if not self.backlog and self.send(number, fd):
            return
        try:
            self.backlog.append((number, None if fd is None else os.dup(fd)))
        except OSError:
            self.lost = True  # there are too many files

    def send(self, number, fd):
        fds = [] if fd is None else [fd]
        try:
            socket.send_fds(self.sock, [struct.pack("<q", number)], fds)
        except BlockingIOError:
            return False
        except OSError:
            self.lost = True  # it is about to be seen leaving, or is cut off
        return True

    def flush(self):
        while self.backlog and self.send(*self.backlog[0]):
            self.forget()

    def forget(self):
        _, fd = self.backlog.popleft()
        if fd is not None:
            os.close(fd)

    def introduce(self, other):
        for fd in other.events:
            self.tell(other.number, fd)

    def dismiss(self, other):
        """Of whom it knows nothing yet it hears nothing."""
        untold = [fd for number, fd in self.backlog if number == other.number
                  and fd is not None]
        if len(untold) < len(other.events):
            self.tell(other.number)
            return
        self.backlog = collections.deque(
            message for message in self.backlog if message[1] not in untold)
        for fd in untold:
            os.close(fd)

    def ring(self):
        for fd in self.events:
            try:
                os.eventfd_write(fd, 1)
            except BlockingIOError:
                pass  # it has not looked at the last 2^64 rings

    def close(self):
        self.sock.close()
        while self.backlog:
            self.forget()
        for fd in self.events:
            os.close(fd)


class Server:
    """Serves one region. Its selector can be waited on; dispatch() does what
    is to be done then."""

    def __init__(self, path, memory, vectors=VECTORS, say=lambda text: None):
        self.memory = memory
        self.vectors = vectors
        self.say = say
        self.table = mmap.mmap(memory, TABLE + NODES_MAX * ENTRY_SIZE)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(16)
        self.listener.setblocking(False)
        self.peers = {}
        self.next = 0
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)

    def dispatch(self, timeout=0):
        for key, events in self.selector.select(timeout):
            if key.fileobj is self.listener:
                self.accept()
            elif key.fileobj in self.peers:
                self.event(self.peers[key.fileobj], events)
        for peer in list(self.peers.values()):
            if peer.lost:
                self.leaves(peer)

    def entries(self):
        """Of the region's node table: where, and whose doorbell they have."""
        magic, version, nodes = HEADER.unpack_from(self.table)
        if magic != MAGIC or version != REGION_VERSION:
            return
        for i in range(min(nodes, NODES_MAX)):
            at = TABLE + i * ENTRY_SIZE
            owner, _, doorbell, vectors = ENTRY.unpack_from(self.table, at)
            if owner and vectors:
                yield at, doorbell

    def number(self):
        """One that nobody has, nor a device of the server before this one."""
        taken = {peer.number for peer in self.peers.values()}
        taken.update(doorbell for _, doorbell in self.entries())
        while self.next in taken:
            self.next = (self.next + 1) % 65536
        number = self.next
        self.next = (self.next + 1) % 65536
        return number

    def accept(self):
        try:
            sock, _ = self.listener.accept()
            sock.setblocking(False)
            peer = Peer(sock, self.number(), self.vectors)
        except BlockingIOError:
            return  # it has gone already
        except OSError as error:
            self.say(f"a device can't be served: {error.strerror}")
            time.sleep(0.1)  # it is still there to be accepted, perhaps
            return
        self.say(f"device {peer.number} is there, of {len(self.peers) + 1}")
        self.selector.register(sock, selectors.EVENT_READ)
        peer.tell(VERSION)
        peer.tell(peer.number)
        peer.tell(-1, self.memory)
        for other in self.peers.values():
            other.introduce(peer)
            peer.introduce(other)
        peer.introduce(peer)
        self.peers[sock] = peer
        self.watch_all()

    def watch_all(self):
        for peer in self.peers.values():
            events = selectors.EVENT_READ
            if peer.backlog:
                events |= selectors.EVENT_WRITE
            if self.selector.get_key(peer.sock).events != events:
                self.selector.modify(peer.sock, events)

    def event(self, peer, events):
        if events & selectors.EVENT_WRITE:
            peer.flush()
            self.watch_all()
        if events & selectors.EVENT_READ and self.has_gone(peer):
            self.leaves(peer)

    @staticmethod
    def has_gone(peer):
        """A device never says anything."""
        try:
            return not peer.sock.recv(64)
        except BlockingIOError:
            return False
        except OSError:
            return True  # it was killed before it read all

    def leaves(self, peer):
        del self.peers[peer.sock]
        self.selector.unregister(peer.sock)
        peer.close()
        for other in self.peers.values():
            other.dismiss(peer)
        self.watch_all()
        self.free_entries(peer.number)
        self.say(f"device {peer.number} has left, {len(self.peers)} are there")

    def free_entries(self, number):
        for at, doorbell in self.entries():
            if doorbell == number:
                self.table[at:at + 4] = bytes(4)
        for other in self.peers.values():
            other.ring()


def fail(text, what_to_do):
    sys.exit(f"mic-ivshmem-server: error: {text}\n"
             f"mic-ivshmem-server: what to do: {what_to_do}")


def size_of(text):
    match = re.fullmatch(r"([0-9]+)([KMG]?)", text)
    size = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] \
        if match else 0
    if size < SIZE_MIN or size & (size - 1):
        raise argparse.ArgumentTypeError(
            f"{text} is no power of two of at least 1M")
    return size


def vectors_of(text):
    if not text.isdecimal() or not 1 <= int(text) <= VECTORS:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to {VECTORS}")
    return int(text)


def mode_of(text):
    if not re.fullmatch("[0-7]{3,4}", text):
        raise argparse.ArgumentTypeError(f"{text} is no mode, such as 660")
    return int(text, 8)


def options():
    parser = argparse.ArgumentParser(
        prog="mic-ivshmem-server",
        description="Serve a memory region to the ivshmem-doorbell devices of "
                    "virtual machines. See mic-ivshmem-server(8).")
    parser.add_argument("socket", metavar="SOCKET",
                        help="where QEMU connects to")
    parser.add_argument("-s", "--size", type=size_of, metavar="BYTES",
                        help="of the region, a power of two, with K, M or G: "
                             "256M, or the size of FILE")
    parser.add_argument("-f", "--file", metavar="FILE",
                        help="the region, for ivshmem-plain devices as well; "
                             "otherwise it is memory without a name")
    parser.add_argument("-n", "--vectors", type=vectors_of, default=VECTORS,
                        metavar="COUNT", help="interrupts of a device, 1 to 8")
    parser.add_argument("-m", "--mode", type=mode_of, default=0o600,
                        help="of SOCKET and a new FILE (600)")
    parser.add_argument("-g", "--group", help="of SOCKET and a new FILE")
    parser.add_argument("-q", "--quiet", action="store_true",
                        help="do not say who comes and goes")
    return parser.parse_args()


def open_file(args, group):
    fd = os.open(args.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    there = os.fstat(fd).st_size
    if not there:
        os.fchown(fd, -1, group)
        os.fchmod(fd, args.mode)
        os.ftruncate(fd, args.size or 256 << 20)
    elif args.size and there != args.size:
        fail(f"{args.file} has {there} bytes, not {args.size}",
             "leave --size out, or remove the file when no machine has it")
    elif there < SIZE_MIN or there & (there - 1):
        fail(f"{args.file} has {there} bytes, no power of two of at least 1M",
             "name another file, or none")
    return fd


def lock_file(path):
    """Two servers would give the same numbers to their devices.

    The lock ends with this process: its descriptor is not the one that the
    machines get.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fail(f"{path} is the region of another server",
             "end that, name another file, or none")


def open_memory(args, group):
    if args.file:
        memory = open_file(args, group)
        lock_file(args.file)
        return memory
    memory = os.memfd_create("mic-region", os.MFD_CLOEXEC)
    os.ftruncate(memory, args.size or 256 << 20)
    return memory


def is_stale(path):
    """A socket that nobody listens to."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        return sock.connect_ex(path) == errno.ECONNREFUSED


def remove_stale(path):
    """What a server has left that was killed."""
    if not os.path.lexists(path):
        return
    if not is_stale(path):
        fail(f"{path} is there",
             "end the server that has it, or name another socket")
    os.unlink(path)


def tell_starter(state):
    """systemd, of a service with Type=notify: sd_notify(3) without its library."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    if path[0] == "@":
        path = "\0" + path[1:]  # a name that is no file's
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto(state, path)
        except OSError as error:
            print(f"mic-ivshmem-server: NOTIFY_SOCKET: {error.strerror}",
                  file=sys.stderr)  # who connects is served all the same


def serve(args):
    group = grp.getgrnam(args.group).gr_gid if args.group else -1
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    memory = open_memory(args, group)
    remove_stale(args.socket)
    old = os.umask(0o177)
    server = Server(args.socket, memory, args.vectors,
                    (lambda text: None) if args.quiet else
                    lambda text: print(text, flush=True))
    os.umask(old)
    try:
        os.chown(args.socket, -1, group)
        os.chmod(args.socket, args.mode)
        size = os.fstat(memory).st_size >> 20
        server.say(f"{args.socket}: a region of {size} MiB")
        tell_starter(b"READY=1")
        while True:
            server.dispatch(None)
    finally:
        os.unlink(args.socket)


def main():
    args = options()
    if not hasattr(os, "eventfd"):
        fail(f"this is Python {sys.version.split()[0]}",
             "run it with Python 3.10 or later, which has eventfd")

    def end(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        serve(args)
    except KeyboardInterrupt:
        pass
    except KeyError:
        fail(f"there is no group {args.group}", "see getent group")
    except OSError as error:
        fail(f"{error.filename or args.socket}: {error.strerror}",
             "see mic-ivshmem-server(8)")


if __name__ == "__main__":
    main()
