#!/usr/bin/env python3
"""One GPU, two, and four where they are: the same bits, for two models, two numbers of shards and each precision; and the
controls that must break them."""

import functools
import gzip
import itertools
import json
import shutil
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import device_cli  # noqa: E402
import renai_cli  # noqa: E402
from device_cli import BATCH, TRAIN, VAL  # noqa: E402

STEPS = 7 if device_cli.ON_CPU else 300 if device_cli.FULL else 60
MODELS = ("resnet9", "cnn-small")
SHARDS = (2, 8)


def last_rows(shards):
    """Samples of an epoch's last batch."""
    return TRAIN % BATCH // shards * shards


def change_pixel(path):
    """Flips the lowest bit of one pixel in a gzip file of images."""
    raw = bytearray(gzip.decompress(path.read_bytes()))
    raw[16 + 28 * 14 + 14] ^= 1
    path.write_bytes(gzip.compress(bytes(raw), compresslevel=1))


class IdentityTest(device_cli.DeviceTest):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic(shard_samples=64 if device_cli.ON_CPU else 256)

    def run_one(self, name, ranks=1, **options):
        options.setdefault("data", self.data)
        options.setdefault("augment", "crop2,flip")
        options.setdefault("steps", STEPS)
        return self.train(name, ranks=ranks, **options)

    def check_trace(self, trace, shards):
        """Every step has the right number of samples, none twice in an epoch; validations saw each image once."""
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        steps = [line for line in lines if line["kind"] == "step"]
        self.assertEqual(len(steps), STEPS)
        per_epoch = TRAIN // BATCH + 1
        self.assertGreater(last_rows(shards), 0)
        seen = {}
        for step in steps:
            last = (step["step"] + 1) % per_epoch == 0
            self.assertEqual(len(step["ids"]), last_rows(shards) if last else BATCH)
            seen.setdefault(step["epoch"], []).extend(step["ids"])
        for ids in seen.values():
            self.assertEqual(len(set(ids)), len(ids))
            self.assertTrue(set(ids) <= set(range(TRAIN)))
        self.assertGreater(len(seen), 1)
        validations = [line for line in lines if line["kind"] == "val"]
        self.assertGreaterEqual(len(validations), 1)
        self.assertEqual({line["images"] for line in validations}, {VAL})
        weights = {step["weights"] for step in steps}
        self.assertGreater(len(weights), STEPS // 2, "the weights stand still")

    def test_one_and_more_devices(self):
        cases = list(itertools.product(MODELS, device_cli.PRECISIONS, SHARDS))

        def name(case):
            return f"{case[0]}-{case[1]}-v{case[2]}"

        def train(case, ranks):
            model, precision, shards = case
            return self.run_one(f"{name(case)}-np{ranks}", ranks, model=model, precision=precision,
                                logical_shards=shards)

        ones = device_cli.together([functools.partial(train, case, 1) for case in cases])
        for case, one in zip(cases, ones):
            with self.subTest(case=name(case), ranks=1):
                self.check_trace(one, case[2])
        if not self.two_ranks():
            device_cli.say("one GPU: no comparison with two")
            return
        # Between two ranks the library reduces; among four each GPU adds its part with a kernel of our own.
        counts = (2, 4) if len(device_cli.GPUS) >= 4 or device_cli.SHARED else (2,)
        if not device_cli.ON_CPU and 4 not in counts:
            device_cli.say("fewer than four GPUs: the exchange of parts is not compared")
        for (case, one), ranks in itertools.product(zip(cases, ones), counts):
            if case[2] % ranks != 0:
                continue
            with self.subTest(case=name(case), ranks=ranks):
                self.same(one, train(case, ranks), STEPS)
                digests = {self.summary(f"{name(case)}-np{count}")["digest"] for count in (1, ranks)}
                self.assertEqual(len(digests), 1)

    def test_optimizers(self):
        """Adam's corrections, and LARS, whose graphs run on two streams: launches agree, and one device and two."""
        cases = {"adam": {"lr": 0.002}, "adamw": {"lr": 0.002, "weight_decay": 0.1}, "lars": {"lr": 0.5, "lars_eta": 0.01}}

        def train(name, ranks, run):
            return self.run_one(f"{name}-np{ranks}-{run}", ranks, model="cnn-small", precision=device_cli.PRECISIONS[-1],
                                optimizer=name, **cases[name])

        ones = device_cli.together([functools.partial(train, name, 1, run) for name in cases for run in (1, 2)])
        for name, first, second in zip(cases, ones[::2], ones[1::2]):
            with self.subTest(optimizer=name):
                self.check_trace(first, 8)
                self.same(first, second, STEPS)
                if self.two_ranks():
                    self.same(first, train(name, 2, 1), STEPS)

    def test_averages_micro_batches_freezing_and_growth(self):
        """Options that launch other graphs, all at once: the same bits on one device and two, with averages in the trace."""
        model = "cnn-small" if device_cli.ON_CPU else "resnet20"
        precision = "fp32" if device_cli.ON_CPU else "bf16"  # No step is skipped: every average is a new one.
        options = {"model": model, "precision": precision, "ema": 0.9, "accumulate": 2, "logical_shards": 4,
                   "freeze_until": "first@1", "bn_momentum": 0.2}
        if not device_cli.ON_CPU:
            options["resolution"] = "16@0,24@1,28@2,32@3"
        one = self.run_one("all-np1", **options)
        steps = [line for line in map(json.loads, one.read_text().splitlines()) if line["kind"] == "step"]
        self.assertEqual(len({step["ema"] for step in steps}), STEPS)
        self.differs(one, self.run_one("all-decay", **{**options, "ema": 0.8}), "recipe")
        if self.two_ranks():
            self.same(one, self.run_one("all-np2", 2, **options), STEPS)

    def test_overflow_on_one_rank(self):
        """The step is skipped on all ranks, the loss scale halves and grows again."""
        options = {"model": "cnn-small", "precision": device_cli.PRECISIONS[-1], "loss_scale": "dynamic",
                   "loss_scale_interval": 4, "log_every": 1, "steps": 40, "inject_fault": "overflow@20:0"}
        one = self.run_one("overflow-np1", **options)
        lines = [json.loads(line) for line in (self.folder / "overflow-np1" / "metrics.jsonl").read_text().splitlines()]
        scales = [line["loss_scale"] for line in lines if line["kind"] == "train"]
        self.assertEqual(scales[20], scales[19] / 2)
        self.assertGreater(max(scales[21:]), scales[20])
        steps = [line for line in map(json.loads, one.read_text().splitlines()) if line["kind"] == "step"]
        self.assertEqual(steps[20]["weights"], steps[19]["weights"])
        self.assertGreaterEqual(self.summary("overflow-np1")["skipped_steps"], 1)
        if self.two_ranks():
            self.same(one, self.run_one("overflow-np2", 2, **options), 40)

    def test_batch_norm_over_ranks(self):
        """--sync-bn: launches agree to the bit, two ranks with one whose shard is the batch up to rounding."""
        self.require_two_ranks()
        # A few steps: rounding grows from step to step, and the partial batch of two shards has other rows.
        options = {"model": "resnet20", "precision": "fp32", "steps": 4, "lr": 0.002}
        whole = self.run_one("whole", 1, logical_shards=1, **options)
        first, second = (self.run_one(name, 2, logical_shards=2, sync_bn=True, **options) for name in ("first", "second"))
        self.same(first, second, 4)
        apart = self.run_one("apart", 2, logical_shards=2, **options)
        losses = {trace: [struct.unpack("!f", bytes.fromhex(line["loss"]))[0] for line in
                          map(json.loads, trace.read_text().splitlines()) if line["kind"] == "step"]
                  for trace in (whole, first, apart)}
        most = {trace: max(abs(a - b) for a, b in zip(losses[trace], losses[whole])) for trace in (first, apart)}
        device_cli.say(f"--sync-bn on two ranks: losses within {most[first]:.1e} of one rank's, {most[apart]:.1e} without")
        self.assertLess(most[first], 2e-4)
        self.assertGreater(most[apart], 5 * most[first])

    def test_launches_and_plan_cache(self):
        """Launches agree, with warm plans, and with none."""
        precision = device_cli.PRECISIONS[-1]
        model = "cnn-small" if device_cli.ON_CPU else "resnet9"
        train = functools.partial(self.run_one, model=model, precision=precision)
        folders = [self.folder / "plans", self.folder / "none"] if self.takes_cache else [None, None]
        first = train("first", plan_cache=folders[0])
        self.same(first, train("second", plan_cache=folders[0]), STEPS)
        if self.takes_cache:
            shutil.rmtree(folders[0], ignore_errors=True)
        self.same(first, train("deleted", plan_cache=folders[0]), STEPS)
        self.same(first, train("elsewhere", plan_cache=folders[1]), STEPS)

    def test_plans_that_cannot_be_kept(self):
        """The run says so and goes on."""
        self.require_cuda()
        occupied = self.folder / "occupied"
        occupied.write_text("")
        job = device_cli.launch(1, *self.train_words("unkept", self.data, model="cnn-small", steps=2, plan_cache=occupied))
        self.assertIn("kernel plans are not kept", self.succeeds(job))

    def test_regularisation(self):
        """Mixup, cutmix, erasing and dropout: launches agree, one device and two, and mixing tells."""
        options = {"model": "cnn-small", "precision": device_cli.PRECISIONS[-1], "mixup": 0.2, "cutmix": 1,
                   "random_erasing": 0.4, "dropout": 0.2, "init": "kaiming-normal"}
        train = functools.partial(self.run_one, **options)
        one, again, unmixed = device_cli.together([
            functools.partial(train, "mixed"), functools.partial(train, "mixed-again", loader_threads=3),
            functools.partial(train, "unmixed", mixup=0, cutmix=0)])
        self.check_trace(one, 8)
        self.same(one, again, STEPS)
        self.differs(one, unmixed, "recipe")
        if self.two_ranks():
            self.same(one, train("mixed-two", 2), STEPS)

    def test_measured_plans(self):
        """With --kernel-search measure kept plans give the same bits; the header's plan hash tells choices apart."""
        self.require_cuda()
        train = functools.partial(self.run_one, model="resnet9", precision="bf16", kernel_search="measure",
                                  job={"timeout": 200})
        traces = [train(f"measure{i}", plan_cache=self.folder / "measured") for i in range(2)]
        self.same(*traces, STEPS)
        other = train("fresh", plan_cache=self.folder / "measured anew")
        hashes = [json.loads(trace.read_text().splitlines()[0])["kernel_plan"] for trace in (traces[0], other)]
        device_cli.say(f"kernel plans measured twice: {hashes[0]} {hashes[1]}")
        if hashes[0] == hashes[1]:
            self.same(traces[0], other, STEPS)
        else:
            self.assertIn("header differs in 'kernel_plan'", self.compare(traces[0], other).stdout)

    def pack(self, source, name):
        out = self.folder / name
        self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "idx", source, "--out", out, "--shard-samples",
                                     TRAIN // 3]))
        return out

    def test_negative_controls(self):
        idx, changed = self.folder / "idx", self.folder / "changed"
        renai_cli.write_idx(idx, train=TRAIN, val=VAL)
        shutil.copytree(idx, changed)
        change_pixel(changed / "train-images-idx3-ubyte.gz")
        data, pixel, dropped = self.pack(idx, "grey"), self.pack(changed, "pixel"), self.folder / "dropped"
        shutil.copytree(data, dropped)
        manifest = json.loads((dropped / "manifest.json").read_text())
        next(split for split in manifest["splits"] if split["name"] == "train")["shards"].pop()
        (dropped / "manifest.json").write_text(json.dumps(manifest))
        runs = {"base": {}, "again": {}, "data": {"data": pixel}, "dropped": {"data": dropped}, "seed": {"seed": 2},
                "logical_shards": {"logical_shards": 4}}
        if len(device_cli.PRECISIONS) > 1:
            runs["recipe"] = {"precision": "bf16"}
        calls = [functools.partial(self.run_one, "control-" + name, model="cnn-small", **{"data": data, **options})
                 for name, options in runs.items()]
        traces = dict(zip(runs, device_cli.together(calls)))
        self.same(traces["base"], traces["again"], STEPS)
        for name in list(runs)[2:]:
            with self.subTest(control=name):
                self.differs(traces["base"], traces[name], "data" if name == "dropped" else name)


if __name__ == "__main__":
    device_cli.main()
