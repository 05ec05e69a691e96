#!/usr/bin/env python3
"""Ranks that were started with other options: a mistake of the command line, which names option and rank, and no silence."""

import shlex
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

LIMIT_SECONDS = 10  # Far below the watchdog time.


class RanksAgreeTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        renai_cli.write_idx(self.folder / "idx", train=128, val=32)
        self.succeeds(self.run_here("pack", "idx", "idx", "--out", "data"))
        self.train = ["train", "--data", "data", "--model", "mlp", "--global-batch", 32, "--steps", 2, "--lr-schedule", "constant"]
        self.small = ["--data", "data", "--model", "mlp", "--global-batch", 32]

    def run_here(self, *words):
        return renai_cli.run([renai_cli.renai(), *words], cwd=self.folder)

    def on_two(self, words, rank, more, instead=()):
        """Both ranks get the words, and rank `rank` some more, or all others `instead`."""
        def line(*parts):
            return "exec " + " ".join(shlex.quote(str(word)) for word in (renai_cli.renai(), *parts))
        script = self.folder / "start.sh"
        script.write_text(f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = {rank} ] && {line(*(instead or words), *more)}\n'
                          f"{line(*words)}\n")
        script.chmod(0o755)
        start = time.monotonic()
        process = renai_cli.run([renai_cli.SOURCE / "ci" / "mpiexec.sh", 2, script], cwd=self.folder)
        self.assertLess(time.monotonic() - start, LIMIT_SECONDS)
        return process

    def refuses(self, words, more, has, others="not given"):
        option = more[0].removeprefix("--")
        for rank in (0, 1):
            with self.subTest(words=words[:2], more=more, rank=rank):
                process = self.on_two(words, rank, more)
                self.fails(process, 2, f"rank {rank} has '{option} = {has}'", f"rank {1 - rank} has '{option} = {others}'",
                           "start all ranks with the same options")

    def test_train(self):
        self.refuses(self.train, ["--run-dir", "run"], "given")
        self.refuses([*self.train, "--resume", "auto"], ["--run-dir", "run"], "given")
        self.refuses([*self.train, "--run-dir", "run"], ["--trace", "trace"], "given")
        self.refuses([*self.train, "--run-dir", "run"], ["--val-data", "data"], "given")
        self.refuses([*self.train, "--run-dir", "run"], ["--dry-run"], "true")
        self.assertFalse((self.folder / "run").exists())

    def test_atlas(self):
        for switch in ("--no-dedup", "--no-reuse", "--no-capture"):
            self.refuses(["atlas", *self.small], [switch], "true")

    def test_benchmarks(self):
        step = ["bench", "step", "--model", "mlp", "--global-batch", 32, "--steps", 2]
        self.refuses(step, ["--warmup", 1], "1", "3")
        self.refuses(step, ["--image-size", 16], "16", "32")
        self.refuses(step, ["--skip-proof"], "true")
        self.refuses(["bench", "comm", "--device", "cpu"], ["--max-bytes", 8192], "8192")

    def test_eval(self):
        self.succeeds(self.run_here(*self.train, "--run-dir", "run", "--ema", 0.9, "--checkpoint-every", 1))
        checkpoints = [f"run/checkpoints/step-{step:08}.h5" for step in (1, 2)]
        words = ["eval", "--device", "cpu", "--checkpoint"]
        self.refuses([*words, checkpoints[1]], ["--ema"], "true")
        process = self.on_two([*words, checkpoints[0]], 1, [], instead=[*words, checkpoints[1]])
        self.fails(process, 2, "rank 1 has 'weights of --checkpoint = ", "rank 0 has 'weights of --checkpoint = ")
        (self.folder / "copy.h5").write_bytes((self.folder / checkpoints[0]).read_bytes())
        self.succeeds(self.on_two([*words, checkpoints[0]], 1, [], instead=[*words, "copy.h5"]))

    def test_pack(self):
        words = ["pack", "idx", "idx", "--shard-samples", 32]
        self.refuses([*words, "--out", "new"], ["--overwrite"], "true")
        process = self.on_two([*words, "--out", "new"], 1, [], instead=[*words, "--out", "other"])
        self.fails(process, 2, "rank 1 has 'out = other'", "rank 0 has 'out = new'")
        self.assertFalse((self.folder / "new").exists() or (self.folder / "other").exists())

    def test_commands(self):
        process = self.on_two(["atlas", *self.small], 1, [], instead=["train", *self.small])
        self.fails(process, 2, "rank 1 has 'command = renai train'", "rank 0 has 'command = renai atlas'")

    def test_what_may_differ(self):
        train = [*self.train, "--run-dir"]
        process = self.on_two([*train, "run", "--trace", "a"], 1, ["--loader-threads", 3, "--plan-cache", "no"],
                              instead=[*train, "elsewhere", "--trace", "b"])
        self.succeeds(process)
        self.assertTrue((self.folder / "run" / "summary.json").exists())
        self.assertFalse((self.folder / "elsewhere").exists())
        self.succeeds(self.on_two(["atlas", *self.small], 0, ["--html", "atlas.html"]))
        self.assertTrue((self.folder / "atlas.html").exists())
        self.succeeds(self.on_two(["bench", "comm", "--device", "cpu", "--max-bytes", 8192], 0, ["--json"]))


if __name__ == "__main__":
    renai_cli.main()
