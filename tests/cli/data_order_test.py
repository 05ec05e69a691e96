#!/usr/bin/env python3
"""--shuffle in its three orders over ranks, threads and restarts; --cache; --read-mode; renai bench data."""

import errno
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

FLAKY = Path(os.environ.get("RENAI_FLAKY_READS", "/nonexistent"))
TRAIN, BATCH, SHARDS, SHARD_SAMPLES = 304, 64, 4, 32
PER_EPOCH = TRAIN // BATCH + 1


def direct_reads_work():
    """Whether the file system of temporary folders has them."""
    with tempfile.NamedTemporaryFile() as file:
        try:
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
        except OSError:
            return False
    return True


class DataOrderTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(TRAIN, 40, "--shard-samples", SHARD_SAMPLES)

    def start(self, name, *words, ranks=1, steps=2 * PER_EPOCH, **keywords):
        return renai_cli.on_ranks(ranks, "train", "--data", self.data, "--run-dir", self.folder / name, "--trace",
                                  self.folder / f"{name}.trace", "--steps", steps, "--global-batch", BATCH,
                                  "--logical-shards", SHARDS, "--model", "lenet5", "--augment", "crop2", *words, **keywords)

    def train(self, name, *words, **keywords):
        self.output = self.succeeds(self.start(name, *words, **keywords))
        return self.folder / f"{name}.trace"

    def compare(self, a, b):
        return renai_cli.run([renai_cli.renai(), "trace-diff", a, b])

    def epochs(self, trace):
        """Sample ids of each epoch, in order."""
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        ids = [line["ids"] for line in lines if line["kind"] == "step"]
        return [sum(ids[i:i + PER_EPOCH], []) for i in range(0, len(ids), PER_EPOCH)]

    def test_orders(self):
        seen = {}
        for order in (["global"], ["block", "--shuffle-window", "3"], ["none"]):
            words = ["--shuffle", *order]
            one = self.train(f"{order[0]}1", *words)
            for ranks, threads in ((2, 1), (4, 3)):
                other = self.train(f"{order[0]}{ranks}", *words, "--loader-threads", threads, ranks=ranks)
                self.assertIn("identical", self.succeeds(self.compare(one, other)))
            seen[order[0]] = self.epochs(one)
            for ids in seen[order[0]]:
                self.assertEqual(sorted(ids), list(range(TRAIN)))
        self.assertEqual(seen["none"], [list(range(TRAIN))] * 2)
        self.assertNotEqual(seen["global"][0], seen["global"][1])
        self.assertNotEqual(seen["block"][0], seen["block"][1])
        # A window of block order holds the samples of three shards, the last shard may be a short one.
        first = [i // SHARD_SAMPLES for i in seen["block"][0][:2 * SHARD_SAMPLES]]
        self.assertLessEqual(len(set(first)), 3)
        self.assertGreater(len({i // SHARD_SAMPLES for i in seen["global"][0][:2 * SHARD_SAMPLES]}), 6)
        text = self.fails(self.compare(self.folder / "global1.trace", self.folder / "block1.trace"), 1)
        self.assertIn("recipe", text)

    def test_a_restart_goes_on_in_the_same_order(self):
        words = ["--shuffle", "block", "--shuffle-window", "2", "--checkpoint-every", "3"]
        self.train("whole", *words)
        checkpoint = self.folder / "whole/checkpoints/step-00000006.h5"
        self.train("resumed", *words, "--resume", checkpoint, ranks=2)
        digests = [json.loads((self.folder / name / "summary.json").read_text())["digest"] for name in ("whole", "resumed")]
        self.assertEqual(digests[0], digests[1])
        self.fails(self.start("other", "--resume", checkpoint), 2, 'shuffle = "block"')
        self.fails(self.start("other", "--shuffle", "block", "--shuffle-window", "3", "--resume", checkpoint), 2,
                   "shuffle-window = 2")

    def test_contradictions_are_refused(self):
        self.fails(self.start("a", "--shuffle", "blocks"), 2, "did you mean 'block'?")
        self.fails(self.start("a", "--shuffle-window", "3"), 2, "only --shuffle block has a window")
        self.fails(self.start("a", "--shuffle", "block", "--shuffle-window", "0"), 2, "--shuffle-window 0")

    def test_cache_changes_nothing_but_says_what_it_holds(self):
        plain = self.train("plain")
        cached = self.train("cached", "--cache", ranks=2)
        self.assertRegex(self.output, r"cache: \d.* of 12 shards in memory")
        self.assertIn("identical", self.succeeds(self.compare(plain, cached)))

    @unittest.skipUnless(direct_reads_work(), "the file system refuses direct reads")
    def test_direct_reads_change_nothing(self):
        for order in ("global", "block", "none"):
            one = self.train(f"cached-{order}", "--shuffle", order, "--read-mode", "cached")
            other = self.train(f"direct-{order}", "--shuffle", order, "--read-mode", "direct", "--loader-threads", 3, ranks=2)
            self.assertIn("read past the page cache", self.output)
            self.assertIn("identical", self.succeeds(self.compare(one, other)))
        with h5py.File(self.data / "train-00000-of-00010.h5", "r+") as file:
            images = file["images"][()]
            del file["images"]
            file.create_dataset("images", data=images, chunks=(1, 28, 28, 1))
        self.fails(self.start("chunked", "--read-mode", "direct"), 2, "train-00000-of-00010.h5", "chunked", "--read-mode cached")

    def test_ways_to_read_that_contradict_are_refused(self):
        self.fails(self.start("a", "--read-mode", "dirct"), 2, "did you mean 'direct'?")
        self.fails(self.start("a", "--read-mode", "direct", "--cache"), 2, "--cache with --read-mode direct")
        self.fails(renai_cli.run([renai_cli.renai(), "bench", "data", self.data, "--read-mode", "no"]), 2, "--read-mode no")
        self.train("b", "--read-mode", "auto", "--cache")
        self.assertIn("in memory", self.output)

    @unittest.skipUnless(FLAKY.exists(), "the library of failing reads is not built")
    def test_direct_reads_that_are_refused_short_or_fail_for_a_moment(self):
        refusing = renai_cli.environment(LD_PRELOAD=str(FLAKY), NO_DIRECT_READS="1")
        self.fails(self.start("refused", "--read-mode", "direct", env=refusing), 2, "train-00000-of-", "Invalid argument",
                   "--read-mode cached")
        self.succeeds(self.start("refused", "--read-mode", "auto", env=refusing))
        if not direct_reads_work():
            return
        plain = self.train("plain", "--shuffle", "none")
        words = ["--shuffle", "none", "--read-mode", "direct"]
        self.train("short", *words, env=renai_cli.environment(LD_PRELOAD=str(FLAKY), SHORT_READS="4096"))
        self.assertIn("identical", self.succeeds(self.compare(plain, self.folder / "short.trace")))
        self.train("moment", *words, env=renai_cli.environment(LD_PRELOAD=str(FLAKY), FLAKY_READS=f"{errno.EIO}:3"))
        self.assertIn("identical", self.succeeds(self.compare(plain, self.folder / "moment.trace")))
        env = renai_cli.environment(LD_PRELOAD=str(FLAKY), FLAKY_READS=f"{errno.EACCES}:-1")
        self.fails(self.start("broken", *words, env=env), 4, ".h5", "offset", "Permission denied")

    def bench(self, data, *words):
        return json.loads(self.succeeds(renai_cli.run([renai_cli.renai(), "bench", "data", data, "--images", 300, "--json",
                                                       *words])))

    def test_bench_data_on_pixels_and_on_jpeg_images(self):
        raw = self.bench(self.data, "--threads", 2, "--need", 1)
        self.assertEqual([stage["stage"] for stage in raw["stages"]], ["read", "augment", "stage", "copy"])
        self.assertTrue(raw["same_pixels"] and raw["enough"])
        self.assertEqual(raw["mean_stored_bytes"], 28 * 28)
        self.assertEqual(self.bench(self.data, "--threads", 1)["digest"], raw["digest"])
        self.assertFalse(self.bench(self.data, "--need", 1e12)["enough"])
        # The same samples for any number of threads: exactly so many, the last stage in whole batches of 32.
        for threads in (1, 5):
            stages = self.bench(self.data, "--threads", threads)["stages"]
            self.assertEqual([stage["images"] for stage in stages[:3]], [300, 300, 304])
            self.assertTrue(all(stage["page_faults"] >= 0 for stage in stages))
            self.assertEqual(stages[0]["reads"], 300)
        # Neighbours are read together where the order has neighbours.
        reads = {order: self.bench(self.data, "--shuffle", order, "--threads", 1)["stages"][2]["reads"]
                 for order in ("none", "global", "block")}
        self.assertLess(reads["none"], 150)
        self.assertGreater(min(reads["global"], reads["block"]), 200)
        if direct_reads_work():
            direct = self.bench(self.data, "--read-mode", "direct")
            self.assertEqual((direct["digest"], direct["read_mode"]), (raw["digest"], "direct"))
        for c in range(2):
            (self.folder / f"in/{c}").mkdir(parents=True)
            for i in range(6):
                rows, columns = numpy.mgrid[0:50 + i, 0:70]
                values = numpy.stack([rows * (c + 2) % 256, columns * 3 % 256, rows + columns], axis=-1).astype(numpy.uint8)
                stream = io.BytesIO()
                Image.fromarray(values).save(stream, "JPEG")
                (self.folder / f"in/{c}/{i}.jpg").write_bytes(stream.getvalue())
        jpeg = self.folder / "jpeg"
        self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "folder", self.folder / "in", "--out", jpeg, "--size", 32]))
        found = self.bench(jpeg, "--threads", 2, "--augment", "resized-crop,flip,colour")
        self.assertEqual([stage["stage"] for stage in found["stages"]], ["read", "decode", "augment", "stage", "copy"])
        self.assertTrue(all(stage["images_per_second"] > 0 and stage["limit"] for stage in found["stages"]))
        # Taking memory for the staging buffers, 43 MB here, is no part of what is measured.
        self.assertLess(self.bench(jpeg, "--threads", 2, "--size", 224)["stages"][3]["page_faults"], 5000)
        self.assertEqual(found["digest"], self.bench(jpeg, "--threads", 5, "--augment", "resized-crop,flip,colour")["digest"])
        text = self.succeeds(renai_cli.run([renai_cli.renai(), "bench", "data", jpeg, "--images", 50, "--need", 10]))
        self.assertIn("training needs 10 images/s: enough", text)
        self.fails(renai_cli.run([renai_cli.renai(), "bench", "data", jpeg, "--augment", "crop4"]), 2, "resized-crop")
        points = self.bench(jpeg, "--threads", 3, "--scaling")["scaling"]
        self.assertEqual([point["threads"] for point in points], [1, 2, 3])
        for point in points:
            self.assertEqual(list(point), ["threads", "decode", "stage", "libjpeg", "registers"])
            self.assertTrue(all(point[name]["per_second"] > 0 for name in list(point)[1:]))
        self.assertTrue(all(points[0][name]["of_linear"] == 1 for name in list(points[0])[1:]))
        self.assertAlmostEqual(points[2]["stage"]["of_linear"],
                               points[2]["stage"]["per_second"] / points[0]["stage"]["per_second"] / 3)
        text = self.succeeds(renai_cli.run([renai_cli.renai(), "bench", "data", jpeg, "--images", 20, "--threads", 2,
                                            "--scaling"]))
        self.assertRegex(text, r"threads +decode/s +stage/s +libjpeg/s +registers/s\n1 .*\n2 ")
        # The end of an image is damaged, where no crop may look: the loop of libjpeg-turbo alone would end the program.
        image = (self.folder / "in/1/3.jpg").read_bytes()
        shard = next(path for path in jpeg.iterdir() if path.suffix == ".h5" and image in path.read_bytes())
        shard.write_bytes(shard.read_bytes().replace(image, image[:-40] + bytes(40)))
        self.fails(renai_cli.run([renai_cli.renai(), "bench", "data", jpeg, "--images", 20, "--scaling"]), 3,
                   "cannot be decoded")
        self.fails(renai_cli.run([renai_cli.renai(), "bench", "data", self.folder / "no"]), 2, "no such folder")

    def test_a_set_written_by_h5py_and_a_folder_train(self):
        """The README's data set by hand."""
        hand = self.folder / "hand"
        hand.mkdir()
        images = numpy.random.default_rng(0).integers(0, 256, (64, 28, 28, 1), dtype=numpy.uint8)
        with h5py.File(hand / "all.h5", "w") as file:
            file["images"], file["labels"] = images, numpy.arange(64, dtype=numpy.int32) % 10
        manifest = {"format": "renai-dataset", "format_version": 1, "name": "hand", "encoding": "raw", "height": 28,
                    "width": 28, "channels": 1, "classes": [str(i) for i in range(10)], "mean": [float(images.mean())],
                    "std": [float(images.std())], "splits": [{"name": "train", "shards": [{"file": "all.h5", "samples": 64}]}]}
        (hand / "manifest.json").write_text(json.dumps(manifest))
        self.succeeds(renai_cli.run([renai_cli.renai(), "verify", "--adopt", hand]))
        self.data = hand
        self.train("hand-run", ranks=2, steps=2)


if __name__ == "__main__":
    renai_cli.main()
