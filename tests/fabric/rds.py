#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""rds.py send|receive ADDRESS PEER COUNT SIZE: COUNT datagrams of SIZE bytes to who
receives at PEER, in order and each once; the receiver answers with a digest of all."""

import hashlib
import os
import socket
import sys

PORT = 4000
QUEUE = 1 << 20


def main():
    role, address, peer = sys.argv[1:4]
    count, size = map(int, sys.argv[4:])
    digest = hashlib.sha256()
    # It blocks: a socket with a timeout is told ENOBUFS where another one waits.
    with socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET) as rds:
        rds.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE)
        rds.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, QUEUE)
        rds.bind((address, PORT))
        print("ready", flush=True)
        for _ in range(count):
            if role == "send":
                data = os.urandom(size)
                rds.sendto(data, (peer, PORT))
            else:
                data, source = rds.recvfrom(size + 1)
                if source != (peer, PORT):
                    sys.exit(f"a datagram from {source}")
            digest.update(data)
        if role == "send":
            if rds.recv(QUEUE) != digest.digest():
                sys.exit("what was received is something else")
            rds.sendto(b"", (peer, PORT))
            return
        rds.sendto(digest.digest(), (peer, PORT))
        # A socket that is closed takes what it has not sent with it: until that is
        # there. So may the peer's, with the word that it is.
        rds.settimeout(10)
        try:
            rds.recv(QUEUE)
        except TimeoutError:
            pass


main()
