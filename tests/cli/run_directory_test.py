#!/usr/bin/env python3
"""One run directory, one run at a time: whoever comes second changes nothing; and neither runs nor data get mixed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

LIMIT_SECONDS = 30


def contents(folder):
    """Every file below a folder but those that a live run goes on writing."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "metrics.jsonl"}


class RunDirectoryTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(128, 32)
        self.run_dir = self.folder / "run"

    def words(self, steps, run_dir=None):
        return ["train", "--data", self.data, "--model", "mlp", "--run-dir", run_dir or self.run_dir, "--global-batch", 32,
                "--steps", steps, "--lr-schedule", "constant", "--log-every", 1]

    def train(self, *more, steps=4, ranks=1, run_dir=None):
        return renai_cli.on_ranks(ranks, *self.words(steps, run_dir), *more)

    def summary(self, folder=None):
        return json.loads(((folder or self.run_dir) / "summary.json").read_text())

    def start(self):
        """A long run in the run directory; returns when it has made a few steps more."""
        metrics = self.run_dir / "metrics.jsonl"
        process = subprocess.Popen([str(word) for word in [renai_cli.renai(), *self.words(10**6), "--resume", "auto"]],
                                   env=renai_cli.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        end = time.monotonic() + LIMIT_SECONDS
        while not (metrics.exists() and metrics.read_text().count("\n") > 10):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        return process

    def test_a_second_run_is_refused_and_changes_nothing(self):
        self.succeeds(self.train())
        other = self.folder / "other"
        self.succeeds(self.train(run_dir=other))
        process = self.start()
        before = contents(self.run_dir)
        self.assertEqual(json.loads((self.run_dir / "ranks.json").read_text())[0]["pid"], process.pid)
        for ranks in (1, 2):
            for more in ([], ["--resume", "auto"], ["--resume", other / "checkpoints" / "step-00000004.h5"],
                         ["--resume", "auto", "--seed", "7"]):
                with self.subTest(ranks=ranks, more=more):
                    said = self.fails(self.train(*more, ranks=ranks), 2, f"run directory {self.run_dir}; another run is using it, "
                                      f"process {process.pid} on ", "; wait until that has ended, or give another --run-dir")
                    self.assertEqual(said.count("another run is using it"), 1, said)
        # A second run that fails for a reason of its own has no place to say so, and leaves the first one's alone.
        self.fails(self.train("--resume", self.run_dir / "none.h5"), 2, "another run is using it")
        manifest = self.data / "manifest.json"
        whole = manifest.read_bytes()
        manifest.write_bytes(b"{")
        self.fails(self.train(), 3, "no summary could be written: run directory")
        manifest.write_bytes(whole)
        self.assertIsNone(process.poll())
        self.assertEqual(contents(self.run_dir), before)
        self.assertFalse((self.folder / "run.1").exists())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(LIMIT_SECONDS), 128 + signal.SIGTERM)
        self.assertEqual(self.summary()["status"], "interrupted")
        steps = self.summary()["steps"]
        self.succeeds(self.train("--resume", "auto", steps=steps + 2, ranks=2))
        self.assertEqual(self.summary()["steps"], steps + 2)

    def test_a_killed_run_holds_nothing(self):
        process = self.start()
        process.kill()
        process.wait(LIMIT_SECONDS)
        self.succeeds(self.train())
        self.assertTrue((self.folder / "run.1" / "metrics.jsonl").exists())

    def test_continuing_from_another_directory_moves_the_earlier_run_aside(self):
        first = self.folder / "first"
        self.succeeds(self.train(run_dir=first))
        self.succeeds(self.train(steps=2))
        self.succeeds(self.train("--resume", first / "checkpoints" / "step-00000004.h5", steps=6))
        self.assertEqual(self.summary()["steps"], 6)
        self.assertEqual([json.loads(line)["step"] for line in (self.run_dir / "metrics.jsonl").read_text().splitlines()
                          if json.loads(line)["kind"] == "train"], [5, 6])
        self.assertEqual([path.name for path in (self.run_dir / "checkpoints").glob("*.h5")], ["step-00000006.h5"])
        self.assertEqual(self.summary(self.folder / "run.1")["steps"], 2)
        self.assertEqual(self.summary(first)["steps"], 4)
        # One of its own goes on in place, whatever name the directory is given.
        (self.folder / "link").symlink_to(self.run_dir)
        self.succeeds(self.train("--resume", self.folder / "link" / "checkpoints" / "step-00000006.h5", steps=7, ranks=2))
        self.assertEqual(self.summary()["steps"], 7)
        self.assertFalse((self.folder / "run.2").exists())
        # A damaged one of another run is not told in place of what the earlier run has told.
        (self.folder / "bad.h5").write_text("no HDF5")
        self.fails(self.train("--resume", self.folder / "bad.h5"), 3, "bad.h5")
        self.assertEqual(self.summary()["status"], "failed")
        self.assertEqual(self.summary(self.folder / "run.2")["steps"], 7)

    def test_the_directory_of_a_data_set_is_refused(self):
        before = contents(self.data)
        (self.folder / "link").symlink_to(self.data)
        for ranks in (1, 2):
            for folder in (self.data, self.folder / "link"):
                said = self.fails(self.train(run_dir=folder, ranks=ranks), 2,
                                  f"--run-dir {folder}; it is the directory of a data set; give the run one of its own")
                self.assertEqual(said.count("directory of a data set"), 1, said)
        self.assertEqual(contents(self.data), before)
        manifest = self.data / "manifest.json"
        manifest.rename(self.folder / "kept.json")
        self.fails(self.train(run_dir=self.data), 2, "directory of a data set")
        self.assertEqual(len(contents(self.data)), len(before) - 1)


if __name__ == "__main__":
    renai_cli.main()
