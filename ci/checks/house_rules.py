#!/usr/bin/env python3
"""House rules that a text search can see.

  top level   holds only the agreed entries
  headers     have at most 200 lines, start with #pragma once and a comment
  files       have at most 500 lines, unless the first comment says why ("Over 500 lines: ...")
  words       no stubs or promises in shipped code
  errors      say what failed, why, and what to do
  documents   src/README.md has a paragraph for every room; design notes are numbered without gaps
"""

import re
import subprocess
import sys
from pathlib import Path

TOP_LEVEL = {"CMakeLists.txt", "src", "include", "launch", "datasets", "tests", "ci", "README.md", "LICENSE"}
HEADER_LINES = 200
FILE_LINES = 500
SHIPPED = ("src", "include", "launch", "ci", "CMakeLists.txt")
# Written in pieces so that this file does not match itself.
STUBS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "not (yet )?impl" + "emented", "unimpl" + "emented",
                             "place" + "holder", "for " + "now"]) + r")\b", re.IGNORECASE)
ERROR = re.compile(r"\b(?:User|Data|Resource|Backend|Peer)Error\(")
EXPLAINED = re.compile(r"Over 500 lines: \S")


def tracked(root):
    """Files of the tree: what git tracks, or everything without version control."""
    try:
        text = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
        names = [name for name in text.split("\0") if name]
        if names:
            return [root / name for name in names if (root / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        pass
    return [path for path in sorted(root.rglob("*")) if path.is_file()]


def first_comment(lines):
    """The first block of comment lines, after #pragma once."""
    block = []
    for line in lines:
        text = line.strip()
        if text.startswith(("//", "#!", "# ", "/*", "*", '"""')):
            block.append(text)
        elif block:
            break
        elif text and not text.startswith("#pragma"):
            break
    return " ".join(block)


def check_code(relative, lines):
    problems = []
    suffix = relative.suffix
    if suffix in (".hpp", ".cuh", ".h"):
        if not lines or lines[0] != "#pragma once":
            problems.append(f"{relative}: a header starts with #pragma once")
        if len(lines) > HEADER_LINES and relative.parts[0] != "tests":
            problems.append(f"{relative}: {len(lines)} lines; a header has at most {HEADER_LINES}")
    if suffix in (".hpp", ".cuh", ".h", ".cpp", ".cu", ".py", ".sh"):
        comment = first_comment(lines)
        if not comment and suffix not in (".cpp", ".cu"):  # a source's header says it
            problems.append(f"{relative}: starts without a comment that says what it is")
        if len(lines) > FILE_LINES and not EXPLAINED.search(comment):
            problems.append(f"{relative}: {len(lines)} lines; over {FILE_LINES} the first comment says why "
                            f"('Over {FILE_LINES} lines: ...')")
    return problems


def arguments_of(text, start):
    """Arguments of the C++ call whose parenthesis opens just before `start`, as texts."""
    arguments, depth, at, begin = [], 1, start, start
    while depth > 0 and at < len(text):
        if text[at] == '"':
            at = re.compile(r'"(\\.|[^"\\])*"').match(text, at).end()
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0 or (text[at] == "," and depth == 1):
            arguments.append(text[begin:at].strip())
            begin = at + 1
        at += 1
    return arguments


def check_errors(relative, lines):
    """An error without a remedy leaves its reader alone."""
    text = "\n".join(lines)
    problems = []
    for call in ERROR.finditer(text):
        arguments = arguments_of(text, call.end())
        if len(arguments) < 3 or arguments[2] in ('""', "{}"):
            problems.append(f"{relative}:{text.count(chr(10), 0, call.start()) + 1}: an error without a remedy")
    return problems


def check_documents(root):
    problems = []
    readme = root / "src" / "README.md"
    text = readme.read_text() if readme.exists() else ""
    for folder in sorted((root / "src").iterdir()):
        if folder.is_dir() and folder.name != "design" and f"**{folder.name}**" not in text:
            problems.append(f"src/README.md: no paragraph for the room {folder.name}")
    numbers = sorted(path.name[:4] for path in (root / "src" / "design").glob("*.md"))
    expected = [f"{i:04d}" for i in range(1, len(numbers) + 1)]
    if numbers != expected:
        problems.append(f"src/design: numbers are {numbers}, expected {expected}")
    return problems


def check(root):
    """All problems of the tree at `root`, as lines of text."""
    root = Path(root)
    problems = []
    files = tracked(root)
    tops = {path.relative_to(root).parts[0] for path in files}
    for name in sorted(tops):
        if name not in TOP_LEVEL and not name.startswith("."):
            problems.append(f"{name}: not part of the agreed top level")
    for name in sorted(TOP_LEVEL - tops - {"datasets"}):
        problems.append(f"{name}: missing")
    for path in files:
        relative = path.relative_to(root)
        if relative.parts[0] not in SHIPPED and relative.parts[0] != "tests":
            continue
        if relative.suffix not in (".hpp", ".cpp", ".h", ".cu", ".cuh", ".py", ".sh", ".txt", ".cmake", ".md", ".toml"):
            continue
        lines = path.read_text(errors="replace").splitlines()
        problems += check_code(relative, lines)
        if relative.parts[0] == "src" and relative.suffix in (".cpp", ".cu", ".hpp", ".cuh"):
            problems += check_errors(relative, lines)
        if relative.parts[0] in SHIPPED:
            for number, line in enumerate(lines, 1):
                if STUBS.search(line):
                    problems.append(f"{relative}:{number}: a stub or promise: {line.strip()}")
    return problems + check_documents(root)


if __name__ == "__main__":
    found = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    print("\n".join(found) if found else "house rules: all kept")
    sys.exit(1 if found else 0)
