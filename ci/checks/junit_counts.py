#!/usr/bin/env python3
"""Prints "PASSED FAILED SKIPPED" of a JUnit file written by ctest; fails on a file without tests."""

import sys
import xml.etree.ElementTree as ElementTree


def counts(path):
    suite = ElementTree.parse(path).getroot()
    total, failed, skipped = (int(suite.get(key, 0)) for key in ("tests", "failures", "skipped"))
    skipped += int(suite.get("disabled", 0))
    if total == 0:
        raise SystemExit(f"{path}: no tests")
    return total - failed - skipped, failed, skipped


if __name__ == "__main__":
    print(*counts(sys.argv[1]))
