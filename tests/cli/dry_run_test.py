#!/usr/bin/env python3
"""renai train --dry-run: the whole plan, and not a file."""

import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402


class DryRunTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(125, 32)

    def snapshot(self):
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in self.folder.rglob("*")}

    def dry_run(self, *words, ranks=1):
        """The plan's text; nothing changes in the folder, which also is home, cache and working directory."""
        words = ["train", "--dry-run", "--data", self.data, "--global-batch", 16, *words]
        env = renai_cli.environment(HOME=str(self.folder), XDG_CACHE_HOME=str(self.folder / "cache"))
        before = self.snapshot()
        if ranks == 1:
            process = renai_cli.run([renai_cli.renai(), *words], cwd=self.folder, env=env)
        else:
            process = renai_cli.on_ranks(ranks, *words, cwd=self.folder, env=env)
        text = self.succeeds(process)
        self.assertEqual(self.snapshot(), before)
        return text

    def test_tells_the_whole_plan(self):
        text = self.dry_run("--model", "mlp", "--epochs", 3, "--lr", 0.4, "--lr-schedule", "wsd", "--trace", "t",
                            "--checkpoint-every", 1, "--run-dir", "run")
        for part in ('model = "mlp"\n', 'lr-schedule = "wsd"\n', "fc4", "total", "variants:\n", "captures, in the order",
                     "slots ", "arena (peak)", "8 steps: 7 of 16 samples and one of 8, 5 samples left out\n",
                     "24 (3 epochs)\n", "warm-up        4 steps\n", "28 from epoch 0\n",
                     "wsd: first 0.1, highest 0.4, last 0.05\n"):
            self.assertIn(part, text)
        plot = [line[14:] for line in text.splitlines()[-12:]]
        self.assertTrue(plot[0].startswith(" " * 8 + "*"), text)  # Three of 24 steps are below the peak.
        self.assertTrue(plot[11].startswith("0 ") and plot[11].endswith(" 23"), text)

    def test_a_long_chain_of_sums_is_planned_in_seconds(self):
        """Hundreds of names of one storage: the plan's verifier compares storages, not names."""
        layers = ['{ name = "c", type = "conv2d", out = 2, kernel = 3, padding = 1 }']
        layers += ['{ type = "add", inputs = ["previous", "c"] }'] * 150
        layers += ['{ type = "tanh" }', '{ type = "flatten" }', '{ type = "linear" }']
        model = self.folder / "chain.toml"
        model.write_text('name = "chain"\nlayers = [\n' + ",\n".join(layers) + "\n]\n")
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        self.assertIn("schedule:", self.dry_run("--model", model))
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 15)

    def test_ranks_tell_it_once(self):
        text = self.dry_run("--model", "mlp", ranks=2)
        self.assertEqual(text.count("schedule:\n"), 1)

    def test_refuses_what_training_would_refuse(self):
        words = [renai_cli.renai(), "train", "--dry-run", "--data", self.data, "--run-dir", self.folder / "run"]
        self.fails(renai_cli.run([*words, "--lr-schedule", "multistep"]), 2, "--lr-milestones 30,60")
        self.fails(renai_cli.run([*words, "--lr-points", "1@0,x@2"]), 2, "--lr-points 1@0,x@2", "'x' is not a number")
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    renai_cli.main()
