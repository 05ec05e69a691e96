#!/usr/bin/env python3
"""Signals that ask for an end: the run ends in order, says so, and goes on from there to the same bits."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

FAULTS = Path(os.environ.get("RENAI_FILE_FAULTS", "/nonexistent"))
LIMIT_SECONDS = 20


class InterruptTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(128, 32)

    def words(self, name, steps):
        return ["train", "--data", self.data, "--model", "mlp", "--run-dir", self.folder / name, "--global-batch", 32, "--steps",
                steps, "--lr-schedule", "constant", "--log-every", 1]

    def start(self, ranks, before=None, more=(), env=None, lines=4):
        """A long run, the first in its folder; returns when it has made a few steps."""
        for name in ("run", "whole"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        command = [renai_cli.renai()] if ranks == 1 else [renai_cli.SOURCE / "ci" / "mpiexec.sh", ranks, renai_cli.renai()]
        process = subprocess.Popen([str(word) for word in [*command, *self.words("run", 10**6), *more]],
                                   env=env or renai_cli.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, preexec_fn=before)
        self.addCleanup(process.kill)
        self.wait_for_lines(lines)
        return process

    def validate_for_long(self):
        self.data = self.pack_idx(128, 256, source="more", out="more-data")

    def wait_for_lines(self, count):
        metrics = self.folder / "run" / "metrics.jsonl"
        end = time.monotonic() + LIMIT_SECONDS
        while not (metrics.exists() and metrics.read_text().count("\n") >= count):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def summary(self, name="run"):
        return json.loads((self.folder / name / "summary.json").read_text())

    def check_goes_on(self, steps):
        """Continued for a few steps it holds the weights of a run that was never interrupted."""
        self.succeeds(renai_cli.run([renai_cli.renai(), *self.words("run", steps + 3), "--resume", "auto"]))
        self.succeeds(renai_cli.run([renai_cli.renai(), *self.words("whole", steps + 3)]))
        self.assertEqual(self.summary()["status"], "completed")
        self.assertEqual(self.summary()["digest"], self.summary("whole")["digest"])

    def test_one_rank(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1, signal.SIGUSR2):
            with self.subTest(signal=number):
                process = self.start(1)
                process.send_signal(number)
                self.assertEqual(process.wait(LIMIT_SECONDS), 128 + number)
                summary = self.summary()
                self.assertEqual(summary["status"], "interrupted")
                self.assertIn(f"signal {int(number)} ", summary["error"])
                self.assertTrue(summary["digest"])
                self.assertTrue((self.folder / "run" / "checkpoints" / f"step-{summary['steps']:08}.h5").exists())
                self.check_goes_on(summary["steps"])

    def test_a_run_under_nohup_outlives_its_terminal(self):
        process = self.start(1, lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        process.send_signal(signal.SIGHUP)
        lines = (self.folder / "run" / "metrics.jsonl").read_text().count("\n")
        self.wait_for_lines(lines + 40)
        process.terminate()
        self.assertEqual(process.wait(LIMIT_SECONDS), 128 + signal.SIGTERM)

    def test_one_of_several_ranks(self):
        """All ranks end at the same step, whichever of them hears the signal."""
        for rank in (0, 1):
            with self.subTest(rank=rank):
                process = self.start(2)
                renai_cli.signal_ranks(self.folder / "run", signal.SIGTERM, [rank])
                self.assertEqual(process.wait(LIMIT_SECONDS), 128 + signal.SIGTERM)
                summary = self.summary()
                self.assertEqual(summary["status"], "interrupted")
                self.assertTrue(summary["digest"])
                self.check_goes_on(summary["steps"])

    def test_the_launcher(self):
        """A launcher that is told to end leaves its ranks about a second."""
        process = self.start(2)
        process.terminate()
        self.assertNotEqual(process.wait(LIMIT_SECONDS), 0)
        self.assertEqual(self.summary()["status"], "interrupted")

    @unittest.skipUnless(FAULTS.exists(), "the library of failing files is not built")
    def test_the_launcher_when_steps_are_long(self):
        """The ranks agree within a step or two, not within a number of them, and save before they are killed."""
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                slow = renai_cli.environment(LD_PRELOAD=str(FAULTS), SLOW="train-0")
                process = self.start(2, more=["--global-batch", 8, "--loader-threads", 1], env=slow)
                process.send_signal(number)
                self.assertNotEqual(process.wait(LIMIT_SECONDS), 0)
                summary = self.summary()
                self.assertEqual(summary["status"], "interrupted")
                self.assertTrue((self.folder / "run" / "checkpoints" / f"step-{summary['steps']:08}.h5").exists(), summary)

    @unittest.skipUnless(FAULTS.exists(), "the library of failing files is not built")
    def test_during_a_validation(self):
        """It is left out, the steps before it are saved, and it is made when the run goes on."""
        self.validate_for_long()
        steps = ["--checkpoint-every", 10**6, "--ema", 0.9]
        for ranks, launcher in ((1, False), (2, False), (2, True)):
            with self.subTest(ranks=ranks, launcher=launcher):
                traces = [self.folder / name for name in ("run.trace", "whole.trace")]
                slow = renai_cli.environment(LD_PRELOAD=str(FAULTS), SLOW="val-0")
                process = self.start(ranks, more=[*steps, "--loader-threads", 1, "--trace", traces[0]], env=slow)
                time.sleep(0.3)
                if launcher:
                    process.terminate()
                else:
                    renai_cli.signal_ranks(self.folder / "run", signal.SIGTERM)
                self.assertIn(process.wait(LIMIT_SECONDS), (1, 128 + signal.SIGTERM))
                self.assertEqual(self.summary()["status"], "interrupted")
                self.assertEqual(self.summary()["steps"], 4)
                self.assertTrue((self.folder / "run" / "checkpoints" / "step-00000004.h5").exists())
                self.assertNotIn('"kind":"val"', (self.folder / "run" / "metrics.jsonl").read_text())
                for name, more in (("run", ["--resume", "auto"]), ("whole", [])):
                    trace = self.folder / f"{name}.trace"
                    self.succeeds(renai_cli.run([renai_cli.renai(), *self.words(name, 10), *steps, "--trace", trace, *more]))
                self.succeeds(renai_cli.run([renai_cli.renai(), "trace-diff", *traces]))
                kinds = [[(line["kind"], line["step"]) for line in
                          map(json.loads, (self.folder / name / "metrics.jsonl").read_text().splitlines())]
                         for name in ("run", "whole")]
                self.assertEqual(*kinds)
                self.assertEqual(self.summary()["digest"], self.summary("whole")["digest"])

    def test_weights_that_diverged_are_not_saved(self):
        """They would be the newest checkpoint, and push out a good one."""
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                process = self.start(ranks, more=["--lr", "1e30", "--max-bad-steps", 10**9])
                renai_cli.signal_ranks(self.folder / "run", signal.SIGTERM)
                self.assertEqual(process.wait(LIMIT_SECONDS), 128 + signal.SIGTERM)
                summary = self.summary()
                self.assertEqual(summary["status"], "interrupted")
                self.assertIn("no checkpoint was saved: the gradients of the last", summary["error"])
                self.assertEqual(list((self.folder / "run" / "checkpoints").glob("*.h5")), [])

    @unittest.skipUnless(FAULTS.exists(), "the library of failing files is not built")
    def test_weights_that_diverged_before_the_last_validation_are_not_saved(self):
        """It would have found them useless, and a signal ended it. Gradients of a first step are numbers whatever it makes."""
        self.validate_for_long()
        slow = renai_cli.environment(LD_PRELOAD=str(FAULTS), SLOW="val-0")
        for ranks in (1, 2):
            for steps, rate, why in ((4, ["--lr", "1e30"], "the gradients of the last 3 steps were not finite"),
                                     (1, ["--lr", "1e30", "--weight-decay", 1e12], "holds an infinity")):
                with self.subTest(ranks=ranks, steps=steps):
                    process = self.start(ranks, lines=steps, env=slow, more=["--steps", steps, "--max-bad-steps", 10**9,
                                                                             "--loader-threads", 1, *rate])
                    time.sleep(0.3)
                    renai_cli.signal_ranks(self.folder / "run", signal.SIGTERM)
                    self.assertEqual(process.wait(LIMIT_SECONDS), 128 + signal.SIGTERM)
                    summary = self.summary()
                    self.assertEqual((summary["status"], summary["steps"]), ("interrupted", steps))
                    self.assertIn("no checkpoint was saved: ", summary["error"])
                    self.assertIn(why, summary["error"])
                    self.assertNotIn('"kind":"val"', (self.folder / "run" / "metrics.jsonl").read_text())
                    self.assertEqual(list((self.folder / "run" / "checkpoints").glob("*.h5")), [])

    def test_weights_that_are_no_numbers_are_not_saved(self):
        for ranks in (1, 2):
            words = [*self.words("run", 2), "--checkpoint-every", 1, "--lr", "1e30", "--weight-decay", 1e12]
            self.fails(renai_cli.on_ranks(ranks, *words), 2, "no checkpoint is saved at step 1: tensor 'fc1.weight' holds an infinity",
                       "training diverged")
            self.assertEqual(list((self.folder / "run" / "checkpoints").glob("*.h5")), [])


if __name__ == "__main__":
    renai_cli.main()
