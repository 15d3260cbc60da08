#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
"""Write a manual page for each function of scif.h from its comment.

usage: pages.py SCIF_H FOLDER
"""
import pathlib
import re
import sys

PLAIN = {
    "EMFILE": "the process has too many descriptors",
    "ENFILE": "the system has too many descriptors",
    "ENOMEM": "out of memory",
    "EFAULT": "a bad address",
    "EINTR": "a signal came",
    "EINVAL": "invalid argument",
    "ENOTCONN": "the endpoint is not connected",
    "ECONNRESET": "the peer has closed the connection, or is gone",
    "EINPROGRESS": "the connection is being made",
    "EISCONN": "the endpoint is connected",
    "ENOSPC": "no port is left",
}
COMMON = {
    "EBADF": "the descriptor is not open",
    "ENOTTY": "the descriptor is not an endpoint of this process",
}
# A name, and perhaps a reason, in which there may be f() but no other parentheses.
ERROR = r"(E[A-Z]+)(?: \(((?:[^()]|\(\))*)\))?"


def sentence(text):
    return text[:1].upper() + text[1:]


def escape(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def markup(text):
    """@name is an argument, name() a function, CAPITALS a constant."""
    text = escape(text)
    text = re.sub(r"@(\w+)", r"\\fI\1\\fP", text)
    text = re.sub(r"\b((?:SCIF_|O_|POLL|RLIMIT_|CAP_)\w+)", r"\\fB\1\\fP", text)
    return re.sub(r"\b(\w+)\(\)", r"\\fB\1\\fP()", text)


class Page:
    """One comment and the declarations behind it."""

    def __init__(self, comment, code):
        lines = [re.sub(r"^ \* ?", "", line) for line in comment.split("\n")]
        self.name, self.short = lines[0].split(" - ", 1)
        self.code = code
        self.args, self.paragraphs, self.returns, self.errors = [], [], "", ""
        rest = self.take_arguments(lines[1:])
        for paragraph in re.split(r"\n\s*\n", "\n".join(rest).strip()):
            self.take_paragraph(" ".join(paragraph.split()))

    def take_arguments(self, lines):
        while lines and lines[0].startswith("@"):
            name, text = lines.pop(0)[1:].split(":", 1)
            while lines and lines[0].startswith("\t"):
                text += " " + lines.pop(0).strip()
            self.args.append((name, text.strip()))
        return lines

    def take_paragraph(self, text):
        match = re.match(r"Return: (.*?)(?: ?Errors: (.*))?$", text)
        if match:
            self.returns, self.errors = match.group(1), match.group(2) or ""
        elif text.startswith("Errors: "):
            self.errors = text[len("Errors: "):]
        elif text:
            self.paragraphs.append(text)

    def error_list(self, pages):
        text, errors = self.errors.rstrip("."), {}
        match = re.match(r"as (\w+)\(\)(?:, and (E\w+) for @(\w+))?$", text)
        if match:
            errors = dict(pages[match.group(1)].error_list(pages))
            if match.group(2):
                errors[match.group(2)] = f"a bad address @{match.group(3)}"
            return errors
        if text and not re.fullmatch(f"{ERROR}(?:, {ERROR})*", text):
            sys.exit(f"{self.name}: not a list of errors and reasons: {text}")
        for name, reason in re.findall(ERROR, text):
            reason = reason or PLAIN.get(name) or COMMON.get(name)
            if not reason:
                sys.exit(f"{self.name}: {name} has no reason")
            errors[name] = reason
        if any(name == "epd" for name, _ in self.args):
            errors.update(COMMON)
        return errors

    def text(self, pages):
        out = [f'.TH {self.name.upper()} 3 "" libscif "SCIF on RDMA"',
               ".SH NAME", f"{self.name} \\- {escape(self.short)}",
               ".SH SYNOPSIS", ".nf", ".B #include <scif.h>", ".PP"]
        out += [f".B {escape(line)}" for line in self.code.split("\n")]
        out += [".fi", ".PP", "Link with \\fI\\-lscif\\fP.", ".SH DESCRIPTION"]
        for name, text in self.args:
            out += [".TP", f".I {name}", markup(sentence(text)) + "."]
        for paragraph in self.paragraphs:
            out += [".PP", markup(paragraph)]
        out += [".SH RETURN VALUE", markup(sentence(self.returns))]
        if self.errors:
            out.append("On failure \\-1 is returned, as the type has it, and"
                       " \\fIerrno\\fP is set.")
            out.append(".SH ERRORS")
            for name, text in sorted(self.error_list(pages).items()):
                out += [".TP", f".B {name}", markup(sentence(text)) + "."]
        out += [".SH SEE ALSO", ".BR scif (7)"]
        return "\n".join(out) + "\n"


def read_pages(header):
    pages = {}
    pattern = r"/\*\*\n \* (scif_\w+ - .*?)\n \*/\n(.*?;)\n\n"
    for comment, code in re.findall(pattern, header, re.S):
        code = code.replace("\t", "        ")
        page = Page(comment, code)
        pages[page.name] = page
    return pages


def main():
    header = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    pages = read_pages(header + "\n")
    # all of them before the first is written: make takes what is there for done
    texts = {name: page.text(pages) for name, page in pages.items()}
    for name, text in texts.items():
        (folder / f"{name}.3").write_text(text, encoding="utf-8")
    (folder / "scif_get_nodeIDs.3").write_text(".so man3/scif_get_node_ids.3\n",
                                               encoding="utf-8")


main()
