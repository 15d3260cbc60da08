#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Compare what ibv_devinfo prints with Documentation/limits.md.

usage: capabilities.py DEVICE, in the tree's folder

Each capability has a row, the row has its value, and the tests that the row
names exist and have cases that are called so.
"""
import collections
import glob
import os
import re
import subprocess
import sys

DOC = 'Documentation/limits.md'
# Who the device is, and how its port is at the moment.
OTHERS = re.compile(
    r'hca_id|transport|fw_ver|.*_guid|vendor_\w*id|hw_ver|board_id|port'
    r'|state|active_\w+|\w*_lid|port_lmc|link_layer|\w*_cntr|sm_sl'
    r'|subnet_timeout|init_type_reply|phys_state|GID\[.*|device_cap_flags(_ex)?')
UNITS = {'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30}
Row = collections.namedtuple('Row', 'names value tests')


def number(text):
    """A number of whatever it is, or the text."""
    text = re.sub(r' \(.*', '', text).strip()
    if text == 'processors':
        return os.cpu_count()
    match = re.fullmatch(r'(0x[0-9a-fA-F]+|\d+) ?([A-Za-z]*)', text)
    if not match:
        return text
    return int(match[1], 0) * UNITS.get(match[2], 1)


def printed(device):
    """Names and values; that of a list of flags is the list."""
    output = subprocess.run(['ibv_devinfo', '-v', '-d', device], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    values, flags, name = {}, [], ''
    for line in output.splitlines():
        flag = re.fullmatch(r'\s+([A-Z][A-Z0-9_]+)', line)
        pair = re.fullmatch(r'\s*([^:]+):\s*(.*)', line)
        if flag and name == 'device_cap_flags':
            flags.append(flag[1])
        elif flag:
            values[name] = f'{values[name]} {flag[1]}'.strip()
        elif pair:
            name = pair[1]
            values[name] = pair[2]
    values = {name: value for name, value in values.items()
              if value and not OTHERS.fullmatch(name)}
    return values, flags


def rows():
    """Those of all tables of the document."""
    found = []
    with open(DOC, encoding='utf-8') as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().split('|')[1:-1]]
            if len(cells) < 2 or cells[0] in ('capability', 'flag', '---'):
                continue
            names = re.findall('`([^`]+)`', cells[0]) or [cells[0]]
            found.append(Row(names, cells[1] if len(cells) > 2 else None,
                             cells[-1]))
    return found


def undocumented(values, flags, table):
    """What is printed, is not 0 and has no row."""
    known = {name for row in table for name in row.names}
    return [f'{name} ({value}) has no row' for name, value in values.items()
            if number(value) != 0 and name not in known] + [
                f'{flag} has no row' for flag in flags if flag not in known]


def wrong_values(values, table):
    """Rows that say something else than what is printed."""
    return [f'{name} is {values[name]}, not {row.value}'
            for row in table if row.value is not None
            for name in row.names
            if name in values and number(values[name]) != number(row.value)]


def not_printed(values, flags, table):
    """Rows of what nobody prints (names of the kind that are printed)."""
    return [f'{name} is not printed'
            for row in table for name in row.names
            if re.fullmatch(r'max_\w+|[A-Z][A-Z0-9_]+', name) and
            not name.startswith(('TSO', 'ODP')) and
            name not in values and name not in flags]


def without_comments(path):
    """The text of a file, but for what says nothing to a machine."""
    with open(path, encoding='utf-8') as file:
        text = file.read()
    if path.endswith('.c'):
        return re.sub(r'/\*.*?\*/|//.*?$', '', text, flags=re.S | re.M)
    return re.sub(r'^\s*#.*?$', '', text, flags=re.M)


def sources(test):
    """The text of all that a test consists of, or None."""
    paths = [path for folder in ('tests', 'pyverbs-tests')
             for path in glob.glob(f'{folder}/{test}.test')]
    if not paths:
        return None
    program = test.removesuffix('-full')
    paths += (glob.glob(f'tests/{program}.c') + glob.glob(f'tests/{program}_*.c') +
              glob.glob(f'tests/{program}/*.c'))
    paths += glob.glob(f'tests/{program.replace("-", "/", 1)}.c')
    if os.path.dirname(paths[0]) == 'pyverbs-tests':
        paths += glob.glob('pyverbs-tests/*.py')
        paths.append('pyverbs-tests/suite.sh')
    paths.append('tests/lib/memory.c')  # kinds of memory
    return ''.join(without_comments(path) for path in paths)


def names_in(text):
    """What may be a case's name: strings, methods and modules of pyverbs."""
    text = re.sub(r'"\s*\n\s*"', '', text)
    names = set(re.findall(r'"([^"\n]+)"', text))
    return names | set(re.findall(r'\btest_\w+', text))


def is_made(case, template, names):
    """Is it the template with other names, or numbers, put in?"""
    pattern = re.sub(r'%[a-z]*[du]', r'\\d+', re.escape(template))
    pattern = pattern.replace('%s', '(.+)')
    match = re.fullmatch(pattern, case)
    return match and all(word in names for word in match.groups())


def has_case(names, case):
    """Is there such a name, one that begins so, or one that is made so?"""
    case = re.sub(r' \(.*\)$', '', case)
    if case.endswith('…'):
        return any(name.startswith(case[:-1].rstrip()) for name in names)
    return case in names or any(
        is_made(case, name, names) for name in names if '%' in name and
        re.search('[a-z]{3}', name))


def unknown_cases(table):
    """Tests and cases that rows name and that aren't there."""
    wrong, named = [], 0
    for row in table:
        test, names = '', None
        for part in row.tests.split(';'):
            part = part.strip()
            first, _, rest = part.partition(':')
            if first == 'none':
                break
            text = sources(first)
            if text is not None:
                test, names, part = first, names_in(text), rest.strip()
            if names is None:
                wrong.append(f'{row.names[0]}: there is no test {first}')
            elif not part:
                wrong.append(f'{row.names[0]}: no case of {test} is named')
            elif not has_case(names, part):
                wrong.append(f'{row.names[0]}: {test} has no case "{part}"')
            named += 1
    return wrong if named > 30 else wrong + [f'only {named} are named']


def main():
    """A case for each kind of mistake."""
    values, flags = printed(sys.argv[1])
    table = rows()
    cases = (
        ('each capability is in the table',
         undocumented(values, flags, table) + not_printed(values, flags, table)
         + ([] if len(values) > 40 else ['hardly anything is printed'])),
        ('its value is what is printed', wrong_values(values, table)),
        ('the tests and the cases that it names exist', unknown_cases(table)),
    )
    for index, (name, wrong) in enumerate(cases, 1):
        print(f'{"not ok" if wrong else "ok"} {index} - {name}')
        for line in wrong:
            print(f'#   {line}')
    print(f'1..{len(cases)}')
    return any(wrong for _, wrong in cases)


if __name__ == '__main__':
    sys.exit(main())
