"""What scripted tests of the command line share: the program under test, ranks, small data sets, folders."""

import gzip
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
SKIPPED = 77  # Exit status of a script whose every test skipped; CTest counts it as skipped.


def renai():
    """The program under test: RENAI, or build/renai of the checkout."""
    return os.environ.get("RENAI", str(SOURCE / "build" / "renai"))


def environment(**more):
    """The caller's environment, with Open MPI told that root and many ranks are meant."""
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none")
    env.update(more)
    return env


def run(command, cwd=None, timeout=240, env=None):
    """Runs a command; returns the finished process with stdout and stderr as text, in one stream."""
    return subprocess.run([str(word) for word in command], cwd=cwd, timeout=timeout, env=env or environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def on_ranks(ranks, *arguments, **keywords):
    """Runs renai with arguments on a number of ranks."""
    return run([SOURCE / "ci" / "mpiexec.sh", ranks, renai(), *arguments], **keywords)


def exit_code(process):
    """How the job ended. Open MPI 4.1.4's mpirun can die of a fault of its own while it ends itself, when all ranks have
    ended and it has said how: only then, told by its own trace, is the code the one that it has printed."""
    if process.returncode != -signal.SIGSEGV:
        return process.returncode
    traces = re.findall(r"^\[([^\s\]]+:\d+)\] \*\*\* Process received signal \*\*\*$(.*?)"
                        r"^\[\1\] \*\*\* End of error message \*\*\*$", process.stdout, re.MULTILINE | re.DOTALL)
    code = re.search(r"^  Exit code: +(\d+)$", process.stdout, re.MULTILINE)
    if code is None or len(traces) != 1:
        return process.returncode
    who, trace = traces[0]
    died = re.search(rf"^\[{re.escape(who)}\] \[ *\d+\] \S*libpmix\S*\(PMIx_server_finalize\+0x", trace, re.MULTILINE)
    return int(code[1]) if died else process.returncode


def signal_ranks(run_dir, number, ranks=None):
    """Sends a signal to ranks of a run, by number; to all of them without `ranks`."""
    places = json.loads((Path(run_dir) / "ranks.json").read_text())
    for place in places:
        if ranks is None or place["rank"] in ranks:
            os.kill(place["pid"], number)


def write_idx(folder, train=512, val=128, side=28, classes=10):
    """The four files of an MNIST-like set, gzip: each class is a bright square at a place of its own, plus some texture."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, count in (("train", train), ("t10k", val)):
        labels = bytes((7 * i + i // classes) % classes for i in range(count))
        pixels = bytearray(count * side * side)
        for i, label in enumerate(labels):
            top, left = 2 + 12 * (label // 5), 1 + 5 * (label % 5)
            for y in range(side):
                for x in range(side):
                    inside = top <= y < top + 10 and left <= x < left + 5
                    pixels[(i * side + y) * side + x] = (200 if inside else 20) + (13 * i + 7 * y + 3 * x) % 32
        with gzip.open(folder / f"{prefix}-images-idx3-ubyte.gz", "wb", compresslevel=1) as file:
            file.write(struct.pack(">IIII", 2051, count, side, side) + bytes(pixels))
        with gzip.open(folder / f"{prefix}-labels-idx1-ubyte.gz", "wb", compresslevel=1) as file:
            file.write(struct.pack(">II", 2049, count) + labels)


def write_photos(folder, classes=3, images=30):
    """JPEG files in one folder a class: each class is a colour and a direction of its own."""
    import numpy
    from PIL import Image
    for c in range(classes):
        inner = Path(folder) / f"class {c}"
        inner.mkdir(parents=True)
        for i in range(images):
            rows, columns = numpy.mgrid[0:70 + i % 7, 0:90 - i % 5]
            waves = numpy.sin((rows * (c + 1) + columns * (classes - c) + 5 * i) / 12)
            colours = [128 + 100 * waves * ((c + k) % 3) / 2 for k in range(3)]
            Image.fromarray(numpy.stack(colours, axis=-1).astype(numpy.uint8)).save(inner / f"{i:03}.jpg", quality=90)


class FolderTest(unittest.TestCase):
    """A test with a folder of its own, removed afterwards."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def pack_idx(self, train, val, *options, source="idx", out="data"):
        """Writes and packs the set of write_idx(), in the test's folder; returns the data set's path."""
        write_idx(self.folder / source, train=train, val=val)
        self.succeeds(run([renai(), "pack", "idx", self.folder / source, "--out", self.folder / out, *options]))
        return self.folder / out

    def succeeds(self, process):
        self.assertEqual(process.returncode, 0, process.stdout)
        return process.stdout

    def identical(self, a, b, steps):
        """Two traces, over so many steps."""
        self.assertIn(f"identical over {steps} steps", self.succeeds(run([renai(), "trace-diff", a, b])))

    def fails(self, process, code, *texts):
        self.assertEqual(exit_code(process), code, process.stdout)
        for text in texts:
            self.assertIn(text, process.stdout)
        return process.stdout


def main():
    """unittest's main; exits with 1 when no test ran, with SKIPPED when all of them skipped."""
    result = unittest.main(exit=False, verbosity=2).result
    if not result.wasSuccessful() or (result.testsRun == 0 and not result.skipped):
        sys.exit(1)
    # A class that skips as a whole is in the list of skips, but its tests were not counted as run.
    skipped = sum(isinstance(test, unittest.TestCase) for test, _ in result.skipped)
    sys.exit(0 if result.testsRun > skipped else SKIPPED)
