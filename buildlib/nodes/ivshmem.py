# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The server of QEMU's ivshmem-doorbell devices: who connects to its socket
gets the shared memory, and every peer's interrupts as eventfds.

What travels are 8-byte numbers, little-endian, some with a descriptor: the
protocol's version, one's own number, -1 with the memory; then for each peer
and vector the peer's number with an eventfd, oneself last. A peer's number
without a descriptor: it has left.
"""

import os
import socket
import struct

VERSION = 0
VECTORS = 8


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

    def close(self):
        self.sock.close()
        for fd in self.events:
            os.close(fd)


class Server:
    """Serves one region; the caller has the loop."""

    def __init__(self, path, size):
        self.memory = os.memfd_create("mic-region", os.MFD_CLOEXEC)
        os.ftruncate(self.memory, size)
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
        if sock.recv(64):
            return False
        peer = self.peers.pop(sock)
        for other in self.peers.values():
            other.tell(peer.number)
        peer.close()
        return True
