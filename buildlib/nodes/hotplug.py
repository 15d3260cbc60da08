#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""On the host: takes a running node's shared regions from it, or gives them back.

  hotplug.py unplug SOCKETS NODE REGIONS
  hotplug.py plug SOCKETS NODE REGIONS

SOCKETS is host.py's folder, where "qmp-NODE" is the node's QEMU. Ends with 0 when the
node's kernel has let the devices go, or when QEMU has them again; otherwise with 1,
and says why.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from qmp import Monitor, Refused  # noqa: E402


def unplug(monitor, sockets, number):
    device = f"shared{number}"
    monitor.call("device_del", id=device)
    monitor.await_event("DEVICE_DELETED", device=device)
    # a device that comes later wants one that no other has had
    monitor.call("object-del", id=f"region{number}")


def plug(monitor, sockets, number):
    path = f"{sockets}/region-{number}"
    monitor.call("object-add", **{
        "qom-type": "memory-backend-file", "id": f"region{number}",
        "share": True, "mem-path": path, "size": os.stat(path).st_size})
    monitor.call("device_add", driver="ivshmem-plain", id=f"shared{number}",
                 memdev=f"region{number}", bus="bridge",
                 addr=f"{number + 1:02x}.0")


def main():
    actions = {"unplug": unplug, "plug": plug}
    action, sockets, node, regions = sys.argv[1:]
    try:
        monitor = Monitor(f"{sockets}/qmp-{node}")
        for number in range(int(regions)):
            actions[action](monitor, sockets, number)
    except FileNotFoundError:
        print("there is no QEMU that takes devices: ./run vm --hot-plug has")
        return 1
    except (Refused, OSError) as problem:
        print(problem)
        return 1
    return 0


sys.exit(main())
