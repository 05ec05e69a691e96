#!/usr/bin/env python3
"""Files that the system does not give, and disks that are full: the rest is looked at, and what can go on goes on."""

import errno
import json
import os
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

FAULTS = Path(os.environ.get("RENAI_FILE_FAULTS", "/nonexistent"))


def damage(path):
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2, len(content) // 2 + 64):
        content[place] ^= 85
    path.write_bytes(content)


class UnreadableTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        if not FAULTS.exists():
            self.skipTest("the library of failing files is not built")
        renai_cli.write_idx(self.folder / "idx", train=128, val=32)
        self.data = self.folder / "data"
        self.pack = ["pack", "idx", self.folder / "idx", "--out", self.data, "--shard-samples", 32]
        self.succeeds(renai_cli.run([renai_cli.renai(), *self.pack]))

    def run_with(self, faults, *words, ranks=1):
        env = renai_cli.environment(LD_PRELOAD=str(FAULTS), **faults)
        if ranks > 1:
            return renai_cli.on_ranks(ranks, *words, env=env)
        return renai_cli.run([renai_cli.renai(), *words], env=env)

    def train(self, faults, *words, ranks=1):
        return self.run_with(faults, "train", "--data", self.data, "--model", "mlp", "--run-dir", self.folder / "run",
                             "--global-batch", 32, "--lr-schedule", "constant", "--checkpoint-every", 2, *words, ranks=ranks)

    def summary(self):
        return json.loads((self.folder / "run" / "summary.json").read_text())

    def test_verify_tells_of_every_shard(self):
        unreadable = {"UNREADABLE": "train-00001"}
        said = self.fails(self.run_with(unreadable, "verify", self.data), 4, "train-00001", "Input/output error")
        self.assertNotIn("shards failed", said)
        damage(self.data / "train-00002-of-00004.h5")
        said = self.fails(self.run_with(unreadable, "verify", self.data), 3, "2 of 5 shards failed", "train-00001",
                          "Input/output error", "train-00002")
        self.assertNotIn("train-00003", said)
        self.fails(self.run_with({"UNREADABLE": "train-0000"}, "verify", self.data), 4, "4 of 5 shards failed")

    def test_verify_tells_of_every_checkpoint(self):
        self.succeeds(self.train({}, "--steps", 8, "--keep", 9))
        damage(self.folder / "run" / "checkpoints" / "step-00000004.h5")
        said = self.fails(self.run_with({"UNREADABLE": "step-00000002"}, "verify", self.folder / "run"), 3,
                          "2 of 4 checkpoints failed", "Input/output error", "digest differs")
        self.assertEqual(said.count("digest right"), 2)

    def test_a_shard_that_cannot_be_read_is_packed_again(self):
        (self.data / "manifest.json").unlink()
        (self.data / ".packing").write_text("")
        self.succeeds(self.run_with({"UNREADABLE": "train-00001"}, *self.pack, "--overwrite"))
        self.succeeds(renai_cli.run([renai_cli.renai(), "verify", self.data]))

    def test_resume_passes_over_what_cannot_be_read(self):
        """On one rank or on another only: all take the one before, and come to the same weights."""
        self.succeeds(self.train({}, "--steps", 8))
        whole = self.summary()["digest"]
        for ranks, faulty in ((1, {}), (2, {}), (2, {"FAULTY_RANK": "1"}), (4, {"FAULTY_RANK": "2"})):
            with self.subTest(ranks=ranks, faulty=faulty):
                self.succeeds(self.train({}, "--steps", 6, "--keep", 9))
                faults = {"UNREADABLE": "step-00000006.h5$", **faulty}
                said = self.succeeds(self.train(faults, "--steps", 8, "--resume", "auto", "--keep", 9, ranks=ranks))
                self.assertEqual(said.count("step-00000006.h5 cannot be read and passed over: Input/output error"), 1, said)
                self.assertEqual(self.summary()["digest"], whole)

    def test_resume_from_nothing_that_can_be_read_is_no_new_beginning(self):
        self.succeeds(self.train({}, "--steps", 6, "--keep", 9))
        for ranks in (1, 2):
            said = self.fails(self.train({"UNREADABLE": "checkpoints/step-"}, "--steps", 8, "--resume", "auto", ranks=ranks), 4,
                              "none of the checkpoints", "Input/output error")
            self.assertEqual(said.count("renai: rank "), 1, said)
        for step in (2, 4, 6):
            damage(self.folder / "run" / "checkpoints" / f"step-{step:08}.h5")
        self.fails(self.train({}, "--steps", 8, "--resume", "auto"), 3, "none of the checkpoints", "digest differs")

    def test_the_best_checkpoint_is_not_removed_for_a_pointer_that_cannot_be_read(self):
        self.succeeds(self.train({}, "--steps", 6, "--keep", 9))
        folder = self.folder / "run" / "checkpoints"
        (folder / "best").write_text("step-00000002.h5\n")
        self.succeeds(self.train({"UNREADABLE": "checkpoints/best$"}, "--steps", 8, "--resume", "auto", "--keep", 1))
        self.assertTrue((folder / "step-00000002.h5").exists())

    def test_a_full_disk_leaves_a_summary(self):
        for ranks in (1, 2):
            self.fails(self.train({"FULL": "metrics.jsonl"}, "--steps", 4, ranks=ranks), 4, "metrics.jsonl", "No space left")
            self.assertEqual(self.summary()["status"], "failed")
            self.assertIn("No space left", self.summary()["error"])

    def test_what_is_advised_fits_the_reason(self):
        """Whoever writes: a shard or its manifest, a checkpoint or its name, a log, a trace, a summary."""
        advice = {errno.ENOSPC: "free some space", errno.EDQUOT: "free some of your quota", errno.EROFS: "mounted read-only",
                  errno.EACCES: "write to a folder where you may", errno.EFBIG: "ulimit -f", errno.EIO: "dmesg"}
        packs = ["pack", "synthetic", "--train", 64, "--val", 32, "--out", self.folder / "more"]
        trace = self.folder / "trace"
        for number, text in advice.items():
            for path in ("train-00000", "manifest.json"):
                shutil.rmtree(self.folder / "more", ignore_errors=True)
                self.fails(self.run_with({"FULL": path, "WRITE_ERROR": str(number)}, *packs), 4, path, os.strerror(number), text)
            for path in ("step-00000002.h5", "checkpoints/latest", "metrics.jsonl", "summary.json", "trace"):
                said = self.fails(self.train({"FULL": path, "WRITE_ERROR": str(number)}, "--steps", 3, "--trace", trace), 4, path,
                                  os.strerror(number), text)
                self.assertEqual(said.count("renai: rank "), 1, said)
                trace.unlink()

    def test_resume_without_a_readable_pointer(self):
        self.succeeds(self.train({}, "--steps", 6))
        said = self.succeeds(self.train({"UNREADABLE": "checkpoints/latest"}, "--steps", 8, "--resume", "auto"))
        self.assertIn("latest cannot be read", said)
        self.assertEqual(self.summary()["steps"], 8)


if __name__ == "__main__":
    renai_cli.main()
