#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""No order of events leaves a posted request behind.

A model of what decides that somebody works on a send queue: the poster with
its producer index and its doorbell, the engine that sets need_kick before it
goes to sleep or waits for an answer (kernel/engine/requester.c, run.c), the
thread that polls queues (poll.c), the worker, a timer, and modify_qp. Each is a
list of steps; all interleavings of the steps are tried, with store buffers as
x86 has them: a store becomes visible to others at any later moment, in order, or
with the next fence or atomic operation.

In every state that can be reached:
  - if nobody is at work, and nobody will be unless another request is posted,
    then all that was posted is done;
  - a queue that is polled then does not ask for its doorbell;
  - a poster that sees all its requests consumed and need_kick set finds all its
    completions written, so it may execute the next request by itself.

Then each of the things that this rests on is left out, one at a time, and the
model must find what goes wrong.

usage: doorbell_model.py [--more]
"""

import sys

ASLEEP, POLLED, MORE = 1, 2, 4

# Memory: ordinary variables first, then those only atomic steps touch.
VARIABLES = ("producer", "need_kick", "consumer", "completed", "lock",
             "polled", "pending", "queued", "listed", "seen", "timer")
INDEX = {name: i for i, name in enumerate(VARIABLES)}
INITIAL = {"need_kick": ASLEEP, "timer": 1}


class Program:
    """The steps of one actor. Jumps cost no step of their own."""

    def __init__(self):
        self.steps = []
        self.labels = {}
        self.names = 0

    def label(self, name):
        self.labels[name] = len(self.steps)

    def unique(self, name):
        self.names += 1
        return f"{name}.{self.names}"

    def store(self, variable, value):
        """value: of the registers, or a number"""
        self.steps.append(("store", INDEX[variable], value))

    def load(self, register, variable):
        self.steps.append(("load", register, INDEX[variable]))

    def own(self, register, variable):
        """Load what nobody else changes as long as this actor has the lock."""
        self.steps.append(("own", register, INDEX[variable]))

    def fence(self):
        self.steps.append(("fence",))

    def atomic(self, change):
        """change(memory, registers): None if it can't go on now, else the
        outcomes, a list of (memory, registers)"""
        self.steps.append(("atomic", change))

    def jump(self, label, condition=None):
        self.steps.append(("jump", label, condition))

    def maybe(self, label):
        """Go there or on, both is possible."""
        self.steps.append(("maybe", label))

    def check(self, condition, what):
        self.steps.append(("check", condition, what))

    def rest(self, label):
        """A state of rest: this actor owes nobody anything."""
        self.label(label)
        self.steps.append(("rest",))

    def finish(self):
        """Labels to numbers."""
        self.steps.append(("end",))
        self.steps = [
            (s[0], self.labels[s[1]], *s[2:])
            if s[0] in ("jump", "maybe") else s for s in self.steps]
        return self.steps


def change(**values):
    """An atomic step that sets variables, whatever they were."""
    def apply(memory, registers):
        memory = list(memory)
        for name, value in values.items():
            memory[INDEX[name]] = value
        return [(tuple(memory), registers)]
    return apply


def take(variable, value):
    """An atomic step that waits until a variable is positive, and lowers it."""
    def apply(memory, registers):
        if memory[INDEX[variable]] <= 0:
            return None
        memory = list(memory)
        memory[INDEX[variable]] = value(memory[INDEX[variable]])
        return [(tuple(memory), registers)]
    return apply


def try_lock(register):
    def apply(memory, registers):
        taken = memory[INDEX["lock"]]
        memory, registers = list(memory), list(registers)
        registers[register] = not taken
        memory[INDEX["lock"]] = 1
        return [(tuple(memory), tuple(registers))]
    return apply


def wait_lock(memory, registers):
    if memory[INDEX["lock"]]:
        return None
    return change(lock=1)(memory, registers)


# Registers of all programs.
A, B, OK, NUMBER = range(4)


def kick(p, without):
    """mic_qp_kick(), with mic_req_run() and mic_req_sleep() in it."""
    loop, run, sleep, unlock, wait, more, end = (
        p.unique(name) for name in
        ("loop", "run", "sleep", "unlock", "wait", "more", "end"))

    if "pending" not in without:
        p.atomic(change(pending=1))
        p.label(loop)
        p.load(A, "pending")
        p.jump(end, lambda r: not r[A])
    else:
        p.label(loop)
    p.atomic(try_lock(OK))
    p.jump(end, lambda r: not r[OK])
    p.atomic(change(pending=0))
    if "at work" not in without:
        p.store("need_kick", 0)
    p.label(run)
    p.own(B, "consumer")
    p.load(A, "producer")
    p.jump(sleep, lambda r: r[A] == r[B])
    p.maybe(wait)		# for another machine's answer
    p.store("consumer", lambda r: r[B] + 1)
    p.store("completed", lambda r: r[B] + 1)
    p.maybe(more)		# the budget is used up, or the request rests
    p.jump(run)
    p.label(sleep)
    p.load(A, "polled")
    p.store("need_kick", lambda r: POLLED if r[A] else ASLEEP)
    if "sleeper's fence" not in without:
        p.fence()
    if "second look" not in without:
        p.load(A, "producer")
        p.jump(unlock, lambda r: r[A] == r[B])
        p.store("need_kick", 0)
        p.jump(run)
    p.label(unlock)
    p.store("lock", 0)
    if "fence after unlock" not in without:
        p.fence()
    if "look after unlock" not in without and "pending" not in without:
        p.jump(loop)
    p.jump(end)
    p.label(wait)
    p.store("need_kick", MORE)
    p.label(more)
    p.store("lock", 0)
    p.fence()
    p.atomic(change(queued=1))
    p.label(end)


def add_to_poller(memory, registers):
    """mic_poll_add()"""
    if memory[INDEX["listed"]]:
        return [(memory, registers)]
    return change(listed=1, polled=1,
                  seen=memory[INDEX["producer"]])(memory, registers)


def poster(requests, without):
    """Posts, and rings if asked to."""
    p = Program()
    for i in range(1, requests + 1):
        following = p.unique("next")
        p.rest(p.unique("rest"))
        p.store("producer", i)
        if "poster's fence" not in without:
            p.fence()
        p.load(A, "need_kick")
        p.jump(following, lambda r: not r[A] & (ASLEEP | MORE))
        if "no poller" not in without:
            p.atomic(add_to_poller)
        if "doorbell" not in without:
            kick(p, without)
        p.label(following)
        # mic_wq_idle(): may the next one be executed here?
        skip = p.unique("skip")
        p.load(A, "consumer")
        p.jump(skip, lambda r, i=i: r[A] != i)
        if "idle" not in without:
            p.load(A, "need_kick")
            p.jump(skip, lambda r: not r[A] & (ASLEEP | POLLED))
        p.load(A, "completed")
        p.check(lambda r, i=i: r[A] == i,
                "a completion was overtaken by the poster's own")
        p.label(skip)
    p.rest("done")
    p.atomic(lambda memory, registers: None)
    return p.finish()


def poll_look(without):
    """mic_poll_next(): what the poller does with the queue, under its lock;
    with the lock let go of, all of it is visible."""
    def look(memory, registers):
        if not memory[INDEX["listed"]]:
            return None
        producer = memory[INDEX["producer"]]
        news = producer != memory[INDEX["seen"]]
        registers = registers[:NUMBER] + (int(news),)
        if news:
            return change(seen=producer)(memory, registers)
        # nothing for too long; or else nothing happens
        if "flag before kick" in without:
            return [(memory, registers)]
        return change(listed=0, polled=0)(memory, registers)
    return look


def poller(without):
    p = Program()
    p.rest("top")
    p.atomic(poll_look(without))
    if "kick when dozing" in without:
        p.jump("top", lambda r: not r[NUMBER])
    kick(p, without)
    if "flag before kick" in without:
        p.jump("top", lambda r: r[NUMBER])
        p.atomic(change(listed=0, polled=0))
    p.jump("top")
    return p.finish()


def worker(without):
    p = Program()
    p.rest("top")
    p.atomic(take("queued", lambda _: 0))
    kick(p, without)
    p.jump("top")
    return p.finish()


def timer(without):
    """Somebody else kicks."""
    p = Program()
    p.rest("top")
    p.atomic(take("timer", lambda n: n - 1))
    kick(p, without)
    p.jump("top")
    return p.finish()


def poll_no_more(memory, registers):
    """mic_poll_del(): whether it was polled."""
    registers = registers[:NUMBER] + (memory[INDEX["listed"]],)
    return change(listed=0, polled=0)(memory, registers)


def modifier(without):
    """modify_qp: ends the polling under the engine's lock, and has the engine
    run if the queue was polled, has requests or was kicked meanwhile."""
    p = Program()
    p.rest("top")
    p.atomic(wait_lock)
    p.atomic(poll_no_more)
    if "kick of what was polled" not in without:
        p.jump("news", lambda r: r[NUMBER])
    p.own(B, "consumer")
    p.load(A, "producer")
    p.jump("unlock", lambda r: r[A] == r[B])
    p.label("news")
    p.atomic(change(pending=1))
    p.label("unlock")
    p.store("lock", 0)
    p.fence()
    if "look after modify" not in without:
        p.load(A, "pending")
        p.jump("end", lambda r: not r[A])
        p.atomic(change(queued=1))
    p.label("end")
    p.rest("done")
    p.atomic(lambda memory, registers: None)
    return p.finish()


class Violation(Exception):
    pass


class Model:
    """All states, each (memory, actors); actor: (step, registers, buffer)."""

    def __init__(self, requests, without, others):
        self.programs = [poster(requests, without)]
        self.programs += [actor(without) for actor in others]

    def initial(self):
        memory = tuple(INITIAL.get(name, 0) for name in VARIABLES)
        actors = tuple(self.settle(program, memory, 0, (0, 0, 0, 0), ())
                       for program in self.programs)
        return memory, actors

    @staticmethod
    def value_of(memory, buffer, variable):
        """What an actor loads: its own last store, or what is in memory."""
        for stored, value in reversed(buffer):
            if stored == variable:
                return value
        return memory[variable]

    def loaded(self, memory, registers, buffer, step):
        registers = list(registers)
        registers[step[1]] = self.value_of(memory, buffer, step[2])
        return tuple(registers)

    def settle(self, program, memory, at, registers, buffer):
        """Take the steps that nobody else can notice: jumps, and stores into
        the actor's own buffer."""
        while True:
            step = program[at]
            if step[0] == "jump":
                at = (step[1] if step[2] is None or step[2](registers)
                      else at + 1)
            elif step[0] == "store":
                value = step[2](registers) if callable(step[2]) else step[2]
                buffer += ((step[1], value),)
                at += 1
            elif step[0] == "own":
                registers = self.loaded(memory, registers, buffer, step)
                at += 1
            elif step[0] == "fence" and not buffer:
                at += 1
            elif step[0] == "check":
                if not step[1](registers):
                    raise Violation(step[2])
                at += 1
            else:
                return at, registers, buffer

    def moves(self, memory, who, actor):
        """What an actor can do: (memory, actor) pairs."""
        program = self.programs[who]
        at, registers, buffer = actor
        step = program[at]
        if buffer:
            variable, value = buffer[0]
            after = memory[:variable] + (value,) + memory[variable + 1:]
            yield after, self.settle(program, after, at, registers, buffer[1:])
        kind = step[0]
        if kind == "rest":
            yield memory, self.settle(program, memory, at + 1, registers,
                                      buffer)
        elif kind == "load":
            registers = self.loaded(memory, registers, buffer, step)
            yield memory, self.settle(program, memory, at + 1, registers,
                                      buffer)
        elif kind == "fence":
            if not buffer:
                yield memory, self.settle(program, memory, at + 1, registers,
                                          buffer)
        elif kind == "atomic":
            if not buffer:
                for changed, after in step[1](memory, registers) or ():
                    yield changed, self.settle(program, changed, at + 1, after,
                                               buffer)
        elif kind == "maybe":
            for target in (step[1], at + 1):
                yield memory, self.settle(program, memory, target, registers,
                                          buffer)

    def look(self, memory, actors):
        """The state itself: is anything lost?"""
        for program, (at, _, buffer) in zip(self.programs, actors):
            if buffer or program[at][0] not in ("rest", "atomic"):
                return
            if program[at][0] == "atomic" and program[at - 1][0] != "rest":
                return
        value = dict(zip(VARIABLES, memory))
        if value["queued"] or value["lock"]:
            return
        if value["listed"] and value["seen"] != value["producer"]:
            return
        if value["consumer"] != value["producer"]:
            raise Violation("a request was left behind")
        if value["listed"] and value["need_kick"] != POLLED:
            raise Violation("a queue that is polled asks for its doorbell")

    def explore(self):
        """How many states there are; raises Violation."""
        first = self.initial()
        seen = {first}
        todo = [first]
        while todo:
            memory, actors = todo.pop()
            self.look(memory, actors)
            for who, actor in enumerate(actors):
                for changed, after in self.moves(memory, who, actor):
                    state = (changed,
                             actors[:who] + (after,) + actors[who + 1:])
                    if state not in seen:
                        seen.add(state)
                        todo.append(state)
        return len(seen)


# What is left out, and who must be there to suffer from it.
MUTANTS = (
    ("poster's fence", (poller,)),
    ("sleeper's fence", (poller,)),
    ("second look", (poller,)),
    ("pending", (poller,)),
    ("look after unlock", (poller,)),
    ("fence after unlock", (poller,)),
    ("doorbell", (poller,)),
    ("at work", (poller,)),
    ("idle", (poller,)),
    ("kick when dozing", (poller,)),
    ("flag before kick", (poller,)),
    ("kick of what was polled", (poller, modifier)),
    ("look after modify", (poller, modifier)),
)

# Who takes part, and how many requests are posted.
CASES = (
    (4, (), "the poster alone"),
    (3, (worker,), "with a worker"),
    (3, (poller,), "with a thread that polls"),
    (1, (poller, worker, modifier), "with modify_qp"),
)

MORE_CASES = (
    (1, (poller, worker, timer), "with a timer"),
    (2, (poller, worker), "with a thread that polls and a worker"),
    (2, (poller, worker, modifier), "with modify_qp between requests"),
)


class Tap:
    def __init__(self):
        self.count = 0
        self.failed = 0

    def case(self, good, name):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}", flush=True)


def explore(requests, without, others):
    """The number of states, or what goes wrong."""
    without = set(without)
    if poller not in others:
        without.add("no poller")
    try:
        return Model(requests, without, others).explore(), None
    except Violation as violation:
        return 0, str(violation)


def main(arguments):
    if arguments not in ([], ["--more"]):
        print(__doc__, file=sys.stderr)
        return 2
    tap = Tap()
    for requests, others, name in CASES + (MORE_CASES if arguments else ()):
        states, wrong = explore(requests, (), others)
        print(f"# {requests} requests, {states} states")
        if wrong:
            print(f"# {wrong}")
        tap.case(not wrong, f"nothing is left behind: {name}")
    for what, others in MUTANTS:
        states, wrong = explore(2, (what,), others)
        print(f"# {wrong}" if wrong else f"# {states} states")
        tap.case(bool(wrong), f"without it something is lost: {what}")
    print(f"1..{tap.count}")
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
