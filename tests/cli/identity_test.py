#!/usr/bin/env python3
"""The same bits on any number of ranks, loader threads and after a restart; and the controls that must break them."""

import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

TRAIN, VAL, BATCH, SHARDS, STEPS = 300, 70, 64, 8, 12


class IdentityTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        renai_cli.write_idx(self.folder / "idx", train=TRAIN, val=VAL)
        self.data = self.pack("idx", "data")

    def pack(self, source, name):
        out = self.folder / name
        self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "idx", self.folder / source, "--out", out,
                                     "--shard-samples", 64]))
        return out

    def train(self, name, ranks=1, data=None, **options):
        trace = self.folder / f"{name}.trace"
        words = ["train", "--data", data or self.data, "--run-dir", self.folder / name, "--trace", trace, "--steps", STEPS,
                 "--global-batch", BATCH, "--model", "cnn-small", "--verify-every", 5, "--augment", "crop2,flip"]
        for key, value in options.items():
            words += ["--" + key.replace("_", "-"), value]
        self.succeeds(renai_cli.on_ranks(ranks, *words))
        return trace

    def compare(self, a, b):
        return renai_cli.run([renai_cli.renai(), "trace-diff", a, b])

    def same(self, a, b):
        self.identical(a, b, STEPS)

    def test_ranks_and_loader_threads(self):
        one = self.train("np1")
        for ranks in (2, 4, 8):
            self.same(one, self.train(f"np{ranks}", ranks))
        for threads in (2, 5):
            self.same(one, self.train(f"loaders{threads}", loader_threads=threads))
        self.same(one, self.train("buckets", 2, bucket_mib="0.01"))
        digests = {json.loads((self.folder / name / "summary.json").read_text())["digest"]
                   for name in ("np1", "np2", "np4", "np8", "loaders5", "buckets")}
        self.assertEqual(len(digests), 1)
        self.check_ids(one)

    def test_regularisation(self):
        """Mixup, cutmix, erasing and dropout on top: ranks, loader threads, a restart, another seed."""
        options = {"mixup": 0.2, "cutmix": 1, "random_erasing": 0.4, "dropout": 0.2, "init": "trunc-normal"}
        one = self.train("all-np1", **options)
        for ranks in (2, 4):
            self.same(one, self.train(f"all-np{ranks}", ranks, **options))
        self.same(one, self.train("all-loaders3", loader_threads=3, checkpoint_every=7, **options))
        whole = json.loads((self.folder / "all-loaders3" / "summary.json").read_text())["digest"]
        checkpoint = self.folder / "all-loaders3" / "checkpoints" / "step-00000007.h5"
        self.train("all-resumed", 2, resume=checkpoint, **options)
        self.assertEqual(json.loads((self.folder / "all-resumed" / "summary.json").read_text())["digest"], whole)
        self.differs(one, self.train("all-seed", seed=2, **options), "'seed'")
        # Partners come from the same micro-batch, and each of them draws for itself.
        parts = self.train("all-parts-np1", accumulate=2, **options)
        self.same(parts, self.train("all-parts-np4", 4, accumulate=2, loader_threads=3, **options))
        self.differs(one, parts, "'recipe'")
        for key, value in (("mixup", 0.4), ("cutmix", 0), ("random_erasing", 0), ("dropout", 0.3), ("init", "model")):
            self.differs(one, self.train(f"all-but-{key}", **{**options, key: value}), "'recipe'")

    def check_ids(self, trace):
        """Each epoch: no id twice, fewer than V left out, other ones each time; every step the right number."""
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        steps = [line for line in lines if line["kind"] == "step"]
        self.assertEqual(len(steps), STEPS)
        self.assertGreaterEqual(len([line for line in lines if line["kind"] == "val"]), 2)
        per_epoch = TRAIN // BATCH + 1
        last = TRAIN % BATCH // SHARDS * SHARDS
        orders, dropped = [], []
        for epoch in range(STEPS // per_epoch):
            ids = []
            for step in steps[epoch * per_epoch:(epoch + 1) * per_epoch]:
                self.assertEqual(step["epoch"], epoch)
                self.assertEqual(len(step["ids"]), last if (step["step"] + 1) % per_epoch == 0 else BATCH)
                ids += step["ids"]
            self.assertEqual(len(set(ids)), len(ids))
            self.assertTrue(set(ids) <= set(range(TRAIN)))
            missing = set(range(TRAIN)) - set(ids)
            self.assertLess(len(missing), SHARDS)
            orders.append(ids)
            dropped.append(missing)
        self.assertNotEqual(orders[0], orders[1])
        self.assertNotEqual(dropped[0], dropped[1])

    def test_negative_controls(self):
        one = self.train("base")
        shutil.copytree(self.folder / "idx", self.folder / "idx2")
        self.change_pixel(self.folder / "idx2" / "train-images-idx3-ubyte.gz")
        self.differs(one, self.train("pixel", data=self.pack("idx2", "data2")), "'data'")
        self.differs(one, self.train("seed", seed=2), "'seed'")
        self.differs(one, self.train("shards", logical_shards=4), "'logical_shards'")
        dropped = self.folder / "dropped"
        shutil.copytree(self.data, dropped)
        manifest = json.loads((dropped / "manifest.json").read_text())
        splits = manifest["splits"]
        train = splits["train"] if isinstance(splits, dict) else next(s for s in splits if s["name"] == "train")
        shards = train["shards"] if isinstance(train, dict) else train
        shards.pop()
        if isinstance(train, dict) and "samples" in train:
            train["samples"] = sum(shard["samples"] for shard in shards)
        (dropped / "manifest.json").write_text(json.dumps(manifest))
        self.differs(one, self.train("dropped-run", data=dropped), "'data'")

    OPTIMIZERS = {"adam": {"lr": 0.002}, "adamw": {"lr": 0.002, "weight_decay": 0.1},
                  "lars": {"lr": 0.5, "lars_eta": 0.01}}

    def test_optimizers_on_any_number_of_ranks(self):
        traces = {}
        for optimizer, options in self.OPTIMIZERS.items():
            one = traces[optimizer] = self.train(optimizer, optimizer=optimizer, **options)
            for ranks in (2, 4):
                self.same(one, self.train(f"{optimizer}-np{ranks}", ranks, optimizer=optimizer, **options))
            self.same(one, self.train(f"{optimizer}-buckets", 2, optimizer=optimizer, bucket_mib="0.01", **options))
        self.differs(traces["adam"], self.train("beta2", optimizer="adam", beta2=0.998, **self.OPTIMIZERS["adam"]),
                     "'recipe'")
        self.differs(traces["lars"], self.train("eps", optimizer="lars", lars_eps=0.001, **self.OPTIMIZERS["lars"]),
                     "'recipe'")

    def test_optimizers_go_on_after_a_restart(self):
        for optimizer, options in self.OPTIMIZERS.items():
            one = self.train(f"{optimizer}-whole", optimizer=optimizer, **options)
            fault = {"checkpoint_every": 7, "optimizer": optimizer, **options}
            run_dir, trace = self.folder / f"{optimizer}-halves", self.folder / f"{optimizer}-halves.trace"
            words = ["train", "--data", self.data, "--run-dir", run_dir, "--trace", trace, "--steps", STEPS,
                     "--global-batch", BATCH, "--model", "cnn-small", "--verify-every", 5, "--augment", "crop2,flip"]
            for key, value in fault.items():
                words += ["--" + key.replace("_", "-"), value]
            self.assertNotEqual(renai_cli.on_ranks(1, *words, "--inject-fault", "exit@9:0").returncode, 0)
            self.succeeds(renai_cli.on_ranks(2, *words, "--resume", "auto"))
            self.same(one, trace)

    def change_pixel(self, path):
        import gzip
        raw = bytearray(gzip.decompress(path.read_bytes()))
        raw[16 + 28 * 14 + 14] ^= 1
        path.write_bytes(gzip.compress(bytes(raw), compresslevel=1))

    def differs(self, a, b, header):
        process = self.compare(a, b)
        self.fails(process, 1, "first difference at step")
        if header:
            self.assertIn("header differs in " + header, process.stdout)

    def test_resume_on_another_number_of_ranks(self):
        whole = self.folder / "whole"
        self.train("whole", checkpoint_every=7)
        digest = json.loads((whole / "summary.json").read_text())["digest"]
        halves = self.folder / "halves"
        words = ["train", "--data", self.data, "--run-dir", halves, "--steps", STEPS, "--global-batch", BATCH, "--model",
                 "cnn-small", "--augment", "crop2,flip", "--checkpoint-every", 7, "--verify-every", 5]
        # Rank 0 of the first run goes at step 9, behind the checkpoint of step 7.
        process = renai_cli.on_ranks(1, *words, "--inject-fault", "exit@9:0")
        self.assertNotEqual(process.returncode, 0, process.stdout)
        self.assertEqual((halves / "checkpoints" / "latest").read_text().strip(), "step-00000007.h5")
        self.succeeds(renai_cli.on_ranks(4, *words, "--resume", "auto"))
        summary = json.loads((halves / "summary.json").read_text())
        self.assertEqual(summary["digest"], digest)
        self.assertEqual(summary["steps"], STEPS)
        self.fails(renai_cli.on_ranks(1, *words, "--resume", "auto", "--lr", "0.01"), 2, "lr = ", "--init-from")


if __name__ == "__main__":
    renai_cli.main()
