#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Where two sides each store something and then look at what the other stores.

One of them at least must see the other; that is what the full barriers of the
driver are for. Each place is modelled as what its actors do, a list of steps. All
interleavings are tried, with store buffers as x86 has them: a store becomes
visible to others at any later moment, in order, or with the next fence, lock or
atomic operation. When nothing is left to do, what the place promises must hold.

Then each barrier, and each look that the promise rests on, is left out, one at a
time, and the model must find what goes wrong.

usage: barriers_model.py
"""

import sys


class Actor:
    """Steps that others may come between. Registers are called by names."""

    def __init__(self, without):
        self.without = without
        self.steps = []
        self.labels = {}

    def label(self, name):
        self.labels[name] = len(self.steps)

    def store(self, variable, value):
        self.steps.append(("store", variable, value))

    def load(self, variable, register):
        self.steps.append(("load", variable, register))

    def fence(self, name):
        """A full barrier; @name is what it is left out by."""
        if name not in self.without:
            self.steps.append(("atomic", lambda memory: [{}]))

    def atomic(self, change):
        """change(memory): what it sets, one of several outcomes, or [] if it
        has to wait."""
        self.steps.append(("atomic", change))

    def jump(self, label, condition=lambda registers: True):
        self.steps.append(("jump", label, condition))

    def lock(self):
        self.atomic(lambda memory: [] if memory["lock"] else [{"lock": 1}])

    def unlock(self):
        # on x86 a store; that it may be late hides nothing the lock protects
        self.store("lock", 0)

    def check(self, condition, what):
        self.steps.append(("check", condition, what))


class Violation(Exception):
    """What goes wrong."""


class Place:
    """The states of memory and of all actors, each (step, registers, buffer)."""

    def __init__(self, variables, actors, promise):
        self.names = sorted(set(variables) | {"lock"})
        self.actors = actors
        self.promise = promise

    def settle(self, actor, at, registers):
        """Past steps that take no time."""
        while at < len(actor.steps):
            step = actor.steps[at]
            if step[0] == "jump":
                known = dict(registers)
                at = actor.labels[step[1]] if step[2](known) else at + 1
            elif step[0] == "check":
                if not step[1](dict(registers)):
                    raise Violation(step[2])
                at += 1
            else:
                break
        return at, registers

    def step(self, actor, memory, state):
        """What the actor itself can do next."""
        at, registers, buffer = state
        if at == len(actor.steps):
            return
        step = actor.steps[at]
        if step[0] == "store":
            buffer += ((step[1], step[2]),)
            yield memory, self.settle(actor, at + 1, registers) + (buffer,)
        elif step[0] == "load":
            value = memory[self.names.index(step[1])]
            for name, stored in buffer:
                value = stored if name == step[1] else value
            known = dict(registers)
            known[step[2]] = value
            yield memory, self.settle(actor, at + 1,
                                      tuple(sorted(known.items()))) + (buffer,)
        elif not buffer:
            for changes in step[1](dict(zip(self.names, memory))):
                after = tuple(changes.get(name, value)
                              for name, value in zip(self.names, memory))
                yield after, self.settle(actor, at + 1, registers) + (buffer,)

    def moves(self, memory, actors):
        for who, (actor, state) in enumerate(zip(self.actors, actors)):
            outcomes = list(self.step(actor, memory, state))
            if state[2]:
                (name, value), buffer = state[2][0], state[2][1:]
                after = list(memory)
                after[self.names.index(name)] = value
                outcomes.append((tuple(after), state[:2] + (buffer,)))
            for changed, after in outcomes:
                yield changed, actors[:who] + (after,) + actors[who + 1:]

    def look(self, memory, actors):
        """Nobody can go on: is all as promised?"""
        stuck = [at < len(actor.steps)
                 for actor, (at, _, _) in zip(self.actors, actors)]
        wrong = self.promise(dict(zip(self.names, memory)), stuck)
        if wrong:
            raise Violation(wrong)

    def explore(self):
        """How many states there are."""
        actors = tuple(self.settle(actor, 0, ()) + ((),)
                       for actor in self.actors)
        first = (tuple(0 for _ in self.names), actors)
        seen, todo = {first}, [first]
        while todo:
            state = todo.pop()
            following = list(self.moves(*state))
            if not following:
                self.look(*state)
            for after in following:
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        return len(seen)


# --- who waits for a variable (wait_var_event(), wake_up_var()) ----------------

def waiter(without, flag, waiting, data=None):
    """Sleeps until @flag is set; then what was stored before it is there."""
    actor = Actor(without)
    actor.load(flag, "done")
    actor.jump("out", lambda r: r["done"])
    actor.label("again")
    # prepare_to_wait_event(): a lock, and a barrier after the task's state
    actor.atomic(lambda memory: [{waiting: 1}])
    if "second look" not in without:
        actor.load(flag, "done")
        actor.jump("out", lambda r: r["done"])
    actor.atomic(lambda memory: [] if memory[waiting] else [{}])
    actor.load(flag, "done")
    actor.jump("again", lambda r: not r["done"])
    actor.label("out")
    if data:
        actor.load(data, "data")
        actor.check(lambda r: r["data"], "the answer is not there")
    return actor


def wake(actor, waiting, following):
    """__wake_up_bit(): looks whether anybody waits, without a barrier."""
    actor.load(waiting, "waiting")
    actor.jump(following, lambda r: not r["waiting"])
    actor.atomic(lambda memory: [{waiting: 0}])
    actor.label(following)


def nobody_sleeps(memory, stuck):
    return "somebody sleeps for ever" if any(stuck) else None


def answer(without):
    """mic_answer() in engine.h; mic_req_cancel(), mic_window_cancel() wait."""
    actor = Actor(without)
    actor.store("data", 1)
    actor.store("flag", 1)
    actor.fence("barrier before the wake-up")
    wake(actor, "waiting", "end")
    return Place(("data", "flag", "waiting"),
                 [actor, waiter(without, "flag", "waiting", "data")],
                 nobody_sleeps)


def exports(without):
    """mic_export_unlink(), and mic_exports_wait() for a queue pair and a key."""
    actor = Actor(without)
    actor.lock()
    actor.store("qp", 1)
    actor.store("mkey", 1)
    actor.fence("barrier before the wake-ups")
    wake(actor, "qp_waiting", "next")
    if "other wake-up" not in without:
        wake(actor, "mkey_waiting", "end")
    actor.unlock()
    return Place(("qp", "mkey", "qp_waiting", "mkey_waiting"),
                 [actor, waiter(without, "qp", "qp_waiting"),
                  waiter(without, "mkey", "mkey_waiting")], nobody_sleeps)


def reply(without):
    """mic_answer_commit_later() and mic_answer_flush(): an answer that waits for the
    next request to go with, which leaves meanwhile. Only a timer tells it otherwise."""
    receiver = Actor(without)
    receiver.store("delayed", 1)
    receiver.fence("receiver's barrier")
    if "look at the requests" not in without:
        receiver.load("request", "request")
        receiver.jump("end", lambda r: not r["request"])
        receiver.store("answer", 1)
    receiver.label("end")

    sender = Actor(without)
    sender.store("request", 1)
    sender.fence("sender's barrier")
    sender.load("delayed", "delayed")
    sender.jump("end", lambda r: not r["delayed"])
    sender.store("answer", 1)
    sender.label("end")

    def promise(memory, _):
        return None if memory["answer"] else "the answer waits in vain"
    return Place(("delayed", "request", "answer"), [receiver, sender], promise)


def session(without):
    """mic_path_begin(), and mic_path_receive_one(): an index of the new session is
    behind what the reader knows, so what it sees there is of the lap before."""
    sender = Actor(without)
    sender.store("session", 1)
    sender.store("index", 1)

    reader = Actor(without)
    reader.load("index", "index")
    reader.jump("end", lambda r: not r["index"])
    if "look at the session" not in without:
        reader.load("session", "session")
        reader.jump("end", lambda r: r["session"])
    reader.check(lambda r: False, "a record of the lap before is carried out")
    reader.label("end")
    return Place(("session", "index"), [sender, reader], nobody_sleeps)


# --- keys and windows ----------------------------------------------------------

def key(without):
    """mic_mkey_get_remote(), mic_mkey_put_remote(), mic_mkey_revoke()."""
    user = Actor(without)
    user.store("users", 1)
    user.fence("user's barrier")
    user.load("revoked", "revoked")
    user.jump("put", lambda r: r["revoked"])
    user.load("changed", "changed")	# the copy
    user.check(lambda r: not r["changed"], "a copy by a key that has changed")
    user.label("put")
    user.atomic(lambda memory: [{"users": 0}])
    wake(user, "waiting", "end")

    owner = Actor(without)
    owner.store("revoked", 1)
    owner.fence("owner's barrier")
    owner.load("users", "users")	# before it even prepares to sleep
    owner.jump("change", lambda r: not r["users"])
    owner.label("again")
    owner.atomic(lambda memory: [{"waiting": 1}])
    owner.load("users", "users")
    owner.jump("change", lambda r: not r["users"])
    owner.atomic(lambda memory: [] if memory["waiting"] else [{}])
    owner.jump("again")
    owner.label("change")
    owner.store("changed", 1)
    return Place(("users", "revoked", "changed", "waiting"), [user, owner],
                 nobody_sleeps)


def window(without):
    """mic_import_link() and mic_imports_revoke_qp(): a queue pair fails."""
    process = Actor(without)
    process.lock()
    process.store("mapped", 1)
    process.fence("importer's barrier")
    process.load("failed", "failed")
    process.jump("unlock", lambda r: r["failed"])
    process.store("window", 1)
    process.label("unlock")
    process.unlock()

    failing = Actor(without)
    failing.store("failed", 1)
    failing.fence("revoker's barrier")
    if "look at the flag" not in without:
        failing.load("mapped", "mapped")
        failing.jump("end", lambda r: not r["mapped"])
        failing.lock()
        failing.store("window", 0)
        failing.unlock()
    failing.label("end")

    def promise(memory, stuck):
        return "a window of a queue pair that failed" if memory["window"] \
            else nobody_sleeps(memory, stuck)
    return Place(("mapped", "failed", "window"), [process, failing], promise)


# --- events --------------------------------------------------------------------

def event(without):
    """mic_cq_arm() and a last poll; the completion is the kernel's
    (moderation.c) or the process's own (mic_own_add())."""
    completer = Actor(without)
    completer.store("element", 1)
    completer.fence("completer's barrier")
    completer.load("armed", "armed")
    completer.jump("end", lambda r: not r["armed"])
    completer.atomic(lambda memory: [{"event": 1, "armed": 0}])
    completer.label("end")

    program = Actor(without)
    program.store("armed", 1)
    program.fence("armer's barrier")
    if "last poll" not in without:
        program.load("element", "element")
        program.jump("end", lambda r: r["element"])
    program.atomic(lambda memory: [{}] if memory["event"] else [])
    program.label("end")
    return Place(("element", "armed", "event"), [completer, program],
                 nobody_sleeps)


PLACES = (
    ("an answer and who gives up waiting for it", answer,
     ("barrier before the wake-up", "second look")),
    ("windows given back by another machine, and who waits for the last", exports,
     ("barrier before the wake-ups", "other wake-up", "second look")),
    ("an answer that waits for a request, and the request", reply,
     ("receiver's barrier", "sender's barrier", "look at the requests")),
    ("a record, and a session that begins", session, ("look at the session",)),
    ("a key in use and its revocation", key,
     ("user's barrier", "owner's barrier")),
    ("a window granted while its queue pair fails", window,
     ("importer's barrier", "revoker's barrier", "look at the flag")),
    ("a completion and who waits for its event", event,
     ("completer's barrier", "armer's barrier", "last poll")),
)


def explore(place, without):
    """The number of states, or what goes wrong."""
    try:
        return place(without).explore(), None
    except Violation as violation:
        return 0, str(violation)


def main():
    cases = failed = 0
    for name, place, parts in PLACES:
        for without in ((),) + tuple((part,) for part in parts):
            states, wrong = explore(place, without)
            good = bool(wrong) == bool(without)
            cases += 1
            failed += not good
            what = f", without the {without[0]}: found" if without else ""
            print(f"# {wrong or f'{states} states'}")
            print(f"{'ok' if good else 'not ok'} {cases} - {name}{what}")
    print(f"1..{cases}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
