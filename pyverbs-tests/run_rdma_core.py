#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Run test modules of rdma-core's pyverbs suite and report each case in TAP.

usage: run_rdma_core.py FOLDER SECONDS MODULE... -- --dev NAME [--gid N] ...

FOLDER has the suite's files, unpacked; a case that takes longer than SECONDS
fails. What follows "--" goes to the suite.
"""
import importlib
import os
import signal
import sys
import traceback
import unittest


class TooLong(Exception):
    """A case has run out of time."""


class TapResult(unittest.TestResult):
    """Prints a line for each case."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.cases = 0
        self.failed = False

    @staticmethod
    def name_of(test):
        """module.Class.method, without the package"""
        return test.id().split('.', 1)[-1]

    def line(self, word, test, remark=''):
        """One case's verdict."""
        self.cases += 1
        print(f'{word} {self.cases} - {self.name_of(test)}{remark}',
              flush=True)

    def failure(self, test, err):
        """One case's failure, with the reason."""
        self.failed = True
        self.line('not ok', test)
        for line in ''.join(traceback.format_exception(*err)).splitlines():
            print('#', line)
        sys.stdout.flush()

    @staticmethod
    def on_alarm(_number, _frame):
        """Ends a case that hangs."""
        raise TooLong('the case takes too long')

    def startTest(self, test):
        super().startTest(test)
        signal.signal(signal.SIGALRM, self.on_alarm)
        signal.alarm(self.seconds)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line('ok', test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line('ok', test, f' # SKIP {" ".join(str(reason).split())}')

    def addError(self, test, err):
        super().addError(test, err)
        self.failure(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.failure(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.failure(subtest, err)


def main():
    """Load the modules, run their cases, print the plan."""
    folder, seconds = sys.argv[1], int(sys.argv[2])
    split = sys.argv.index('--')
    modules = sys.argv[3:split]
    # The suite reads its options from sys.argv; its package is the folder,
    # its parser a module of its own.
    sys.argv[1:] = sys.argv[split + 1:]
    folder = os.path.abspath(folder)
    package = os.path.basename(folder)
    sys.path[:0] = [os.path.dirname(folder), folder]
    importlib.import_module('args_parser').parser.parse_args()

    suite = unittest.TestSuite()
    for module in modules:
        suite.addTests(unittest.defaultTestLoader.loadTestsFromName(
            f'{package}.{module}'))
    result = TapResult(seconds)
    suite.run(result)
    print(f'1..{result.cases}')
    return 1 if result.failed else 0


if __name__ == '__main__':
    sys.exit(main())
