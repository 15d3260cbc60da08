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
"""

import mmap
import os
import socket
import struct

VERSION = 0
VECTORS = 8
MAGIC = b"mic-fab1"
REGION_VERSION = 2
HEADER = struct.Struct("<8sII")  # magic, version, nodes
TABLE = 4096
ENTRY_SIZE = 2048
ENTRY = struct.Struct("<IIII")  # owner, generation, doorbell, vectors
NODES_MAX = 16


class Peer:
    def __init__(self, sock, number):
        self.sock = sock
        self.number = number
        self.events = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                       for _ in range(VECTORS)]

    def tell(self, number, fd=None):
        message = struct.pack("<q", number)
        fds = [] if fd is None else [fd]
        try:
            socket.send_fds(self.sock, [message], fds)
        except OSError:
            pass  # it is about to be seen leaving

    def introduce(self, other):
        for fd in other.events:
            self.tell(other.number, fd)

    def ring(self):
        for fd in self.events:
            try:
                os.eventfd_write(fd, 1)
            except BlockingIOError:
                pass  # it has not looked at the last 2^64 rings

    def close(self):
        self.sock.close()
        for fd in self.events:
            os.close(fd)


class Server:
    """Serves one region; the caller has the loop."""

    def __init__(self, path, size):
        self.memory = os.memfd_create("mic-region", os.MFD_CLOEXEC)
        os.ftruncate(self.memory, size)
        self.table = mmap.mmap(self.memory, TABLE + NODES_MAX * ENTRY_SIZE)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(16)
        self.peers = {}
        self.next = 0

    def accept(self):
        """A device connects: its socket, to wait on."""
        sock, _ = self.listener.accept()
        peer = Peer(sock, self.next)
        self.next = (self.next + 1) % 65536
        peer.tell(VERSION)
        peer.tell(peer.number)
        peer.tell(-1, self.memory)
        for other in self.peers.values():
            other.introduce(peer)
            peer.introduce(other)
        peer.introduce(peer)
        self.peers[sock] = peer
        return sock

    def readable(self, sock):
        """A device never says anything: it has gone."""
        try:
            if sock.recv(64):
                return False
        except ConnectionResetError:
            pass  # it was killed before it read all
        peer = self.peers.pop(sock)
        for other in self.peers.values():
            other.tell(peer.number)
        peer.close()
        self.free_entries(peer.number)
        return True

    def free_entries(self, number):
        magic, version, nodes = HEADER.unpack_from(self.table)
        if magic != MAGIC or version != REGION_VERSION:
            return
        for i in range(min(nodes, NODES_MAX)):
            at = TABLE + i * ENTRY_SIZE
            owner, _, doorbell, vectors = ENTRY.unpack_from(self.table, at)
            if owner and vectors and doorbell == number:
                self.table[at:at + 4] = bytes(4)
        for other in self.peers.values():
            other.ring()
