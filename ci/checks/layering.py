#!/usr/bin/env python3
"""Layering: reads #include lines and CMake links and fails on anything that src/README.md's table does not allow.

Rules
  rooms       a room includes itself and, transitively, the rooms the table lists for it
  links       renai_room(... DEPS ...) names exactly the rooms of the table (app: any)
  relative    an include in quotes that is not "renai/..." stays inside its room, and inside its leaf and the leaves it links
  leaves      a leaf's public header is included by that leaf, other leaves, app and tests only
  libraries   a third-party header is included only by the .cpp files that own the library; include/ has none
"""

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# Public headers that belong to leaves.
LEAF_HEADERS = {"renai/device/host.hpp", "renai/device/cuda.hpp", "renai/comm/mpi.hpp", "renai/comm/nccl.hpp",
                "renai/backend/cuda.hpp"}

# Sources outside leaves that the leaves of a room share: they may include leaf headers as the leaves do.
SHARED_BY_LEAVES = ("src/backend/host_",)

# Third-party headers (regular expression over the include's text) -> folders of src/ whose .cpp files may include them.
LIBRARIES = [
    ("MPI", r"mpi\.h$|mpi-ext\.h$", ["comm/mpi"]),
    ("HDF5", r"hdf5\.h$|hdf5_hl\.h$|H5.*\.h$", ["io", "data"]),
    ("oneDNN", r"dnnl|oneapi/", ["backend/cpu"]),
    ("OpenMP", r"omp\.h$", ["backend/cpu"]),
    ("CLI11", r"CLI/", ["app"]),
    ("toml++", r"toml\+\+/|toml\.hpp$|toml\+\+\.h", ["model", "app"]),
    ("spdlog", r"spdlog/", ["base"]),
    ("xxHash", r"xxhash\.h$|xxh3\.h$", ["base", "io"]),
    ("zlib", r"zlib\.h$", ["data"]),
    ("libjpeg", r"jpeglib\.h$|jerror\.h$|jmorecfg\.h$", ["data"]),
    ("libpng", r"\bpng\.h$", ["data"]),
    ("nlohmann-json", r"nlohmann/", ["plan", "io", "data", "train", "report", "app"]),
    ("CUDA", r"cuda|cudnn|cublas|cutlass|nccl|nvml|nvrtc|driver_types\.h|cub/|thrust/",
     ["device/cuda", "backend/cuda", "comm/nccl"]),
]


def read_table(readme):
    """room -> set of rooms it may depend on directly, from the Markdown table whose header starts with '| room |'."""
    table = {}
    inside = False
    for line in readme.read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if not line.strip().startswith("|"):
            inside = False
        elif cells[0] == "room":
            inside = True
        elif inside and not set(cells[0]) <= {"-", ":"}:
            table[cells[0]] = [word.strip().strip("`") for word in cells[-1].split(",") if word.strip()]
    if not table:
        raise SystemExit(f"{readme}: no table of rooms found")
    rooms = set(table)
    for room, deps in table.items():
        if deps == ["all"]:
            table[room] = rooms - {room}
        else:
            table[room] = set(deps) - {"std"}
    unknown = {dep for deps in table.values() for dep in deps} - rooms
    if unknown:
        raise SystemExit(f"{readme}: the table names unknown rooms {sorted(unknown)}")
    return table


def closure(table):
    """room -> all rooms it may include, itself among them. Fails on a cycle."""
    result = {}

    def visit(room, path):
        if room in path:
            raise SystemExit("the table of rooms has a cycle: " + " -> ".join(path + [room]))
        if room not in result:
            reach = {room}
            for dep in table[room]:
                reach |= visit(dep, path + [room])
            result[room] = reach
        return result[room]

    for room in table:
        visit(room, [])
    return result


def leaves_of(root, room):
    """Names of the leaves a room declares in its CMakeLists.txt."""
    text = (root / "src" / room / "CMakeLists.txt").read_text()
    match = re.search(r"renai_room\([^)]*LEAVES([^)]*)\)", text)
    if not match:
        return []
    words = match.group(1).split()
    stop = [i for i, word in enumerate(words) if word in ("DEPS", "PRIVATE")]
    return words[: stop[0]] if stop else words


def leaf_links(root, room):
    """leaf -> leaves of the same room that its renai_leaf(... DEPS ...) names: their private headers are open to it."""
    links = {}
    for match in re.finditer(r"renai_(?:cuda_)?leaf\(\s*\w+\s+(\w+)([^)]*)\)", (root / "src" / room / "CMakeLists.txt").read_text()):
        words = match.group(2).split()
        deps = words[words.index("DEPS") + 1:] if "DEPS" in words else []
        prefix = room + "_"
        links.setdefault(match.group(1), set()).update(word[len(prefix):] for word in deps if word.startswith(prefix))
    return links


def check_links(root, table):
    problems = []
    for room in table:
        path = root / "src" / room / "CMakeLists.txt"
        if not path.exists():
            problems.append(f"src/{room}/CMakeLists.txt: missing")
            continue
        match = re.search(r"renai_room\(\s*(\w+)([^)]*)\)", path.read_text())
        words = match.group(2).split() if match else []
        deps = []
        if "DEPS" in words:
            for word in words[words.index("DEPS") + 1:]:
                if word in ("LEAVES", "PRIVATE"):
                    break
                deps.append(word)
        if not match or match.group(1) != room:
            problems.append(f"src/{room}/CMakeLists.txt: no renai_room({room} ...)")
        elif room != "app" and set(deps) != table[room]:
            problems.append(f"src/{room}/CMakeLists.txt: links {sorted(deps)}, the table says {sorted(table[room])}")
    return problems


def check_file(root, path, room, allowed, leaves):
    """Problems of one file; `room` is its room, `leaves` the leaf names of all rooms."""
    problems = []
    relative = path.relative_to(root)
    public = relative.parts[0] == "include"
    inner = Path(*relative.parts[1:])  # room/leaf/file.cpp under src
    leaf = inner.parts[1] if not public and len(inner.parts) > 2 and inner.parts[1] in leaves[room] else None
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        where = f"{relative}:{number}"
        if target.startswith("renai/"):
            other = target.split("/")[1]
            if other not in allowed[room]:
                problems.append(f"{where}: {room} may not include {other} ({target})")
            shared = leaf is not None or room == "app" or str(relative).startswith(SHARED_BY_LEAVES)
            if target in LEAF_HEADERS and not shared:
                problems.append(f"{where}: {target} belongs to a leaf; only leaves and app include it")
            if not (root / "include" / target).exists():
                problems.append(f"{where}: {target} does not exist")
            continue
        if quote == '"':
            resolved = (path.parent / target).resolve()
            home = (root / "src" / room).resolve()
            if public:
                problems.append(f"{where}: a public header includes only renai/... and the standard library")
            elif home not in resolved.parents:
                problems.append(f"{where}: {target} leaves the room {room}")
            else:
                parts = resolved.relative_to(home).parts
                target_leaf = parts[0] if len(parts) > 1 and parts[0] in leaves[room] else None
                opened = {None, leaf} | (leaf_links(root, room).get(leaf, set()) if leaf else set())
                if target_leaf not in opened:
                    problems.append(f"{where}: {target} is private to the leaf {room}/{target_leaf}")
            continue
        for name, pattern, owners in LIBRARIES:
            if not re.match(pattern, target):
                continue
            folder = str(inner.parent)
            owned = any(folder == owner or folder.startswith(owner + "/") for owner in owners)
            if public:
                problems.append(f"{where}: {name} in a public header")
            elif not owned:
                problems.append(f"{where}: {name} is included only in {', '.join('src/' + owner for owner in owners)}")
            break
    return problems


def check(root):
    """All problems of the tree at `root`, as lines of text."""
    root = Path(root)
    table = read_table(root / "src" / "README.md")
    allowed = closure(table)
    problems = check_links(root, table)
    leaves = {room: leaves_of(root, room) if (root / "src" / room / "CMakeLists.txt").exists() else [] for room in table}
    for top in ("src", "include/renai"):
        for folder in sorted((root / top).iterdir()):
            if folder.is_dir() and folder.name not in table and folder.name != "design":
                problems.append(f"{top}/{folder.name}: not a room of the table in src/README.md")
    for pattern in ("src/*/**/*", "include/renai/*/**/*"):
        for path in sorted(root.glob(pattern)):
            if path.suffix not in (".hpp", ".cpp", ".h", ".cu", ".cuh"):
                continue
            room = path.relative_to(root).parts[1 if pattern.startswith("src") else 2]
            if room in table:
                problems += check_file(root, path, room, allowed, leaves)
    return problems


if __name__ == "__main__":
    found = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    print("\n".join(found) if found else "layering: every include is allowed")
    sys.exit(1 if found else 0)
