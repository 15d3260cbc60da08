#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Compare runs of the same suites on mic and on rxe: a table, and a case for
each of its rows.

usage: compare.py MIC RXE
       compare.py --suites FOLDER

All files are TAP. In the first form a row is what stands before the first dot
of a case's name, a module; in the second a suite, which is in FOLDER/SUITE.mic
and FOLDER/SUITE.rxe. A row's case fails if on mic anything fails or is missing,
or is not passed that is passed on rxe.
"""
import collections
import glob
import os
import re
import sys

LINE = re.compile(r'(not )?ok \d+ - (.*?)(?: # SKIP (.*))?$')
DEVICES = ('mic', 'rxe')
VERDICTS = ('passed', 'skipped', 'failed')


class Run:
    """What a file says: the verdict on each case, and whether it is all."""

    def __init__(self, path):
        self.cases, self.reasons, plan = {}, {}, None
        with open(path, encoding='utf-8', errors='replace') as file:
            for line in file:
                match = LINE.match(line.rstrip('\n'))
                if match:
                    self.add(*match.groups())
                elif line.startswith('1..'):
                    plan = int(line[3:])
        self.ended = plan is not None and plan == len(self.cases)

    def add(self, failed, name, skip):
        """A case; several may have the same name."""
        number, unique = 1, name
        while unique in self.cases:
            number += 1
            unique = f'{name} ({number})'
        self.cases[unique] = ('failed' if failed else
                              'passed' if skip is None else 'skipped')
        if skip is not None:
            self.reasons[unique] = skip

    def part(self, prefix):
        """Those cases alone whose names begin so."""
        one = object.__new__(Run)
        one.cases = {name: verdict for name, verdict in self.cases.items()
                     if name.startswith(prefix)}
        one.reasons = {name: why for name, why in self.reasons.items()
                       if name.startswith(prefix)}
        one.ended = self.ended
        return one


def modules(mic, rxe):
    """Rows of the first form."""
    runs = Run(mic), Run(rxe)
    names = sorted({name.split('.')[0] for name in runs[0].cases})
    return {name: [run.part(name + '.') for run in runs] for name in names}


def suites(folder):
    """Rows of the second form."""
    return {os.path.basename(path)[:-len('.mic')]:
            [Run(path), Run(path[:-len('mic')] + 'rxe')]
            for path in sorted(glob.glob(os.path.join(folder, '*.mic')))}


def table(rows):
    """Prints the verdicts on both by row, and why what was skipped."""
    sums = collections.Counter()
    head = [f'{device} {verdict}' for device in DEVICES
            for verdict in VERDICTS]
    width = max(24, *(len(name) + 1 for name in rows))
    print(f'# {"":{width}}{"cases":>7}' + ''.join(f'{w:>13}' for w in head))
    for name, runs in rows.items():
        counts = [list(run.cases.values()).count(verdict)
                  for run in runs for verdict in VERDICTS]
        known = len(set(runs[0].cases) | set(runs[1].cases))
        line(name, width, known, counts)
        sums.update({'cases': known, **dict(zip(head, counts))})
    line('all', width, sums['cases'], [sums[word] for word in head])
    for name, runs in rows.items():
        for device, run in zip(DEVICES, runs):
            if not run.ended:
                print(f'# {name}: not to its end on {device}')
            for why, count in collections.Counter(run.reasons.values()).items():
                print(f'# {name} skips {count} on {device}: {why}')
            for case, verdict in run.cases.items():
                if verdict == 'failed':
                    print(f'# {name} fails on {device}: {case}')


def line(name, width, cases, counts):
    """One row of the table."""
    print(f'# {name:{width}}{cases:7}' + ''.join(f'{n:13}' for n in counts))


def worse(mic, rxe):
    """What is wrong with mic: the cases by name."""
    wrong = [name for name, verdict in mic.cases.items()
             if verdict == 'failed' or
             (verdict == 'skipped' and rxe.cases.get(name) == 'passed')]
    wrong += [name for name, verdict in rxe.cases.items()
              if verdict == 'passed' and name not in mic.cases]
    return wrong


def main(arguments):
    """Reads all, prints table and TAP."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    rows = (suites(arguments[1]) if arguments[0] == '--suites' else
            modules(*arguments))
    if not rows:
        print('Bail out! nothing has run on mic')
        return 1
    if not any(rxe.cases for _, rxe in rows.values()):
        print('Bail out! nothing has run on rxe')
        return 1
    table(rows)
    bad = 0
    for number, (name, (mic, rxe)) in enumerate(rows.items(), 1):
        wrong = worse(mic, rxe)
        good = not wrong and mic.ended
        bad += not good
        print(f'{"ok" if good else "not ok"} {number} - {name}: mic passes '
              'what rxe passes')
        for case in wrong:
            print(f'#   mic: {mic.cases.get(case)}, rxe: '
                  f'{rxe.cases.get(case)}: {case}')
    print(f'1..{len(rows)}')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
