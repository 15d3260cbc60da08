#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Run our own pyverbs tests, own_*.py beside this file, and report in TAP.

usage: own.py SECONDS [MODULE...]

A case that takes longer than SECONDS fails.
"""
import glob
import os
import sys
import unittest

from run_rdma_core import TapResult


def main():
    """Load the modules, run their cases, print the plan."""
    here = os.path.dirname(os.path.abspath(__file__))
    modules = sys.argv[2:] or sorted(
        os.path.basename(path)[:-3]
        for path in glob.glob(os.path.join(here, 'own_*.py')))
    sys.dont_write_bytecode = True
    result = TapResult(int(sys.argv[1]))
    unittest.defaultTestLoader.loadTestsFromNames(modules).run(result)
    print(f'1..{result.cases}')
    return 1 if result.failed else 0


if __name__ == '__main__':
    sys.exit(main())
