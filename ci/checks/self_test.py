#!/usr/bin/env python3
"""Proves that each check catches the violations it is there for: a small clean tree passes, each change to it is reported."""

import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import house_rules
import junit_counts
import layering

README = """# Rooms
| room | holds | may include |
|--|--|--|
| base | x | std |
| tensor | x | base |
| io | x | tensor |
| device | x | tensor |
| train | x | io, device |
| app | x | all |

**base** a. **tensor** b. **io** c. **device** d. **train** e. **app** f.
"""
CMAKE = {
    "base": "renai_room(base PRIVATE spdlog::spdlog)",
    "tensor": "renai_room(tensor DEPS base)",
    "io": "renai_room(io DEPS tensor PRIVATE renai_hdf5)",
    "device": "renai_room(device DEPS tensor LEAVES host cuda)\nrenai_leaf(device host)",
    "train": "renai_room(train DEPS io device)",
    "app": "renai_room(app DEPS train device_host)",
}
FILES = {
    "include/renai/base/error.hpp": "#pragma once\n// Errors.\n#include <string>\n",
    "include/renai/tensor/shape.hpp": '#pragma once\n// Shapes.\n#include "renai/base/error.hpp"\n',
    "include/renai/device/device.hpp": '#pragma once\n// Devices.\n#include "renai/tensor/shape.hpp"\n',
    "include/renai/device/host.hpp": '#pragma once\n// Host leaf.\n#include "renai/device/device.hpp"\n',
    "include/renai/io/hdf5.hpp": '#pragma once\n// Files.\n#include "renai/tensor/shape.hpp"\n',
    "include/renai/train/task.hpp": '#pragma once\n// Task.\n#include "renai/io/hdf5.hpp"\n',
    "src/base/error.cpp": '// Errors.\n#include "renai/base/error.hpp"\n#include <spdlog/logger.h>\n',
    "src/io/hdf5.cpp": '// Files.\n#include "renai/io/hdf5.hpp"\n#include <hdf5.h>\n',
    "src/device/host/host.cpp": '// Host.\n#include "renai/device/host.hpp"\n#include "worker.hpp"\n',
    "src/device/host/worker.hpp": "#pragma once\n// Worker.\n",
    "src/device/common.cpp": '// Common.\n#include "renai/device/device.hpp"\n',
    "src/train/task.cpp": '// Task.\n#include "renai/base/error.hpp"\n#include "renai/device/device.hpp"\n',
    "src/app/main.cpp": '// Main.\n#include "renai/device/host.hpp"\n#include "renai/train/task.hpp"\n#include <CLI/CLI.hpp>\n',
    "src/design/0001-first.md": "# First\n",
    "CMakeLists.txt": "# Build.\n",
    "LICENSE": "text\n",
    "README.md": "text\n",
    "launch/run.sh": "#!/usr/bin/env bash\n# Runs.\n",
    "ci/test.sh": "#!/usr/bin/env bash\n# Tests.\n",
    "tests/a_test.cpp": "// A test.\n",
}


class Tree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        for name, text in FILES.items():
            self.write(name, text)
        self.write("src/README.md", README)
        for room, text in CMAKE.items():
            self.write(f"src/{room}/CMakeLists.txt", text)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def expect(self, check, text):
        """The check reports exactly one problem, and it contains `text`."""
        problems = check(self.root)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(text, problems[0])


class LayeringTest(Tree):
    def test_clean_tree_passes(self):
        self.assertEqual(layering.check(self.root), [])

    def test_upward_include(self):
        self.write("src/io/hdf5.cpp", '// F.\n#include "renai/train/task.hpp"\n')
        self.expect(layering.check, "src/io/hdf5.cpp:2: io may not include train")

    def test_sideways_include(self):
        self.write("include/renai/io/hdf5.hpp", '#pragma once\n// F.\n#include "renai/device/device.hpp"\n')
        self.expect(layering.check, "io may not include device")

    def test_leaf_header_outside_leaves(self):
        self.write("src/train/task.cpp", '// T.\n#include "renai/device/host.hpp"\n')
        self.expect(layering.check, "belongs to a leaf")

    def test_leaf_header_in_the_rooms_common_part(self):
        self.write("src/device/common.cpp", '// C.\n#include "renai/device/host.hpp"\n')
        self.expect(layering.check, "belongs to a leaf")

    def test_private_header_of_a_leaf(self):
        self.write("src/device/common.cpp", '// C.\n#include "host/worker.hpp"\n')
        self.expect(layering.check, "private to the leaf device/host")

    def test_private_header_of_another_leaf(self):
        self.write("src/device/cuda/cuda.cpp", '// C.\n#include "../host/worker.hpp"\n')
        self.expect(layering.check, "private to the leaf device/host")
        self.write("src/device/CMakeLists.txt", CMAKE["device"] + "\nrenai_leaf(device cuda DEPS device_host)")
        self.assertEqual(layering.check(self.root), [])

    def test_relative_include_of_another_room(self):
        self.write("src/train/task.cpp", '// T.\n#include "../device/host/worker.hpp"\n')
        self.expect(layering.check, "leaves the room train")

    def test_libraries_in_wrong_places(self):
        for header in ("mpi.h", "hdf5.h", "CLI/CLI.hpp", "oneapi/dnnl/dnnl.hpp", "dnnl.hpp", "cuda_runtime.h", "nccl.h",
                       "spdlog/spdlog.h", "toml++/toml.h", "zlib.h", "omp.h"):
            with self.subTest(header=header):
                self.write("src/train/task.cpp", f"// T.\n#include <{header}>\n")
                self.expect(layering.check, "is included only in")

    def test_library_in_public_header(self):
        self.write("include/renai/io/hdf5.hpp", "#pragma once\n// F.\n#include <hdf5.h>\n")
        self.expect(layering.check, "HDF5 in a public header")

    def test_missing_header(self):
        self.write("src/train/task.cpp", '// T.\n#include "renai/io/gone.hpp"\n')
        self.expect(layering.check, "does not exist")

    def test_link_that_the_table_lacks(self):
        self.write("src/io/CMakeLists.txt", "renai_room(io DEPS tensor device PRIVATE renai_hdf5)")
        self.expect(layering.check, "src/io/CMakeLists.txt: links")

    def test_unknown_room(self):
        self.write("src/util/a.cpp", "// A.\n")
        self.expect(layering.check, "src/util: not a room")

    def test_cycle_in_the_table(self):
        self.write("src/README.md", README.replace("| base | x | std |", "| base | x | tensor |"))
        with self.assertRaises(SystemExit):
            layering.check(self.root)


class HouseRulesTest(Tree):
    def test_clean_tree_passes(self):
        self.assertEqual(house_rules.check(self.root), [])

    def test_top_level(self):
        self.write("notes.txt", "x")
        self.expect(house_rules.check, "notes.txt: not part of the agreed top level")

    def test_missing_top_level(self):
        (self.root / "LICENSE").unlink()
        self.expect(house_rules.check, "LICENSE: missing")

    def test_long_header(self):
        self.write("include/renai/base/error.hpp", "#pragma once\n// E.\n" + "int a();\n" * 199)
        self.expect(house_rules.check, "201 lines; a header has at most 200")

    def test_long_file(self):
        self.write("src/base/error.cpp", "// E.\n" + "int a();\n" * 500)
        self.expect(house_rules.check, "501 lines; over 500")
        self.write("src/base/error.cpp", "// E. Over 500 lines: one table.\n" + "int a();\n" * 500)
        self.assertEqual(house_rules.check(self.root), [])

    def test_header_without_pragma_once(self):
        self.write("include/renai/base/error.hpp", "// E.\nint a();\n")
        self.expect(house_rules.check, "starts with #pragma once")

    def test_file_without_comment(self):
        self.write("include/renai/base/error.hpp", "#pragma once\n#include <string>\n// Late.\n")
        self.expect(house_rules.check, "without a comment")

    def test_stubs(self):
        for text in ("TO" + "DO: x", "fix" + "me", "not yet impl" + "emented", "a place" + "holder", "enough for " + "now"):
            with self.subTest(text=text):
                self.write("src/base/error.cpp", f"// E.\n// {text}\n")
                self.expect(house_rules.check, "a stub or promise")

    def test_error_without_remedy(self):
        self.write("src/base/error.cpp", '// E.\nint a() { throw DataError("opening (" + b(1, 2),\n "why, and, why"); }\n')
        self.expect(house_rules.check, "error.cpp:2: an error without a remedy")
        self.write("src/base/error.cpp", '// E.\nint a() { throw DataError("opening", b(1, 2), ""); }\n')
        self.expect(house_rules.check, "error.cpp:2: an error without a remedy")
        self.write("src/base/error.cpp", '// E.\nint a() { throw DataError("opening", c ? "\\"" : d, "check (it"); }\n')
        self.assertEqual(house_rules.check(self.root), [])

    def test_room_without_paragraph(self):
        self.write("src/README.md", README.replace("**io** c. ", ""))
        self.expect(house_rules.check, "no paragraph for the room io")

    def test_gap_in_design_numbers(self):
        self.write("src/design/0003-third.md", "# Third\n")
        self.expect(house_rules.check, "src/design: numbers are")


class JunitCountsTest(unittest.TestCase):
    def count(self, cases):
        return junit_counts.counts(ElementTree.fromstring(f"<testsuite>{cases}</testsuite>"))

    def test_outcomes(self):
        self.assertEqual(self.count('<testcase status="run"/><testcase status="fail"><failure message=""/></testcase>'
                                    '<testcase status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>'), (1, 1, 1))

    def test_a_missing_program_is_a_failure(self):
        self.assertEqual(self.count('<testcase status="notrun"><skipped message="Unable to find executable"/></testcase>'),
                         (0, 1, 0))

    def test_no_tests(self):
        with self.assertRaises(ValueError):
            self.count("")


if __name__ == "__main__":
    unittest.main()
