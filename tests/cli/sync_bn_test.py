#!/usr/bin/env python3
"""--sync-bn: batch norm over the whole batch. As one rank with one shard up to rounding, the same bits at each launch and after a restart."""

import json
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import h5py  # noqa: E402
import numpy as np  # noqa: E402
import renai_cli  # noqa: E402

# Several norms: alone, with a relu, with a relu and a max pool, in a residual block. Smooth but for them.
MODEL = """name = "norms"
[[layers]]
name = "conv1"
type = "conv2d"
out = 8
kernel = 3
padding = 1
bias = false
[[layers]]
type = "batch_norm"
name = "bn1"
[[layers]]
type = "silu"
[[layers]]
type = "avg_pool"
kernel = 2
[[layers]]
name = "block"
type = "residual"
layers = [
  { name = "conv", type = "conv2d", out = 8, kernel = 3, padding = 1, bias = false },
  { name = "bn", type = "batch_norm" },
  { name = "act", type = "tanh" },
]
[[layers]]
name = "conv2"
type = "conv2d"
out = 12
kernel = 3
padding = 1
bias = false
[[layers]]
type = "batch_norm"
name = "bn2"
[[layers]]
type = "silu"
[[layers]]
type = "global_avg_pool"
[[layers]]
type = "flatten"
[[layers]]
name = "fc"
type = "linear"
out = "classes"
"""
STEPS = 25


class SyncBnTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(112, 24)
        self.model = self.folder / "model.toml"
        self.model.write_text(MODEL)

    def words(self, name, *more):
        model = () if "--model" in more else ("--model", self.model)
        return ["train", "--data", self.data, *model, "--run-dir", self.folder / name, "--steps", STEPS,
                "--global-batch", 32, "--verify-every", 5, "--checkpoint-every", 5, "--keep", 100, "--lr", "0.05",
                "--trace", self.folder / f"{name}.trace", "--lr-schedule", "constant", "--warmup-epochs", 0, *more]

    def train(self, name, ranks, *more):
        self.succeeds(renai_cli.on_ranks(ranks, *self.words(name, "--logical-shards", ranks, *more)))
        return self.folder / f"{name}.trace"

    def losses(self, trace):
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        return np.array([struct.unpack("!f", bytes.fromhex(line["loss"]))[0] for line in lines if line["kind"] == "step"])

    def state(self, name):
        """All weights and running statistics at the end."""
        with h5py.File(self.folder / name / "checkpoints" / f"step-{STEPS:08d}.h5", "r") as file:
            return {f"{group}/{key}": file[group][key][()] for group in ("weights", "bn_running") for key in file[group]}

    def deviation(self, name, of):
        """The largest over all tensors, of the tensor's norm."""
        other = self.state(of)
        return max(np.linalg.norm(value - other[key]) / np.linalg.norm(other[key])
                   for key, value in self.state(name).items())

    def same(self, a, b):
        self.identical(a, b, STEPS)

    def test_it_is_batch_norm_over_the_whole_batch(self):
        """Also in the partial batch of each epoch, which has 16 rows."""
        for device in ("cpu", "reference"):
            whole = self.losses(self.train(f"{device}1", 1, "--device", device))
            self.assertEqual(len(whole), STEPS)
            for ranks in (2, 4):
                name = f"{device}{ranks}"
                losses = self.losses(self.train(name, ranks, "--device", device, "--sync-bn"))
                np.testing.assert_allclose(losses, whole, rtol=0, atol=5e-6, err_msg=name)
                self.assertLess(self.deviation(name, f"{device}1"), 2e-5, name)
            apart = self.losses(self.train(f"{device}-apart", 2, "--device", device))
            self.assertGreater(np.abs(apart - whole).max(), 1e-3, "without it the shards' statistics are their own")
        self.assertIn("sync-bn = true", (self.folder / "cpu2" / "recipe.toml").read_text())

    def test_one_value_of_a_channel_on_each_rank(self):
        """Where each shard of the partial batch has one row; a shard alone would have no variance."""
        self.data = self.pack_idx(36, 8, source="few-idx", out="few")
        self.model.write_text(MODEL.replace('[[layers]]\nname = "fc"', '[[layers]]\nname = "bn3"\ntype = "batch_norm"\n'
                                            'eps = 0.1\n[[layers]]\nname = "fc"'))
        slowly = ("--lr", "0.002")  # Few rows: rounding grows quickly.
        for device in ("cpu", "reference"):
            whole = self.losses(self.train(f"{device}1", 1, "--device", device, *slowly))
            losses = self.losses(self.train(f"{device}4", 4, "--device", device, "--sync-bn", *slowly))
            np.testing.assert_allclose(losses, whole, rtol=0, atol=2e-5, err_msg=device)
        self.fails(renai_cli.on_ranks(4, *self.words("apart", "--logical-shards", 4)), 2, "bn3", "one value per channel")

    def test_norms_in_the_first_layer(self):
        """Alone, or behind a convolution whose sum with the image makes them a part of it: its graphs hold exchanges then."""
        tail = MODEL[MODEL.index('[[layers]]\nname = "conv2"'):]
        first = '[[layers]]\ntype = "batch_norm"\n'
        added = ('[[layers]]\nname = "a"\ntype = "conv2d"\nout = 1\nkernel = 3\npadding = 1\nbias = false\n' + first +
                 'name = "b"\n[[layers]]\ntype = "add"\ninputs = ["b", "input"]\n')
        for name, head in (("alone", first), ("sum", added)):
            self.model.write_text(f'name = "{name}"\n{head}{tail}')
            for device in ("cpu", "reference"):
                whole = self.losses(self.train(f"{name}-{device}", 1, "--device", device))
                losses = self.losses(self.train(f"{name}-{device}2", 2, "--device", device, "--sync-bn"))
                np.testing.assert_allclose(losses, whole, rtol=0, atol=5e-6, err_msg=name)

    def test_bits_of_a_launch_and_a_restart(self):
        options = ("--sync-bn", "--model", "cnn-small", "--ema", "0.9", "--threads", "2")
        one = self.train("one", 2, *options)
        self.same(one, self.train("again", 2, *options))
        process = renai_cli.on_ranks(2, *self.words("halves", "--logical-shards", 2, *options, "--inject-fault", "exit@13:0"))
        self.assertNotEqual(process.returncode, 0)
        self.succeeds(renai_cli.on_ranks(2, *self.words("halves", "--logical-shards", 2, *options, "--resume", "auto")))
        self.same(one, self.folder / "halves.trace")
        summary = json.loads((self.folder / "one" / "summary.json").read_text())
        self.assertEqual((summary["status"], summary["step_allocations"]), ("completed", 0))
        # A checkpoint is evaluated on any number of ranks; to go on it needs its own.
        checkpoint = self.folder / "one" / "checkpoints" / f"step-{STEPS:08d}.h5"
        evaluated = ("eval", "--device", "cpu", "--checkpoint", checkpoint, "--data", self.data)
        results = {ranks: self.succeeds(renai_cli.on_ranks(ranks, *evaluated)) for ranks in (1, 2)}
        self.assertEqual(results[1], results[2])
        self.assertIn(f"{summary['val_top1']:.4f}", results[1])
        self.fails(renai_cli.on_ranks(1, *self.words("one", "--logical-shards", 2, *options, "--resume", "auto")), 2,
                   "--sync-bn on 1 rank with --logical-shards 2")

    def test_a_rank_that_dies_or_stops_in_a_pass(self):
        for fault in ("exit@7:1", "stall@7:1"):
            start = time.monotonic()
            process = renai_cli.on_ranks(2, *self.words(fault[:4], "--logical-shards", 2, "--sync-bn",
                                                        "--verify-every", 0, "--inject-fault", fault,
                                                        "--watchdog-seconds", "3"), timeout=60)
            self.assertLess(time.monotonic() - start, 3 + 5 + 2)
            self.assertNotEqual(process.returncode, 0, process.stdout)
            if fault.startswith("stall"):
                self.fails(process, 6, "statistics of 'bn1", "rank 1")

    def test_refusals(self):
        for ranks, words, said in ((1, (), ("--sync-bn on 1 rank with --logical-shards 8", "start 8 ranks")),
                                   (2, ("--logical-shards", 4), ("--sync-bn on 2 ranks with --logical-shards 4",
                                                                 "start 4 ranks, or use --logical-shards 2")),
                                   (2, ("--logical-shards", 2, "--accumulate", 2), ("--sync-bn with --accumulate 2",)),
                                   (2, ("--logical-shards", 2, "--model", "lenet5"),
                                    ("--sync-bn", "model 'lenet5' has no batch norm"))):
            with self.subTest(words=words):
                self.fails(renai_cli.on_ranks(ranks, *self.words("bad", *words, "--sync-bn")), 2, *said)
        self.assertFalse((self.folder / "bad").exists())
        alone = self.train("alone", 1)
        self.assertEqual(self.losses(alone).tolist(), self.losses(self.train("alone2", 1, "--sync-bn")).tolist())


if __name__ == "__main__":
    renai_cli.main()
