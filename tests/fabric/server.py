#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""server.py PROGRAM: does mic-ivshmem-server keep to the protocol of QEMU's
ivshmem-doorbell devices, whatever those do, and to its manual page?"""

import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile

SECONDS = 60
ENTRY = 4096 + 2 * 2048  # node 2's
program = sys.argv[1]
cases = []


class Failure(Exception):
    pass


def case(function):
    cases.append(function)
    return function


def must(condition, text):
    if not condition:
        raise Failure(text)


class Server:
    def __init__(self, folder, *options, path=None, wait=True):
        self.path = path or f"{folder}/socket"
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen(
            [program, *options, self.path], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.first = self.process.stdout.readline() if wait else ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, self.first + out, err


class Device:
    """What QEMU is to the server."""

    def __init__(self, server):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(server.path)
        self.number = self.memory = None
        self.peers = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()
        for fds in self.peers.values():
            for fd in fds:
                os.close(fd)
        self.peers = {}

    def read(self):
        """A number, and its descriptor or None."""
        data, fds, _, _ = socket.recv_fds(self.sock, 8, 1)
        must(len(data) == 8, f"{len(data)} bytes instead of 8")
        return struct.unpack("<q", data)[0], fds[0] if fds else None

    def begin(self, vectors=8):
        must(self.read() == (0, None), "not protocol version 0")
        self.number, fd = self.read()
        must(fd is None, "a descriptor with its number")
        number, self.memory = self.read()
        must(number == -1 and self.memory is not None, "no memory")
        while len(self.peers.get(self.number, ())) < vectors:
            self.hear()
        return self

    def hear(self):
        number, fd = self.read()
        if fd is None:
            must(number in self.peers, f"{number} leaves and was not there")
            for old in self.peers.pop(number):
                os.close(old)
        else:
            self.peers.setdefault(number, []).append(fd)

    def hear_until(self, condition):
        while not condition():
            self.hear()

    def hears_nothing(self):
        return not select.select([self.sock], [], [], 0.2)[0]


@case
def two_devices_ring_each_other(folder):
    with Server(folder) as server, Device(server) as a, Device(server) as b:
        a.begin()
        b.begin()
        a.hear_until(lambda: len(a.peers.get(b.number, ())) == 8)
        must(a.number != b.number, "they have the same number")
        must(sorted(b.peers) == sorted(a.peers), "they know others")
        for vector in range(8):
            os.eventfd_write(a.peers[b.number][vector], 1)
            must(os.eventfd_read(b.peers[b.number][vector]) == 1,
                 f"vector {vector} is another's")
        must(a.hears_nothing() and b.hears_nothing(), "they hear more")


@case
def they_have_the_same_memory(folder):
    with Server(folder, "-s", "2M") as server, \
            Device(server) as a, Device(server) as b:
        a.begin()
        b.begin()
        must(os.fstat(a.memory).st_size == 2 << 20, "it is not of 2 MiB")
        os.pwrite(a.memory, b"here", 77)
        must(os.pread(b.memory, 4, 77) == b"here", "it is another one")


@case
def who_leaves_is_told_of_and_freed(folder):
    with Server(folder) as server, Device(server) as a:
        a.begin()
        with Device(server) as b:
            b.begin()
            table = mmap.mmap(a.memory, 1 << 20)
            table[:16] = struct.pack("<8sII", b"mic-fab1", 2, 8)
            table[ENTRY:ENTRY + 16] = struct.pack("<IIII", 7, 1, b.number, 8)
            table[ENTRY + 2048:ENTRY + 2064] = \
                struct.pack("<IIII", 8, 1, a.number, 8)
        a.hear_until(lambda: len(a.peers) == 2)
        a.hear_until(lambda: len(a.peers) == 1)
        must(select.select([a.peers[a.number][0]], [], [], SECONDS)[0],
             "nobody is rung")
        must(table[ENTRY:ENTRY + 4] == bytes(4), "its entry is not free")
        must(table[ENTRY + 2048:ENTRY + 2052] == struct.pack("<I", 8),
             "another's is")


@case
def a_device_that_reads_nothing_keeps_nobody(folder):
    with Server(folder) as server, Device(server) as stopped:
        for _ in range(100):
            with Device(server) as other:
                other.begin()
        with Device(server) as last:
            last.begin()
            files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
            must(files < 100, f"it keeps {files} files for it")
            stopped.begin()
            stopped.hear_until(
                lambda: sorted(stopped.peers) ==
                sorted((stopped.number, last.number)) and
                len(stopped.peers[last.number]) == 8)
            must(stopped.hears_nothing(), "it hears more")
            # who left may have done so after this one came, which was rung
            if select.select([last.peers[last.number][3]], [], [], 0)[0]:
                os.eventfd_read(last.peers[last.number][3])
            os.eventfd_write(stopped.peers[last.number][3], 1)
            must(os.eventfd_read(last.peers[last.number][3]) == 1,
                 "it can't ring")


@case
def one_that_says_something_is_served(folder):
    with Server(folder) as server, Device(server) as a:
        a.sock.send(b"\xff" * 1000)
        a.begin()
        with Device(server) as b:
            b.begin()
            a.hear_until(lambda: len(a.peers.get(b.number, ())) == 8)


@case
def fewer_vectors(folder):
    with Server(folder, "--vectors", "2") as server, Device(server) as a:
        a.begin(vectors=2)
        must(a.hears_nothing(), "there are more")


@case
def a_file_is_made_and_used_again(folder):
    path = f"{folder}/file"
    with Server(folder, "-f", path, "-s", "1M", "-m", "640") as server:
        with Device(server) as a:
            os.pwrite(a.begin().memory, b"kept", 0)
        server.end()
    must(os.stat(path).st_mode & 0o777 == 0o640, "its mode is another")
    with Server(folder, "--file", path) as server, Device(server) as a:
        must(os.pread(a.begin().memory, 4, 0) == b"kept", "it is a new one")
        must(os.fstat(a.memory).st_size == 1 << 20, "its size has changed")


@case
def a_file_has_one_server(folder):
    path = f"{folder}/file"
    with Server(folder, "-f", path, "-s", "1M") as server:
        with Device(server) as a:
            a.begin()
            refuses(1, "another server", "-f", path, f"{folder}/second")
            server.end()
            # the machine goes on, and still has the file and its entry
            table = mmap.mmap(a.memory, 1 << 20)
            table[:16] = struct.pack("<8sII", b"mic-fab1", 2, 8)
            entry = struct.pack("<IIII", 7, 1, a.number, 8)
            table[ENTRY:ENTRY + 16] = entry
            with Server(folder, "-f", path) as next_one:
                with Device(next_one) as b:
                    b.begin()
                    must(b.number != a.number, "two have the same number")
                with Device(next_one) as c:
                    c.begin()
                must(table[ENTRY:ENTRY + 16] == entry, "its entry is free")


@case
def it_ends_in_order(folder):
    for number in signal.SIGTERM, signal.SIGINT:
        with Server(folder, "-m", "660") as server, Device(server) as a:
            a.begin()
            must(os.stat(server.path).st_mode & 0o777 == 0o660,
                 "the socket's mode is another")
            status, out, err = server.end(number)
            must(status == 0 and not err, f"status {status}, {err}")
            must("device 0 is there" in out, f"it says {out}")
            must(not os.path.exists(server.path), "the socket is there")


@case
def who_starts_it_is_told_when_it_is_ready(folder):
    for name in f"{folder}/notify", "@mic-server-test-%d" % os.getpid():
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as starter:
            starter.settimeout(SECONDS)
            starter.bind(name.replace("@", "\0"))
            os.environ["NOTIFY_SOCKET"] = name
            try:
                server = Server(folder, "-m", "660", wait=False)
            finally:
                del os.environ["NOTIFY_SOCKET"]
            with server:
                must(starter.recv(100) == b"READY=1", "it says another thing")
                must(os.stat(server.path).st_mode & 0o777 == 0o660,
                     "the socket's mode is another then")
                with Device(server) as a:
                    a.begin()
                must(server.end()[0] == 0, "it does not end in order")


@case
def its_service_waits_for_that(folder):
    del folder
    unit = os.path.dirname(program) + "/mic-ivshmem-server@.service.in"
    with open(unit, encoding="ascii") as file:
        must("Type=notify\n" in file.readlines(), "it is of another type")


@case
def the_socket_of_a_killed_server_is_replaced(folder):
    with Server(folder) as server:
        server.end(signal.SIGKILL)
        must(os.path.exists(server.path), "there is no socket")
    with Server(folder) as server, Device(server) as a:
        a.begin()


def refuses(status, beginning, *arguments):
    done = subprocess.run([program, *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=SECONDS,
                          check=False)
    must(done.returncode == status and beginning in done.stderr,
         f"{arguments}: {done.returncode}, {done.stderr}")


@case
def what_is_there_stays(folder):
    path = f"{folder}/precious"
    with open(path, "w", encoding="ascii") as file:
        file.write("words")
    refuses(1, "is there", path)
    refuses(1, "no power of two", "-f", path, f"{folder}/socket")
    with open(path, encoding="ascii") as file:
        must(file.read() == "words", "it has changed")
    with Server(folder) as server, Device(server) as a:
        refuses(1, "end the server", server.path)
        a.begin()


@case
def mistakes_are_told(folder):
    path = f"{folder}/socket"
    for size in "3M", "512K", "-1", "x", "":
        refuses(2, "power of two", f"--size={size}", path)
    for count in "0", "9", "x":
        refuses(2, "not from 1 to 8", f"--vectors={count}", path)
    refuses(2, "no mode", "--mode=999", path)
    refuses(2, "SOCKET")
    refuses(1, "no group", "--group=no-such-group", path)
    refuses(1, "what to do", f"{folder}/none/socket")
    refuses(1, "what to do", "-f", f"{folder}/none/file", path)
    with open(f"{folder}/region", "wb") as file:
        file.truncate(1 << 20)
    refuses(1, "bytes, not", "-f", f"{folder}/region", "-s", "2M", path)
    must(not os.path.exists(path), "it leaves a socket")


# Runs the program in a Python that lacks what came with 3.10.
OLD = "import os, runpy, sys; del os.eventfd, sys.argv[0]; " \
      "runpy.run_path(sys.argv[0], run_name='__main__')"


@case
def an_old_python_is_told_of(folder):
    path = f"{folder}/socket"
    done = subprocess.run(
        [sys.executable, "-c", OLD, program, path],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=SECONDS, check=False)
    must(done.returncode == 1 and "Python 3.10 or later" in done.stderr,
         f"{done.returncode}, {done.stderr}")
    must(not os.path.exists(path), "it has begun")


def main():
    for number, function in enumerate(cases, 1):
        name = function.__name__.replace("_", " ")
        with tempfile.TemporaryDirectory() as folder:
            try:
                function(folder)
                print(f"ok {number} - {name}", flush=True)
            except (Failure, OSError, subprocess.SubprocessError) as error:
                print(f"# {error}\nnot ok {number} - {name}", flush=True)
    print(f"1..{len(cases)}")


main()
