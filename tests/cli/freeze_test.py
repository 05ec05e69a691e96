#!/usr/bin/env python3
"""Freezing (--freeze-until, --freeze-after): what is frozen keeps its bits, on any number of ranks and after a restart."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import h5py  # noqa: E402
import numpy as np  # noqa: E402
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
name = "layer1"
layers = [
  { name = "conv", type = "conv2d", out = 8, kernel = 3, stride = 2, padding = 1, bias = false },
  { name = "bn", type = "batch_norm" },
  { name = "relu", type = "relu" },
]
[[layers]]
type = "global_avg_pool"
[[layers]]
type = "flatten"
[[layers]]
name = "fc"
type = "linear"
out = "classes"
"""
STEPS_OF_EPOCH, EPOCHS = 3, 3
STEPS = STEPS_OF_EPOCH * EPOCHS


class FreezeTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(96, 16)
        self.model = self.folder / "model.toml"
        self.model.write_text(MODEL)

    def words(self, name, *more):
        return ["train", "--data", self.data, "--model", self.model, "--run-dir", self.folder / name, "--steps", STEPS,
                "--global-batch", 32, "--verify-every", 2, "--checkpoint-every", 1, "--keep", 100, "--trace",
                self.folder / f"{name}.trace", "--lr-schedule", "constant", "--warmup-epochs", 0, *more]

    def train(self, name, *more, ranks=1):
        self.succeeds(renai_cli.on_ranks(ranks, *self.words(name, *more)))
        return self.folder / f"{name}.trace"

    def same(self, a, b):
        self.identical(a, b, STEPS)

    def values(self, name, tensor, group="weights"):
        """Of a tensor, after each step."""
        states = []
        for step in range(1, STEPS + 1):
            with h5py.File(self.folder / name / "checkpoints" / f"step-{step:08d}.h5", "r") as file:
                states.append(file[f"{group}/{tensor}"][()].tobytes())
        return states

    def changes(self, name, tensor, group="weights"):
        """Of each epoch but for its first step's start: whether all steps changed the tensor, none did, or some."""
        states = self.values(name, tensor, group)
        kinds = []
        for epoch in range(EPOCHS):
            steps = range(max(epoch * STEPS_OF_EPOCH, 1), (epoch + 1) * STEPS_OF_EPOCH)
            kinds.append({states[step] != states[step - 1] for step in steps})
        return ["".join("x" if changed else "." for changed in sorted(kind)) for kind in kinds]

    def test_frozen_layers_keep_their_bits(self):
        options = ("--freeze-until", "first@1,layer1.conv@2", "--freeze-after", "fc@2", "--weight-decay", "0.01",
                   "--clip-norm", "0.5")
        one = self.train("one", *options)
        self.assertEqual(self.changes("one", "conv1.weight"), [".", "x", "x"])
        self.assertEqual(self.changes("one", "layer1.conv.weight"), [".", ".", "x"])
        self.assertEqual(self.changes("one", "layer1.bn.weight"), ["x", "x", "x"])
        self.assertEqual(self.changes("one", "fc.weight"), ["x", "x", "."])
        self.assertEqual(self.changes("one", "fc.weight.momentum", "optimizer"), ["x", "x", "."])
        self.assertEqual(set(self.values("one", "conv1.weight.momentum", "optimizer")[:3]), {bytes(4 * 6 * 9)})
        self.assertEqual(self.changes("one", "layer1.bn.running_mean", "bn_running"), ["x", "x", "x"])
        for ranks in (2, 4):
            self.same(one, self.train(f"np{ranks}", *options, ranks=ranks))
        process = renai_cli.on_ranks(2, *self.words("halves", *options, "--inject-fault", "exit@7:0"))
        self.assertNotEqual(process.returncode, 0)
        self.succeeds(renai_cli.on_ranks(1, *self.words("halves", *options, "--resume", "auto")))
        self.same(one, self.folder / "halves.trace")
        self.same(self.train("accumulated", *options, "--accumulate", 2),
                  self.train("accumulated2", *options, "--accumulate", 2, ranks=2))
        summary = json.loads((self.folder / "one" / "summary.json").read_text())
        self.assertEqual((summary["step_allocations"], summary["captured_graphs"]), (0, self.captures_without()))

    def captures_without(self):
        self.train("plain")
        self.assertEqual(self.changes("plain", "conv1.weight"), ["x", "x", "x"])
        return json.loads((self.folder / "plain" / "summary.json").read_text())["captured_graphs"]

    def test_lars_updates_what_is_trained(self):
        """Its graphs have parts for freeze groups too; what a group leaves out of the norm, the others do not see."""
        options = ("--optimizer", "lars", "--lr", "1", "--freeze-until", "fc@1,layer1@2", "--freeze-after", "first@1")
        one = self.train("lars", *options)
        self.assertEqual(self.changes("lars", "conv1.weight"), ["x", ".", "."])
        self.assertEqual(self.changes("lars", "layer1.conv.weight"), [".", ".", "x"])
        self.assertEqual(self.changes("lars", "layer1.bn.bias"), [".", ".", "x"])
        self.assertEqual(self.changes("lars", "fc.weight"), [".", "x", "x"])
        self.same(one, self.train("lars2", *options, ranks=2))

    def test_adam_counts_the_steps_of_a_layer(self):
        """A layer's corrections count from its own first step: on any number of ranks, and after a restart in the middle of its time."""
        for optimizer in ("adam", "adamw"):
            options = ("--optimizer", optimizer, "--lr", "0.01", "--freeze-until", "first@1,layer1.conv@2",
                       "--freeze-after", "fc@2")
            one = self.train(optimizer, *options)
            self.assertEqual(self.changes(optimizer, "conv1.weight"), [".", "x", "x"])
            self.assertEqual(self.changes(optimizer, "fc.weight.exp_avg_sq", "optimizer"), ["x", "x", "."])
            with h5py.File(self.folder / optimizer / "checkpoints" / f"step-{STEPS:08d}.h5", "r") as file:
                self.assertEqual(file["progress/group_updates"][()].tolist(), [6, 3, 6])
            for ranks in (2, 4):
                self.same(one, self.train(f"{optimizer}{ranks}", *options, ranks=ranks))
            halves = f"{optimizer}-halves"
            process = renai_cli.on_ranks(2, *self.words(halves, *options, "--inject-fault", "exit@5:0"))
            self.assertNotEqual(process.returncode, 0)
            self.succeeds(renai_cli.on_ranks(1, *self.words(halves, *options, "--resume", "auto")))
            self.same(one, self.folder / f"{halves}.trace")
        plan = self.succeeds(renai_cli.run([renai_cli.renai(), *self.words("none", *options), "--dry-run"]))
        self.assertIn("fc from epoch 2 on; the corrections of adamw count the steps in which a layer is trained\n", plan)

    def test_adam_takes_a_late_first_step_as_a_first_one(self):
        """The first step of Adam moves each weight by the rate, up to eps: by three times that, or a third, were the
        count that of the run."""
        self.train("late", "--optimizer", "adam", "--lr", "0.01", "--weight-decay", "0", "--freeze-until", "fc@2")
        states = [np.frombuffer(state, dtype=np.float32) for state in self.values("late", "fc.bias")]
        moved = np.abs(states[6] - states[5])
        np.testing.assert_allclose(moved, 0.01, rtol=1e-3)

    def test_unfrozen_steps_are_those_of_a_run_without(self):
        """Groups alone change nothing: a name that is never frozen leaves every bit as it was."""
        lines = [[line for line in map(json.loads, self.train(name, *more).read_text().splitlines())
                  if line["kind"] == "step"]
                 for name, more in (("plain", ()), ("grouped", ("--freeze-until", "layer1@0,first@0")))]
        self.assertEqual(*lines)

    def test_refusals(self):
        for option, text, said in (("--freeze-until", "layer2@1", "did you mean 'layer1'"),
                                   ("--freeze-until", "layer1", "NAME@EPOCH"),
                                   ("--freeze-after", "layer1@x", "NAME@EPOCH"),
                                   ("--freeze-until", "layer1@1,layer1.bn@2", "both stand for parameter 'layer1.bn.weight'"),
                                   ("--freeze-until", "layer1@1,layer1@2", "twice"),
                                   ("--freeze-until", "first@1,layer1@1,fc@2", "in epoch 0 every parameter"),
                                   ("--freeze-after", "first@2,layer1@5,fc@3", "in epoch 5 every parameter"),
                                   ("--freeze-until", "first@3 --freeze-after first@2", "never be trained")):
            with self.subTest(text=text):
                self.fails(renai_cli.on_ranks(1, *self.words("bad", option, *text.split())), 2, option if "epoch" not in said else "", said)
        plan = self.succeeds(renai_cli.run([renai_cli.renai(), *self.words("none", "--freeze-until", "first@2"), "--dry-run"]))
        self.assertIn("frozen: first before epoch 2", plan)


if __name__ == "__main__":
    renai_cli.main()
