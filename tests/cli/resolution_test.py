#!/usr/bin/env python3
"""Resolution schedules (--resolution): trains through every switch in the largest phase's memory, the same bits everywhere."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

MODEL = """name = "small"
[[layers]]
name = "conv1"
type = "conv2d"
out = 6
kernel = 3
padding = 1
bias = false
[[layers]]
name = "bn1"
type = "batch_norm"
[[layers]]
type = "relu"
[[layers]]
name = "pool1"
type = "max_pool"
kernel = 4
[[layers]]
name = "conv2"
type = "conv2d"
out = 8
kernel = 3
[[layers]]
type = "global_avg_pool"
[[layers]]
type = "flatten"
[[layers]]
name = "fc"
type = "linear"
out = "classes"
"""
PHASES = "14@0,28@1,20@2,14@3"
EPOCHS, STEPS_OF_EPOCH = 4, 4
STEPS = EPOCHS * STEPS_OF_EPOCH


class ResolutionTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(3 * 32 + 20, 20)
        self.model = self.folder / "model.toml"
        self.model.write_text(MODEL)

    def words(self, name, resolution, *more):
        return ["train", "--data", self.data, "--model", self.model, "--run-dir", self.folder / name, "--steps", STEPS,
                "--global-batch", 32, "--resolution", resolution, "--val-resolution", 24, "--trace",
                self.folder / f"{name}.trace", "--augment", "crop2,flip", "--verify-every", 3, *more]

    def train(self, name, resolution, *more, ranks=1):
        self.succeeds(renai_cli.on_ranks(ranks, *self.words(name, resolution, *more)))
        return self.folder / f"{name}.trace"

    def summary(self, name):
        return json.loads((self.folder / name / "summary.json").read_text())

    def same(self, a, b):
        self.identical(a, b, STEPS)

    def lines(self, trace):
        return [line for line in map(json.loads, trace.read_text().splitlines()) if line["kind"] == "step"]

    def test_ranks_restart_memory_and_captures(self):
        one = self.train("one", PHASES)
        for ranks in (2, 4):
            self.same(one, self.train(f"np{ranks}", PHASES, ranks=ranks))
        # The first part ends inside of the third phase.
        more = ["--checkpoint-every", 5]
        process = renai_cli.on_ranks(2, *self.words("halves", PHASES, *more, "--inject-fault", "exit@11:0"))
        self.assertNotEqual(process.returncode, 0)
        self.succeeds(renai_cli.on_ranks(1, *self.words("halves", PHASES, *more, "--resume", "auto")))
        self.same(one, self.folder / "halves.trace")

        summary = self.summary("one")
        self.assertEqual(summary["steps"], STEPS)
        self.assertEqual((summary["step_allocations"], summary["step_synchronizations"]), (0, 0))
        largest = 0
        for size in (14, 20, 28):
            self.train(f"size{size}", size, "--steps", 1)
            largest = max(largest, self.summary(f"size{size}")["peak_device_bytes"])
        self.assertEqual(summary["peak_device_bytes"], largest)
        # Two phases of one size share captures; each size adds five for the full and five for the last batch.
        self.assertEqual(summary["captured_graphs"], self.summary("size14")["captured_graphs"] + 2 * 10)

    def test_each_phase_computes_at_its_resolution(self):
        """Equal up to the first switch, different from the step of the switch on; the order of samples never changes."""
        base = self.lines(self.train("base", "14@0,28@1"))
        for name, resolution, first in (("early", "14@0,20@1", 1), ("late", "14@0,28@1,20@3", 3), ("start", "20@0,28@1", 0)):
            other = self.lines(self.train(name, resolution))
            for own, theirs in zip(base, other):
                self.assertEqual(own["ids"], theirs["ids"])
                check = self.assertEqual if own["step"] < first * STEPS_OF_EPOCH else self.assertNotEqual
                check(own["grad"], theirs["grad"], (name, own["step"]))

    def test_both_backends_agree(self):
        losses = [[line["loss_value"] for line in self.lines(self.train(device, PHASES, "--device", device, "--lr", 0.01))]
                  for device in ("cpu", "reference")]
        for own, reference in zip(*losses):
            self.assertAlmostEqual(own, reference, delta=1e-4)

    def test_refusals(self):
        for resolution in ("28@0,5@2", "5"):
            self.fails(renai_cli.on_ranks(1, *self.words("bad", resolution)), 2, "resolution 5", "layer 'conv2'", "larger input")
        self.fails(renai_cli.on_ranks(1, *self.words("bad", "3")), 2, "resolution 3", "layer 'pool1'")
        self.fails(renai_cli.on_ranks(1, *self.words("bad", "28", "--val-resolution", 5)), 2, "resolution 5", "val_base", "'conv2'")
        for text in ("28@1", "28@0,14@0", "28,14", "x", "28@0,"):
            self.fails(renai_cli.on_ranks(1, *self.words("bad", text)), 2, "--resolution")


if __name__ == "__main__":
    renai_cli.main()
