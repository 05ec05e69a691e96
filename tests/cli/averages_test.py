#!/usr/bin/env python3
"""Exponential averages (--ema): the same bits on any number of ranks and after a restart, in trace, checkpoint and eval."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

STEPS = 8


class AveragesTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(148, 40)

    def words(self, name, *more):
        return ["train", "--data", self.data, "--run-dir", self.folder / name, "--steps", STEPS, "--global-batch", 32,
                "--model", "cnn-small", "--trace", self.folder / f"{name}.trace", *more]

    def train(self, name, *more, ranks=1):
        self.succeeds(renai_cli.on_ranks(ranks, *self.words(name, "--ema", "0.8", *more)))
        return self.folder / f"{name}.trace"

    def same(self, a, b):
        self.identical(a, b, STEPS)

    def summary(self, name):
        return json.loads((self.folder / name / "summary.json").read_text())

    def lines(self, trace, kind):
        return [line for line in map(json.loads, trace.read_text().splitlines()) if line["kind"] == kind]

    def checkpoint(self, name):
        return self.folder / name / "checkpoints" / f"step-{STEPS:08d}.h5"

    def evaluate(self, name, *more):
        return renai_cli.run([renai_cli.renai(), "eval", "--checkpoint", self.checkpoint(name), "--data", self.data, "--json",
                              *more])

    def test_ranks_restart_and_controls(self):
        one = self.train("one")
        for ranks in (2, 4):
            self.same(one, self.train(f"np{ranks}", ranks=ranks))
        halves = ["--checkpoint-every", 3]
        process = renai_cli.on_ranks(2, *self.words("halves", "--ema", "0.8", *halves, "--inject-fault", "exit@4:0"))
        self.assertNotEqual(process.returncode, 0)
        self.succeeds(renai_cli.on_ranks(1, *self.words("halves", "--ema", "0.8", *halves, "--resume", "auto")))
        self.same(one, self.folder / "halves.trace")
        self.fails(renai_cli.on_ranks(1, *self.words("halves", "--ema", "0.7", "--resume", "auto")), 2, "ema = 0.8")

        # Averages change nothing but themselves; another decay changes them alone.
        other = self.train("other", "--ema", "0.7")
        self.succeeds(renai_cli.on_ranks(1, *self.words("plain")))
        steps, others = self.lines(one, "step"), self.lines(other, "step")
        plain = self.lines(self.folder / "plain.trace", "step")
        self.assertEqual(steps[0]["ema"], others[0]["ema"])  # The first average is the value itself.
        self.assertEqual(steps[0]["weights"], plain[0]["weights"])
        for step, differing, without in list(zip(steps, others, plain))[1:]:
            self.assertNotEqual(step["ema"], differing["ema"])
            self.assertNotIn("ema", without)
            for region in ("weights", "optimizer", "bn_running", "grad", "loss"):
                self.assertEqual(step[region], differing[region])
                self.assertEqual(step[region], without[region])

    def test_validation_checkpoint_and_evaluation(self):
        trace = self.train("run")
        summary = self.summary("run")
        metrics = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        pairs = [(line["step"], line["ema"]) for line in metrics if line["kind"] == "val"]
        self.assertEqual(pairs, [(5, False), (5, True), (8, False), (8, True)])
        self.assertEqual([line.get("ema", False) for line in self.lines(trace, "val")], [False, True] * 2)
        weights, averages = (json.loads(self.succeeds(self.evaluate("run", *more)).splitlines()[-1])
                             for more in ((), ("--ema",)))
        for key in ("loss", "top1"):
            self.assertEqual(weights[key], summary[f"val_{key}"])
            self.assertEqual(averages[key], summary[f"val_{key}_ema"])
        self.assertNotEqual(weights["loss"], averages["loss"])
        self.assertIn("averaged weights", self.succeeds(renai_cli.run([renai_cli.renai(), "inspect", self.folder / "run"])))
        self.succeeds(renai_cli.run([renai_cli.renai(), "verify", self.checkpoint("run")]))

    def test_without_averages_there_are_none(self):
        self.succeeds(renai_cli.on_ranks(1, *self.words("run")))
        self.assertNotIn("val_top1_ema", self.summary("run"))
        self.assertEqual(self.summary("run")["captured_graphs"], 29)
        self.fails(self.evaluate("run", "--ema"), 2, "no averaged weights")
        self.fails(renai_cli.on_ranks(1, *self.words("run", "--ema", "1")), 2, "--ema 1")


if __name__ == "__main__":
    renai_cli.main()
