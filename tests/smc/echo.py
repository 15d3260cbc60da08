#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Streams of random bytes to a server that sends them back.

usage: echo.py server ADDRESS PORT
       echo.py client ADDRESS PORT CONNECTIONS MIB
MIB of each connection; 0: until it is killed, or the connection ends.
"""
import hashlib
import os
import socket
import sys
import threading
import time

PIECE = 1 << 16
SECONDS = 30


def give_back(stream):
    with stream:
        while data := stream.recv(PIECE):
            stream.sendall(data)


def serve(address):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(100)
        while True:
            stream = listener.accept()[0]
            threading.Thread(target=give_back, args=(stream,)).start()


def connect(address):
    """SMC gives a server six seconds for a connection; many at once may take longer."""
    end = time.monotonic() + SECONDS
    while True:
        stream = socket.socket()
        try:
            stream.connect(address)
            return stream
        except (ConnectionRefusedError, TimeoutError):
            stream.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def receive(stream, length, digest):
    """Up to the end, if it comes before."""
    while length:
        try:
            data = stream.recv(min(length, PIECE))
        except OSError:
            data = b""
        if not data:
            return
        digest.update(data)
        length -= len(data)


def run(address, mib, failed):
    """One connection: what is sent, and beside it what comes back."""
    sent, got = hashlib.sha256(), hashlib.sha256()
    pieces = mib * (1 << 20) // PIECE or 1 << 40
    try:
        with connect(address) as stream:
            reader = threading.Thread(
                target=receive, args=(stream, pieces * PIECE, got))
            reader.start()
            try:
                for _ in range(pieces):
                    data = os.urandom(PIECE)
                    stream.sendall(data)
                    sent.update(data)
            finally:
                if sys.exc_info()[0]:
                    stream.shutdown(socket.SHUT_RDWR)
                reader.join()
    except OSError as error:
        failed.append(str(error))
        return
    if sent.digest() != got.digest():
        failed.append("something else came back")


def main(role, host, port, connections="1", mib="1"):
    address = (host, int(port))
    if role == "server":
        serve(address)
    failed = []
    threads = [threading.Thread(target=run, args=(address, int(mib), failed))
               for _ in range(int(connections))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        sys.exit(f"{len(failed)} of {connections} connections failed: "
                 f"{failed[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
