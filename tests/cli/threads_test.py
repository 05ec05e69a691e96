#!/usr/bin/env python3
"""Systems that give fewer threads than are asked for: the command says so and what to do, wherever the last one was."""

import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

FAULTS = Path(os.environ.get("RENAI_THREAD_FAULTS", "/nonexistent"))


class ThreadsTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        if not FAULTS.exists():
            self.skipTest("the library of missing threads is not built")

    def run_with(self, most, *words):
        env = renai_cli.environment(LD_PRELOAD=str(FAULTS), MOST_THREADS=str(most))
        return renai_cli.run([renai_cli.renai(), *words], env=env)

    def needs_threads(self, few, enough, *words):
        """With `few` threads besides the first, or fewer, the command ends with 4; with as many as are `enough` it succeeds,
        and between them it does one or the other. Returns what was said of `few`."""
        said = ""
        for most in range(enough):
            process = self.run_with(most, *words)
            if most > few and process.returncode == 0:
                break
            self.fails(process, 4, "starting ", "Resource temporarily unavailable",
                       "or raise the limits of processes and memory (ulimit -u")
            said = process.stdout if most <= few else said
        self.succeeds(self.run_with(enough, *words, *(["--overwrite"] if words[0] == "pack" else [])))
        return said

    def make_set(self):
        self.succeeds(renai_cli.run([renai_cli.renai(), *self.pack]))

    def train(self, *words):
        return ["train", "--data", self.folder / "data", "--model", "lenet5", "--device", "cpu", "--steps", 1, "--threads", 2,
                "--loader-threads", 2, "--global-batch", 32, "--logical-shards", 2, "--run-dir", self.folder / "run", *words]

    @property
    def pack(self):
        return ["pack", "synthetic", "--train", 64, "--val", 32, "--shard-samples", 32, "--out", self.folder / "data"]

    def test_pack(self):
        said = self.needs_threads(0, 2, *self.pack)
        self.assertIn("starting a packing thread", said)

    def test_pack_of_images(self):
        renai_cli.write_photos(self.folder / "photos", images=10)
        said = self.needs_threads(3, 8, "pack", "folder", self.folder / "photos", "--threads", 3, "--val-every", 5, "--out",
                                  self.folder / "data", "--shard-samples", 100)
        self.assertIn("lower --threads", said)

    def test_bench_of_data(self):
        self.make_set()
        said = self.needs_threads(7, 8, "bench", "data", self.folder / "data", "--device", "cpu", "--threads", 5, "--images", 64)
        self.assertIn("starting loader thread 4", said)
        self.assertIn("lower --threads", said)

    def test_train(self):
        self.make_set()
        said = self.needs_threads(5, 6, *self.train())  # Three of streams, two of the loader, one that computes.
        self.assertIn("thread 1 of the cpu backend", said)
        self.assertIn("lower --threads", said)
        self.assertIn("lower --loader-threads", self.run_with(4, *self.train()).stdout)

    def test_cache(self):
        self.make_set()
        self.assertIn("the thread that fills the cache", self.fails(self.run_with(3, *self.train("--cache")), 4))


if __name__ == "__main__":
    renai_cli.main()
