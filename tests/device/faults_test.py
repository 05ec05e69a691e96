#!/usr/bin/env python3
"""Two ranks on two GPUs, one of which stands still or is gone: the job ends in time, says who and where, and leaves
neither processes nor device memory; and a run that completes leaves quickly."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import device_cli  # noqa: E402

WATCHDOG = 5.0
MEMORY_SLACK_MIB = 64


class EndingTest(device_cli.DeviceTest):
    def setUp(self):
        super().setUp()
        self.before = device_cli.memory_used_mib()
        self.data = self.synthetic()

    def train_with(self, ranks, fault=None, steps=40, launcher=(), **options):
        words = self.train_words("run", self.data, model="cnn-small", steps=steps, inject_fault=fault, **options)
        return device_cli.launch(ranks, *words, launcher=launcher, timeout=90)

    def check_left(self, job):
        self.nothing_left(job)
        if device_cli.ON_CPU:
            return
        end = time.monotonic() + 10.0
        while True:
            now = device_cli.memory_used_mib()
            if all(b <= a + MEMORY_SLACK_MIB for a, b in zip(self.before, now)):
                return
            self.assertLess(time.monotonic(), end, f"device memory remains: {self.before} MiB before, {now} after")
            time.sleep(0.2)


class CompletedTest(EndingTest):
    def check(self, ranks):
        job = self.train_with(ranks)
        self.succeeds(job)
        seconds = job.wall_end - (self.folder / "run.trace").stat().st_mtime
        device_cli.say(f"{ranks} rank(s): {seconds:.2f} s from the last step's validation to the end")
        self.assertLess(seconds, 2.0 if not device_cli.ON_CPU else 10.0)
        self.check_left(job)

    def test_one_rank_leaves_quickly(self):
        self.check(1)

    def test_two_ranks_leave_quickly(self):
        self.require_two_ranks()
        self.check(2)


class FaultsTest(EndingTest):
    gpus_needed = 2

    def in_time(self, job):
        self.assertIsNotNone(job.fault_at, "no rank stopped\n" + job.stdout)
        seconds = job.ended_at - job.fault_at
        name = self.id().rsplit(".", 1)[-1]
        device_cli.say(f"{name}: ended {seconds:.1f} s after the fault, exit status {job.returncode}")
        self.assertLess(seconds, WATCHDOG + 5.0)
        self.assertNotEqual(job.returncode, 0, job.stdout)
        self.check_left(job)

    def names(self, job, *stages):
        """A surviving rank's line names rank 1 and one of the stages."""
        lines = [line for line in job.stdout.splitlines() if line.startswith("renai: rank 0")]
        named = [line for line in lines if "rank 1" in line and any(stage in line for stage in stages)]
        self.assertTrue(named, f"no line of rank 0 with 'rank 1' and one of {stages}\n{job.stdout}")

    def test_rank_that_never_arrives_at_capture(self):
        job = self.train_with(2, "stall@capture:1", watchdog_seconds=WATCHDOG)
        self.in_time(job)
        self.assertEqual(job.returncode, 6, job.stdout)
        self.names(job, "captur", "fingerprint", "compar", "compil", "plan")

    def test_rank_that_stands_still_in_a_step(self):
        job = self.train_with(2, "stall@20:1", watchdog_seconds=WATCHDOG, verify_every=0)
        self.in_time(job)
        self.assertEqual(job.returncode, 6, job.stdout)
        self.names(job, "step", "gradient", "bucket", "exchange", "roll")

    def test_rank_that_dies_in_a_step(self):
        self.in_time(self.train_with(2, "exit@20:1", watchdog_seconds=WATCHDOG, verify_every=0))

    def test_survivor_of_a_death_names_the_rank(self):
        """With a launcher that lets the others go on, a survivor says who is missing."""
        job = self.train_with(2, "exit@20:1", watchdog_seconds=WATCHDOG, verify_every=0, launcher=("--continuous",))
        self.assertIsNotNone(job.fault_at, "no rank went\n" + job.stdout)
        self.assertLess(job.ended_at - job.fault_at, WATCHDOG + 5.0)
        self.assertFalse(job.timed_out, job.stdout)
        self.names(job, "step", "gradient", "bucket", "exchange", "roll")
        self.check_left(job)

    def test_flipped_bit(self):
        job = self.train_with(2, "flip@6:1", verify_every=5)
        self.fails(job, 6, "after step 9", "region 'weights'", "rank 1 holds")
        self.check_left(job)


if __name__ == "__main__":
    device_cli.main()
