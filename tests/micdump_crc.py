# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""micdump_crc.py NETDEV: until SIGTERM, RoCE packets of rxe on it, and whether micdump
would give each the CRC that it has."""

import os
import signal
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "micdump"))
import micdump  # pylint: disable=wrong-import-position

ETH_P_IP = 0x0800


def main():
    right = wrong = 0
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM,
                       socket.htons(ETH_P_IP)) as sock:
        sock.bind((sys.argv[1], ETH_P_IP))
        sock.settimeout(0.1)
        print("listening", flush=True)
        while not ended:
            try:
                packet = sock.recv(65536)
            except TimeoutError:
                continue
            length, = struct.unpack_from(">H", packet, 2)
            packet = packet[:length]  # without what fills a short frame
            if packet[9] != socket.IPPROTO_UDP or \
                    packet[22:24] != struct.pack(">H", micdump.UDP_PORT):
                continue
            if micdump.invariant_crc(packet[:20], packet[20:-4]) == packet[-4:]:
                right += 1
            else:
                wrong += 1
                print("wrong:", packet.hex())
    print(f"{right} right, {wrong} wrong")
    sys.exit(0 if right and not wrong else 1)


main()
