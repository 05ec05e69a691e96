#!/usr/bin/env python3
"""Captured execution: the same bits as without capture, no allocation and no waiting in steady state, copies and
reductions beside compute."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import device_cli  # noqa: E402
import renai_cli  # noqa: E402

STEPS = 7 if device_cli.ON_CPU else 200 if device_cli.FULL else 60
BENCH_STEPS = 20


class UncapturedTest(device_cli.DeviceTest):
    def check(self, ranks):
        data = self.synthetic()
        for precision in device_cli.PRECISIONS[:2]:
            with self.subTest(precision=precision):
                options = {"model": "resnet9", "steps": STEPS, "precision": precision, "augment": "crop2,flip"}
                captured = self.train(f"captured-{precision}", data, ranks, **options)
                env = renai_cli.environment(NCCL_NVLS_ENABLE="0", RENAI_UNCAPTURED="1")
                words = self.train_words(f"plain-{precision}", data, **options)
                process = device_cli.launch(ranks, *words, env=env, timeout=240)
                self.succeeds(process)
                if not device_cli.ON_CPU:
                    self.assertIn("uncaptured", process.stdout.lower(), "the run does not say what it leaves out")
                self.same(captured, self.folder / f"plain-{precision}.trace", STEPS)

    def test_one_rank(self):
        self.check(1)

    def test_two_ranks(self):
        self.require_two_ranks()
        self.check(2)


class SteadyStateTest(device_cli.DeviceTest):
    def bench(self, ranks, *words, timeout=240):
        cache = ["--plan-cache", self.plan_cache.name] if self.takes_cache else []
        return self.succeeds(device_cli.launch(ranks, "bench", "step", "--device", device_cli.DEVICE, *cache, *words,
                                               timeout=timeout))

    def sizes(self):
        return ["--model", "cnn-small" if device_cli.ON_CPU else "resnet9", "--global-batch",
                32 if device_cli.ON_CPU else 512, "--logical-shards", 2]

    def test_runs_neither_allocate_nor_wait(self):
        data = self.synthetic()
        for ranks in (1, 2) if self.two_ranks() else (1,):
            for precision in device_cli.PRECISIONS:
                with self.subTest(ranks=ranks, precision=precision):
                    name = f"run{ranks}-{precision}"
                    self.train(name, data, ranks, model="cnn-small", steps=STEPS, precision=precision)
                    summary = self.summary(name)
                    self.assertEqual(summary["device"], device_cli.DEVICE)
                    self.assertEqual(summary["precision"], precision)
                    self.assertEqual(summary["step_allocations"], 0)
                    self.assertEqual(summary["step_synchronizations"], 0)
                    self.assertGreater(summary["captured_graphs"], 0)

    def test_start_up_and_memory(self):
        """Seconds to the first step with cold and with warm plans, and the device memory of resnet9, for the log."""
        data = self.synthetic()
        seconds = {}
        for temperature in ("cold", "warm"):
            options = {"plan_cache": self.folder / "plans"} if self.takes_cache else {}
            self.train(temperature, data, model="resnet9", steps=4, precision=device_cli.PRECISIONS[-1], **options)
            summary = self.summary(temperature)
            seconds[temperature] = summary["startup_seconds"]
            self.assertGreater(summary["peak_device_bytes"], 0)
        memory = summary["peak_device_bytes"] / 2**20
        device_cli.say(f"resnet9, batch {device_cli.BATCH}: first step after {seconds['cold']:.2f} s with cold plans, "
                       f"{seconds['warm']:.2f} s with warm ones; {memory:.1f} MiB of device memory")
        if not device_cli.ON_CPU:
            self.assertLess(seconds["warm"], seconds["cold"] + 1.0)

    def test_bench_is_proved_and_steady(self):
        """`bench step` compares a step with the reference backend before it measures."""
        precisions = device_cli.PRECISIONS if device_cli.ON_CPU else ("fp32", "tf32", "bf16", "fp16")
        for precision in precisions:
            with self.subTest(precision=precision):
                output = self.bench(1, "--model", "cnn-small", "--image-size", 28, "--channels", 1, "--global-batch",
                                    64, "--logical-shards", 2, "--steps", BENCH_STEPS, "--precision", precision,
                                    "--json")
                result = json.loads(output.strip().splitlines()[-1])
                self.assertEqual(result["step_allocations"], 0)
                # The benchmark itself waits at the end of each measured window of a few steps.
                self.assertLessEqual(result["step_synchronizations"], BENCH_STEPS // 2)
                self.assertGreaterEqual(result["deviation_from_reference"], 0.0)
                device_cli.say(f"cnn-small {precision}: deviation from the reference "
                               f"{result['deviation_from_reference']:.2e}, {result['images_per_second']:.0f} images/s")

    def timeline(self, ranks):
        """`bench step --timeline`: its values by name, and its spans as (graph, stream, start, end)."""
        no_proof = ["--skip-proof"] if device_cli.has_option(["bench", "step"], "--skip-proof") else []
        output = self.bench(ranks, *self.sizes(), *no_proof, "--precision", "fp32" if device_cli.ON_CPU else "bf16",
                            "--steps", 10, "--bucket-mib", 4, "--timeline")
        values, spans, in_table = {}, [], False
        for line in output.splitlines():
            words = line.split()
            if words[:2] == ["graph", "stream"]:
                in_table = True
            elif in_table and len(words) == 4:
                spans.append((words[0], words[1], float(words[2]), float(words[3])))
            elif len(words) == 2:
                values[words[0]] = words[1]
        self.assertGreater(len(spans), 0, output)
        device_cli.say(output)
        return values, spans

    def beside_compute(self, spans, stream):
        """Share of the time of a stream's spans during which a span of COMPUTE ran."""
        compute = [(start, end) for _, name, start, end in spans if name == "COMPUTE"]
        total = beside = 0.0
        for _, name, start, end in spans:
            if name == stream:
                total += end - start
                beside += sum(max(0.0, min(end, e) - max(start, s)) for s, e in compute)
        return beside / total if total > 0 else None

    def test_copies_run_beside_compute(self):
        values, spans = self.timeline(1)
        self.assertEqual(values["step_allocations"], "0")
        share = self.beside_compute(spans, "TRANSFER")
        hidden = float(values["transfer_overlap"])
        device_cli.say(f"copies: {share:.2f} of their time beside compute, {hidden:.2f} hidden")
        self.assertGreater(hidden, 0.5)
        if not device_cli.ON_CPU:
            self.assertGreater(share, 0.0)

    def test_gradient_buckets_run_beside_backward(self):
        self.require_two_ranks()
        _, spans = self.timeline(2)
        share = self.beside_compute(spans, "COMM")
        self.assertIsNotNone(share, "no span of COMM")
        device_cli.say(f"reductions: {share:.2f} of their time beside compute")
        if not device_cli.ON_CPU:
            self.assertGreater(share, 0.0)


if __name__ == "__main__":
    device_cli.main()
