#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Migrates a machine from one QEMU to another one by RDMA, and looks at its memory.

  migrate.py CASE FIRMWARE SOURCE TARGET [COMMAND...]

SOURCE and TARGET are addresses, of this computer and of the one where COMMAND runs a
program: the same without it. FIRMWARE is on both, and where its name ends is room for
files. CASE is one of those at the end. Ends with 0 if all was as it should be;
otherwise it says what was not.
"""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../buildlib"))
from qmp import SECONDS, Monitor, Refused  # noqa: E402 pylint: disable=wrong-import-position

MIB = 1 << 20
MEMORY = 64 * MIB
# The middle of it is not zero.
FILLED, FILLING = 16 * MIB, 32 * MIB
# What the firmware writes to.
WRITTEN, WRITTEN_END = 64 << 10, 576 << 10
# So much a second, if something is to happen before all is there.
SLOWLY = 4 * MIB
MONITOR_PORTS = (4444, 4445)
RDMA_PORT = 4446


class Wrong(Exception):
    """Something is not as it should be."""


def until(condition, what):
    """Asks again and again; what CONDITION says when that is something."""
    end = time.monotonic() + SECONDS
    while True:
        said = condition()
        if said:
            return said
        if time.monotonic() > end:
            raise Wrong(f"{what}: not after {SECONDS} seconds")
        time.sleep(0.1)


class Machine:
    """A QEMU, which COMMAND starts where ADDRESS is."""

    started = []

    def __init__(self, options, address, port, firmware, command=()):
        self.command, self.firmware = list(command), firmware
        self.process = subprocess.Popen([
            *command, "qemu-system-x86_64", "-accel", "tcg", "-machine", "pc",
            "-m", f"{MEMORY // MIB}M", "-nodefaults", "-no-user-config",
            "-display", "none", "-bios", firmware, "-S",
            "-qmp", f"tcp:{address}:{port},server=on,wait=off", *options])
        self.started.append(self)
        self.monitor = until(lambda: self.connect(address, port),
                             "a QEMU's monitor")

    def connect(self, address, port):
        if self.process.poll() is not None:
            raise Wrong(f"a QEMU ends with {self.process.returncode}")
        try:
            return Monitor((address, port))
        except OSError:
            return None

    def call(self, command, **arguments):
        return self.monitor.call(command, **arguments)

    def executes(self):
        return self.call("query-status")["running"]

    def migration(self):
        return self.call("query-migrate").get("status")

    def pin_all(self):
        self.call("migrate-set-capabilities", capabilities=[
            {"capability": "rdma-pin-all", "state": True}])

    def digest(self, start=0, size=MEMORY):
        """Of what is in its memory there."""
        path = self.firmware + ".memory"
        self.call("pmemsave", val=start, size=size, filename=path)
        said = self.run("sha256sum", path)
        self.run("rm", path)
        return said.split()[0]

    def writes(self):
        """Whether it does: its memory changes."""
        before = self.digest(WRITTEN, WRITTEN_END - WRITTEN)
        until(lambda: self.digest(WRITTEN, WRITTEN_END - WRITTEN) != before,
              "the machine's memory changes")

    def run(self, *command):
        """Where the machine is; what COMMAND says."""
        return subprocess.run([*self.command, *command], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def kill(self):
        if self.command:  # the process is what started it there
            subprocess.run([*self.command, "pkill", "-KILL", "-x", "qemu-system-x86"],
                           check=False)
        else:
            self.process.kill()
        self.process.wait()

    def ends(self):
        """It does so by itself: with which status?"""
        until(lambda: self.process.poll() is not None, "a QEMU ends")
        return self.process.returncode

    def quit(self):
        """Well, if it has not ended before; it may do so before its answer is here."""
        if self.process.poll() is not None:
            return
        try:
            self.call("quit")
        except (OSError, Refused):
            pass
        if self.process.wait(SECONDS):
            raise Wrong(f"a QEMU ends with {self.process.returncode}")

    def end(self):
        """However it is."""
        if self.process.poll() is None:
            self.kill()


class Pair:
    """A machine, and where it is to be migrated to."""

    def __init__(self, firmware, source, target, command):
        self.firmware, self.address, self.command = firmware, target, command
        with open(firmware + ".filling", "wb") as file:
            file.write(os.urandom(FILLING))
        self.source = Machine(
            ["-device", f"loader,file={file.name},addr={FILLED:#x},force-raw=on"],
            source, MONITOR_PORTS[0], firmware)
        self.target = None

    def await_machine(self, pin_all=False):
        """A new QEMU waits for the machine."""
        self.target = Machine(["-incoming", "defer"], self.address, MONITOR_PORTS[1],
                              self.firmware, self.command)
        if pin_all:
            self.target.pin_all()
        self.target.call("migrate-incoming", uri=self.uri())

    def uri(self):
        return f"rdma:{self.address}:{RDMA_PORT}"

    def begin(self, bandwidth=1 << 40):
        """Bytes a second, at most."""
        self.source.call("migrate-set-parameters", **{"max-bandwidth": bandwidth})
        self.source.call("migrate", uri=self.uri())

    def ended(self, status):
        """The migration has ended like that."""
        said = until(self.has_ended, "the migration ends")
        if said != status:
            raise Wrong(f"the migration has {said}, not {status}")

    def has_ended(self):
        said = self.source.migration()
        return said if said in ("completed", "failed", "cancelled") else None

    def is_on_its_way(self):
        """Some of the memory is there, and some is not."""
        def some():
            said = self.source.call("query-migrate")
            if said["status"] not in ("setup", "active"):
                raise Wrong(f"the migration has {said['status']} too early")
            return said.get("ram", {}).get("transferred", 0) > MIB

        until(some, "a MiB is transferred")

    def compare(self):
        """Both have the same in their memories, now that neither executes anything."""
        until(lambda: self.target.migration() == "completed", "all has come")
        if self.source.executes() or self.target.executes():
            raise Wrong("a machine executes something, which is not to")
        if self.source.digest() != self.target.digest():
            raise Wrong("the memories differ")

    def quit(self):
        self.source.quit()
        self.target.quit()


def stopped(pair, pin_all=False):
    if pin_all:
        pair.source.pin_all()
    pair.await_machine(pin_all)
    pair.begin()
    pair.ended("completed")
    pair.compare()


def pinned(pair):
    stopped(pair, pin_all=True)


def running(pair):
    """It writes meanwhile, and afterwards where it is then."""
    pair.source.call("cont")
    pair.source.writes()
    stopped(pair)
    pair.target.call("cont")
    pair.target.writes()


def cancelled(pair):
    """It stays where it is, and can be migrated after that."""
    pair.source.call("cont")
    pair.await_machine()
    pair.begin(SLOWLY)
    pair.is_on_its_way()
    pair.source.call("migrate_cancel")
    pair.ended("cancelled")
    pair.source.writes()
    # QEMU disconnects after a grace period, which a machine in a loop holds up
    pair.source.call("stop")
    pair.target.ends()
    pair.source.call("cont")
    stopped(pair)


def target_killed(pair):
    """Likewise."""
    pair.source.call("cont")
    pair.await_machine()
    pair.begin(SLOWLY)
    pair.is_on_its_way()
    pair.target.kill()
    pair.ended("failed")
    pair.source.writes()
    stopped(pair)


def source_killed(pair):
    """Who waits for the rest ends, and says that it has failed."""
    pair.await_machine()
    pair.begin(SLOWLY)
    pair.is_on_its_way()
    pair.source.kill()
    if pair.target.ends() == 0:
        raise Wrong("a QEMU that got half a machine ends with 0")


CASES = {"stopped": stopped, "pinned": pinned, "running": running,
         "cancelled": cancelled, "target-killed": target_killed,
         "source-killed": source_killed}


def main():
    case, firmware, source, target, *command = sys.argv[1:]
    try:
        pair = Pair(firmware, source, target, command)
        CASES[case](pair)
        pair.quit()
    except (Wrong, Refused, OSError, subprocess.SubprocessError) as problem:
        print(problem)
        return 1
    finally:
        for machine in Machine.started:
            machine.end()
    return 0


sys.exit(main())
