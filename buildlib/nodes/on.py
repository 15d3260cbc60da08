#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""usage: ./run on NODE COMMAND...

In a node of ./run vm --nodes N: runs a command on another one. Its output and
its exit status are this one's; it is killed when this process ends.

  ./run on NODE --kill     end the node as if its power failed
  ./run on NODE --start    boot it again
  ./run on NODE --stop     stop its processors
  ./run on NODE --cont     let them go on
  ./run on NODE --unplug   take the shared regions from it, as QEMU does (with
                           ./run vm --nodes 2 --no-doorbell --hot-plug)
  ./run on NODE --plug     give them back
"""

import json
import os
import signal
import socket
import sys

import frames

SOCKET = "/run/mic-rig"
CONTROLS = ("--kill", "--start", "--stop", "--cont", "--unplug", "--plug")


def request(node, words):
    if len(words) == 1 and words[0] in CONTROLS:
        what = {"node": node, "action": words[0][2:]}
        return frames.pack(frames.HOST, frames.CONTROL, 0,
                           json.dumps(what).encode())
    if words[0] == "--":
        words = words[1:]
    env = {name: value for name, value in os.environ.items()
           if name.startswith(("MIC_TEST_", "TEST_"))}
    what = {"argv": words, "cwd": os.getcwd(), "env": env}
    return frames.pack(node, frames.RUN, 0, json.dumps(what).encode())


def write(fd, data):
    while data:
        data = data[os.write(fd, data):]


def wait(sock):
    reader = frames.Reader()
    while True:
        data = sock.recv(1 << 16)
        if not data:
            print("on: the rig's agent is gone", file=sys.stderr)
            return 255
        for _, kind, _, body in reader.feed(data):
            if kind == frames.OUT:
                write(1, body)
            elif kind == frames.ERR:
                write(2, body)
            elif kind == frames.EXIT:
                return json.loads(body)["status"]


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__, end="")
        return 0
    if len(sys.argv) < 3 or not sys.argv[1].isdigit():
        print(__doc__, end="", file=sys.stderr)
        return 2
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(SOCKET)
    except OSError:
        print("on: this is not a node of ./run vm --nodes N", file=sys.stderr)
        return 2
    sock.sendall(request(int(sys.argv[1]), sys.argv[2:]))
    return wait(sock)


sys.exit(main())
