#!/usr/bin/env python3
"""Prints "PASSED FAILED SKIPPED" of a JUnit file written by ctest. A test whose program is missing counts as failed: only tests
that say so themselves are skipped. Fails on a file without tests."""

import sys
import xml.etree.ElementTree as ElementTree


def outcome(case):
    """passed, failed or skipped, for one <testcase>."""
    if case.get("status") == "run":
        return "passed"
    skipped = case.find("skipped")
    message = "" if skipped is None else skipped.get("message", "")
    if case.get("status") == "disabled" or message.startswith(("SKIP_RETURN_CODE", "SKIP_REGULAR_EXPRESSION")):
        return "skipped"
    return "failed"


def counts(root):
    outcomes = [outcome(case) for case in root.iter("testcase")]
    if not outcomes:
        raise ValueError("no tests")
    return tuple(outcomes.count(word) for word in ("passed", "failed", "skipped"))


if __name__ == "__main__":
    try:
        print(*counts(ElementTree.parse(sys.argv[1]).getroot()))
    except (OSError, ValueError, ElementTree.ParseError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
