#!/usr/bin/env python3
"""Tiny and prime sizes: sets that no batch divides train and evaluate on any number of ranks, each image counted once."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402


class SizesTest(renai_cli.FolderTest):
    def make(self, count):
        data = self.folder / f"data{count}"
        if not data.exists():
            self.pack_idx(count, count, source=f"idx{count}", out=data.name)
        return data

    def train(self, count, ranks, shards, steps):
        run = self.folder / f"run-{count}-{ranks}-{shards}"
        self.succeeds(renai_cli.on_ranks(ranks, "train", "--data", self.make(count), "--run-dir", run, "--global-batch", 64,
                                         "--logical-shards", shards, "--steps", steps, "--model", "mlp"))
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual(summary["val_images"], count)
        return run, summary

    def evaluate(self, run, ranks, *words):
        checkpoint = next((run / "checkpoints").glob("step-*.h5"))
        output = self.succeeds(renai_cli.on_ranks(ranks, "eval", "--checkpoint", checkpoint, "--json", *words))
        return json.loads(next(line for line in output.splitlines() if line.startswith("{")))

    def test_prime_sizes(self):
        for count, steps in ((97, 4), (1009, 18)):
            digests, hits = set(), set()
            for ranks in (1, 2, 4, 8):
                run, summary = self.train(count, ranks, 8, steps)
                digests.add(summary["digest"])
                result = self.evaluate(run, ranks)
                self.assertEqual(result["images"], count)
                self.assertAlmostEqual(result["top1"], summary["val_top1"], places=12)
                hits.add((result["top1_hits"], result["top5_hits"], result["loss"]))
            self.assertEqual(len(digests), 1)
            self.assertEqual(len(hits), 1)

    def test_hits_do_not_depend_on_the_batch(self):
        run, _ = self.train(97, 1, 8, 4)
        counts = {self.evaluate(run, 1, "--global-batch", batch)["top1_hits"] for batch in (8, 16, 64, 128)}
        self.assertEqual(len(counts), 1)

    def test_images_that_are_no_squares_are_told(self):
        for width, told in ((12, True), (20, False)):
            data = self.folder / f"width{width}"
            self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "synthetic", "--train", 16, "--val", 4, "--height", 20,
                                         "--width", width, "--out", data]))
            output = self.succeeds(renai_cli.run([renai_cli.renai(), "train", "--data", data, "--dry-run", "--model", "mlp",
                                                  "--global-batch", 8]))
            self.assertEqual(f"images of 20 x {width} are stretched to squares" in output, told, output)
            self.assertIn("resolution     20 from epoch 0", output)

    def test_one_and_seven_samples(self):
        for count in (1, 7):
            self.train(count, 1, 1, 3)
            process = renai_cli.run([renai_cli.renai(), "train", "--data", self.make(count), "--run-dir", self.folder / "no",
                                     "--global-batch", 64, "--model", "mlp"])
            self.fails(process, 2, f"{count} samples", "--logical-shards 8")


if __name__ == "__main__":
    renai_cli.main()
