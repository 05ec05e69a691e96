#!/usr/bin/env python3
"""Faults of ranks: a flipped bit, a stopped rank, a rank that is gone. The job ends in time and says who and where."""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402


class FaultsTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(128, 32)

    def train(self, ranks, *words):
        return renai_cli.on_ranks(ranks, "train", "--data", self.data, "--run-dir", self.folder / "run", "--global-batch", 32,
                                  "--steps", 40, *words, timeout=60)

    def assert_failed(self, text):
        summary = json.loads((self.folder / "run" / "summary.json").read_text())
        self.assertEqual(summary["status"], "failed")
        self.assertIn(text, summary["error"])

    def test_flipped_bit(self):
        process = self.train(4, "--inject-fault", "flip@6:2", "--verify-every", "5")
        self.fails(process, 6, "after step 9", "region 'weights'", "rank 2 holds", ".weight")
        self.assert_failed("rank 2")

    def test_flip_on_one_rank_without_check_in_between_is_found_at_the_checkpoint(self):
        process = self.train(2, "--inject-fault", "flip@38:1", "--verify-every", "0")
        self.fails(process, 6, "after step 39", "rank 1 holds")

    def test_overflow_on_one_rank(self):
        """All ranks skip the step, the loss scale halves and comes back, and the bits are those of one rank."""
        words = ["--loss-scale", "dynamic", "--loss-scale-interval", 4, "--log-every", 1, "--verify-every", 1]
        runs = {}
        for ranks, rank in ((1, 0), (2, 0), (4, 0), (2, 1)):
            with self.subTest(ranks=ranks, rank=rank):
                trace = self.folder / f"{ranks}-{rank}.trace"
                process = self.train(ranks, *words, "--inject-fault", f"overflow@13:{rank}", "--trace", trace)
                self.succeeds(process)
                summary = json.loads((self.folder / "run" / "summary.json").read_text())
                self.assertEqual(summary["skipped_steps"], 1)
                lines = map(json.loads, (self.folder / "run" / "metrics.jsonl").read_text().splitlines())
                scales = [line["loss_scale"] for line in lines if line["kind"] == "train"]
                self.assertEqual(scales[:12], [2.0 ** (16 + (step + 1) // 4) for step in range(12)])
                self.assertEqual(scales[12:18], [2.0 ** 19] + [2.0 ** 18] * 4 + [2.0 ** 19])
                steps = [step for step in map(json.loads, trace.read_text().splitlines()) if step["kind"] == "step"]
                changed = [a["weights"] != b["weights"] for a, b in zip(steps, steps[1:])]
                self.assertEqual([i + 1 for i, change in enumerate(changed) if not change], [13])
                runs[ranks, rank] = trace
        for ranks in (2, 4):
            self.identical(runs[1, 0], runs[ranks, 0], 40)

    def test_stopped_rank_in_a_step(self):
        start = time.monotonic()
        process = self.train(4, "--inject-fault", "stall@3:1", "--watchdog-seconds", "3", "--verify-every", "0")
        self.assertLess(time.monotonic() - start, 3 + 5 + 2)
        self.fails(process, 6, "step")
        # The speaker may also miss ranks that wait for rank 1 themselves.
        self.assertRegex(process.stdout, r"ranks? (\d, )*1\b")

    def test_stopped_rank_before_capture(self):
        start = time.monotonic()
        process = self.train(4, "--inject-fault", "stall@capture:3", "--watchdog-seconds", "3")
        self.assertLess(time.monotonic() - start, 3 + 5 + 2)
        self.fails(process, 6, "rank 3")
        self.assert_failed("rank 3")

    def test_rank_that_does_not_start(self):
        """MPI's own start waits for all ranks for ever."""
        for rank, what in ((1, "kill -STOP $$"), (0, "kill -STOP $$"), (1, "exit 0")):
            with self.subTest(rank=rank, what=what):
                script = self.folder / "start.sh"
                script.write_text(f"#!/bin/sh\nif [ \"$OMPI_COMM_WORLD_RANK\" = {rank} ]; then {what}; fi\n"
                                  f"exec {renai_cli.renai()} train --data {self.data} --run-dir {self.folder}/run "
                                  "--watchdog-seconds 1\n")
                script.chmod(0o755)
                start = time.monotonic()
                process = renai_cli.run([renai_cli.SOURCE / "ci" / "mpiexec.sh", 4, script], timeout=60)
                self.assertLess(time.monotonic() - start, 1 + 5 + 2)
                speaker = 1 if rank == 0 else 0
                self.fails(process, 6, f"rank {speaker} did not get through MPI_Init within the watchdog time")

    def test_rank_that_is_gone(self):
        start = time.monotonic()
        process = self.train(2, "--inject-fault", "exit@3:1", "--watchdog-seconds", "3")
        self.assertLess(time.monotonic() - start, 3 + 5 + 2)
        self.assertNotEqual(process.returncode, 0, process.stdout)


if __name__ == "__main__":
    renai_cli.main()
