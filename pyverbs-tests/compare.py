#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Compare two runs of the same suite: a table, and a case for each module.

usage: compare.py MIC RXE

Both are TAP. A module's case fails if mic fails anything, or does not pass what
rxe passes.
"""
import collections
import re
import sys

LINE = re.compile(r'(not )?ok \d+ - (\S+)(?: # SKIP (.*))?')
VERDICTS = ('passed', 'skipped', 'failed')


def read(path):
    """The verdict on each case of a TAP file, and how many it planned."""
    cases, plan = {}, None
    with open(path, encoding='utf-8', errors='replace') as file:
        for line in file:
            match = LINE.match(line)
            if match:
                failed, name, skip = match.groups()
                cases[name] = ('failed' if failed else
                               'passed' if skip is None else 'skipped')
            elif line.startswith('1..'):
                plan = int(line[3:])
    return cases, plan


def table(mic, rxe):
    """Prints the verdicts on both by module."""
    rows = collections.defaultdict(collections.Counter)
    for device, cases in ('mic', mic), ('rxe', rxe):
        for name, verdict in cases.items():
            for row in name.split('.')[0], 'all':
                rows[row][device, verdict] += 1
    head = [f'{device} {verdict}' for device in ('mic', 'rxe')
            for verdict in VERDICTS]
    print(f'# {"module":24}' + ''.join(f'{word:>12}' for word in head))
    for row in sorted(rows, key=lambda row: (row == 'all', row)):
        print(f'# {row:24}' + ''.join(
            f'{rows[row][device, verdict]:12}' for device in ('mic', 'rxe')
            for verdict in VERDICTS))


def main():
    """Reads both, prints table and TAP."""
    mic, mic_plan = read(sys.argv[1])
    rxe, _ = read(sys.argv[2])
    if not mic or mic_plan is None:
        print('Bail out! the suite has not run to its end on mic')
        return 1
    if not rxe:
        print('Bail out! the suite has not run on rxe')
        return 1
    table(mic, rxe)
    modules = sorted({name.split('.')[0] for name in mic})
    bad = 0
    for number, module in enumerate(modules, 1):
        wrong = [name for name, verdict in mic.items()
                 if name.split('.')[0] == module and
                 (verdict == 'failed' or
                  (verdict == 'skipped' and rxe.get(name) == 'passed'))]
        bad += bool(wrong)
        print(f'{"not ok" if wrong else "ok"} {number} - {module}: mic passes '
              'what rxe passes')
        for name in wrong:
            print(f'#   mic: {mic[name]}, rxe: {rxe.get(name)}: {name}')
    print(f'1..{len(modules)}')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
