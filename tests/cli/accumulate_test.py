#!/usr/bin/env python3
"""Gradient accumulation (--accumulate K): the same bits on any number of ranks and after a restart; beside the run without."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

STEPS = 8


class AccumulateTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(148, 40)

    def words(self, name, shards, accumulate, *more):
        return ["train", "--data", self.data, "--run-dir", self.folder / name, "--steps", STEPS, "--global-batch", 48,
                "--logical-shards", shards, "--accumulate", accumulate, "--trace", self.folder / f"{name}.trace",
                "--verify-every", 3, *more]

    def train(self, name, shards, accumulate, *more, ranks=1):
        self.succeeds(renai_cli.on_ranks(ranks, *self.words(name, shards, accumulate, *more)))
        return self.folder / f"{name}.trace"

    def compare(self, a, b):
        return renai_cli.run([renai_cli.renai(), "trace-diff", a, b])

    def same(self, a, b):
        self.identical(a, b, STEPS)

    def lines(self, trace, kind="step"):
        return [line for line in map(json.loads, trace.read_text().splitlines()) if line["kind"] == kind]

    def test_ranks_and_restart(self):
        three = self.train("three", 4, 3)
        for ranks in (2, 4):
            self.same(three, self.train(f"np{ranks}", 4, 3, ranks=ranks))
        process = renai_cli.on_ranks(4, *self.words("halves", 4, 3, "--checkpoint-every", 2, "--inject-fault", "exit@5:1"))
        self.assertNotEqual(process.returncode, 0)
        self.succeeds(renai_cli.on_ranks(1, *self.words("halves", 4, 3, "--checkpoint-every", 2, "--resume", "auto")))
        self.same(three, self.folder / "halves.trace")
        self.fails(self.compare(three, self.train("two", 4, 2)), 1, "header differs in 'recipe'")
        summary = json.loads((self.folder / "three" / "summary.json").read_text())
        self.assertEqual(summary["step_allocations"], 0)

    def test_two_micro_batches_are_two_shards(self):
        """The sum of two micro-batches is the first level of the tree over twice as many shards: the same bits."""
        folded, wide = self.lines(self.train("folded", 4, 2)), self.lines(self.train("wide", 8, 1))
        self.assertEqual(len(folded), STEPS)
        for own, other in zip(folded, wide):
            for key in ("ids", "loss", "grad", "weights", "optimizer", "bn_running"):
                self.assertEqual(own[key], other[key], (own["step"], key))

    def test_without_batch_norm_only_rounding_differs(self):
        runs = {}
        for accumulate in (1, 3, 6):
            trace = self.train(f"k{accumulate}", 2, accumulate, "--model", "mlp", "--steps", 3, "--lr-schedule", "constant")
            runs[accumulate] = self.lines(trace)
        for accumulate in (3, 6):
            for own, other in zip(runs[accumulate], runs[1]):
                self.assertEqual(own["ids"], other["ids"])
                self.assertAlmostEqual(own["loss_value"], other["loss_value"], delta=1e-5)
                self.assertNotEqual(own["grad"], other["grad"])

    def test_memory_is_that_of_a_micro_batch(self):
        peaks = []
        for accumulate in (1, 6):
            self.train(f"k{accumulate}", 2, accumulate, "--steps", 1)
            peaks.append(json.loads((self.folder / f"k{accumulate}" / "summary.json").read_text())["peak_device_bytes"])
        self.assertLess(peaks[1], peaks[0])

    def test_refusals(self):
        for shards, accumulate, texts in ((8, 4, ("--global-batch 48", "--logical-shards 8 times --accumulate 4", "32 and 64")),
                                          (8, 0, ("--accumulate 0",)), (8, 100000, ("--accumulate",))):
            self.fails(renai_cli.on_ranks(1, *self.words("bad", shards, accumulate)), 2, *texts)
        self.fails(renai_cli.on_ranks(1, *self.words("bad", 8, 6, "--mixup", "0.2")), 2, "one row only", "--accumulate 6")


if __name__ == "__main__":
    renai_cli.main()
