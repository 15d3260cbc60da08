#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What the kernel's SMC has to be told, by generic netlink.

usage: setup.py eid NAME
       setup.py netdev NETDEV PNETID   (in the namespace that has it)
       setup.py device DEVICE PNETID   (in the first namespace)
       setup.py fallbacks              (prints how many sides of connections are TCP)
"""
import os
import socket
import struct
import sys

NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 1, 4, 0x300
GENL_ID_CTRL, CTRL_CMD_GETFAMILY = 16, 3
CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 1, 2
# <linux/smc.h>
PNETID_ADD = 2
PNETID_NAME, PNETID_ETHNAME, PNETID_IBNAME, PNETID_IBPORT = 1, 2, 3, 4
GET_FBACK_STATS, ADD_UEID = 8, 10
EID_ENTRY, EID_BYTES = 1, 32
FBACK_SERVERS, FBACK_CLIENTS = 2, 3


def attribute(kind, data):
    size = 4 + len(data)
    return struct.pack("<HH", size, kind) + data + bytes(-size % 4)


def attributes(data):
    found = {}
    while len(data) >= 4:
        size, kind = struct.unpack_from("<HH", data)
        found[kind & 0x3fff] = data[4:size]
        data = data[size + 3 & ~3:]
    return found


def name(text):
    return text.encode() + b"\0"


class Netlink:
    def __init__(self):
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)

    def messages(self):
        while True:
            data = self.sock.recv(1 << 16)
            while data:
                size, kind = struct.unpack_from("<IH", data)
                yield kind, data[16:size]
                data = data[size + 3 & ~3:]

    def call(self, family, command, payload=b"", flags=NLM_F_ACK):
        """Answers, without their headers."""
        body = struct.pack("<BBH", command, 1, 0) + payload
        self.sock.send(struct.pack("<IHHII", 16 + len(body), family,
                                   flags | NLM_F_REQUEST, 1, 0) + body)
        answers = []
        for kind, data in self.messages():
            if kind == NLMSG_ERROR and struct.unpack_from("<i", data)[0]:
                error = -struct.unpack_from("<i", data)[0]
                sys.exit(f"setup.py: {os.strerror(error)}")
            if kind in (NLMSG_ERROR, NLMSG_DONE):
                return answers
            answers.append(data[4:])

    def family(self, wanted):
        answer = self.call(GENL_ID_CTRL, CTRL_CMD_GETFAMILY,
                           attribute(CTRL_ATTR_FAMILY_NAME, name(wanted)))
        return struct.unpack(
            "<H", attributes(answer[0])[CTRL_ATTR_FAMILY_ID])[0]


def fallbacks(netlink):
    family = netlink.family("SMC_GEN_NETLINK")
    count = 0
    for answer in netlink.call(family, GET_FBACK_STATS, flags=NLM_F_DUMP):
        for data in attributes(answer).values():
            found = attributes(data)
            # the sums, in each entry
            count = max(count, sum(struct.unpack("<Q", found[kind])[0]
                                   for kind in (FBACK_SERVERS, FBACK_CLIENTS)
                                   if kind in found))
    print(count)


def main(what, *words):
    netlink = Netlink()
    if what == "fallbacks":
        fallbacks(netlink)
        return
    if what == "eid":
        netlink.call(netlink.family("SMC_GEN_NETLINK"), ADD_UEID,
                     attribute(EID_ENTRY, name(words[0].ljust(EID_BYTES))))
        return
    family = netlink.family("SMC_PNETID")
    entry = attribute(PNETID_NAME, name(words[1]))
    if what == "netdev":
        entry += attribute(PNETID_ETHNAME, name(words[0]))
    else:
        entry += attribute(PNETID_IBNAME, name(words[0]))
        entry += attribute(PNETID_IBPORT, b"\1")
    netlink.call(family, PNETID_ADD, entry)


if __name__ == "__main__":
    main(*sys.argv[1:])
