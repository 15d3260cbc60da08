# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What tests have in common that compare a document's tables with a header."""

import subprocess
import tempfile


def read(name):
    """The text of a file."""
    with open(name, encoding="utf-8") as file:
        return file.read()


def compiled(code, expressions, *options):
    """What the compiler makes of expressions behind some code."""
    lines = "\n".join(f'printf("%llu\\n", (unsigned long long)({one}));'
                      for one in expressions)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cc", *options, "-x", "c", "-", "-o", f"{folder}/layout"],
                       input=f"{code}int main(void) {{ {lines} return 0; }}",
                       text=True, check=True)
        out = subprocess.run([f"{folder}/layout"], capture_output=True,
                             text=True, check=True).stdout
    return [int(line) for line in out.split()]


def report(results):
    """Print each name with what is wrong there, as TAP. Is anything?"""
    for i, (name, wrong) in enumerate(results):
        print(f"{'not ' if wrong else ''}ok {i + 1} - {name}")
        for line in wrong:
            print(f"# {line}")
    print(f"1..{len(results)}")
    return any(wrong for _, wrong in results)
