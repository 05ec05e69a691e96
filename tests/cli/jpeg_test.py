#!/usr/bin/env python3
"""Training on photographs as they are: a set of JPEG images written by h5py alone, the same bits on any number of ranks and
loader threads and after a restart, evaluation of its checkpoint, and damage that is named."""

import errno
import io
import json
import os
import sys
import unittest
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

FLAKY = Path(os.environ.get("RENAI_FLAKY_READS", "/nonexistent"))
CLASSES, TRAIN, VAL, SHARD, SIZE, STEPS, BATCH = 4, 90, 24, 40, 24, 8, 16
AUGMENT = "resized-crop,flip,colour"


def picture(index):
    """A JPEG of a size, kind and orientation of its own; its class shows in its colours."""
    random = np.random.default_rng(index)
    height, width = (int(side) for side in random.integers(20, 90, 2))
    y, x = np.mgrid[0:height, 0:width]
    label = index % CLASSES
    planes = [110 + 80 * np.sin(x / (3.0 + label) + k * label) * np.cos(y / (5.0 + k)) for k in range(3)]
    pixels = np.clip(np.stack(planes, 2) + random.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    if index % 11 == 3:
        image = image.convert("L")
    if index % 13 == 5:
        image = image.convert("CMYK")
    exif = Image.Exif()
    exif[0x0112] = index % 9 or 1
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85, progressive=index % 3 == 0, subsampling=index % 3, exif=exif.tobytes())
    return file.getvalue()


def write_shard(path, split, images, labels):
    ends = np.cumsum([len(image) for image in images])
    with h5py.File(path, "w") as file:
        file.attrs["encoding"] = "jpeg"
        file.attrs["split"] = split
        file["labels"] = np.array(labels, np.int32)
        file["image_offsets"] = np.concatenate([[0], ends]).astype(np.uint64)
        file["image_bytes"] = np.frombuffer(b"".join(images), np.uint8)


def write_set(folder, chunked=False):
    """As the README says that another program may."""
    folder.mkdir()
    splits = []
    for split, first, count in (("train", 0, TRAIN), ("val", 1000, VAL)):
        shards = []
        for start in range(0, count, SHARD):
            indices = range(first + start, first + min(start + SHARD, count))
            name = f"{split}-{start // SHARD:05d}.h5"
            write_shard(folder / name, split, [picture(i) for i in indices], [i % CLASSES for i in indices])
            if chunked:
                with h5py.File(folder / name, "r+") as file:
                    data = file["image_bytes"][...]
                    del file["image_bytes"]
                    file.create_dataset("image_bytes", data=data, chunks=(777,), compression="gzip")
            shards.append({"file": name, "samples": len(indices)})
        splits.append({"name": split, "shards": shards})
    manifest = {"format": "renai-dataset", "format_version": 1, "name": "pictures", "encoding": "jpeg", "height": SIZE,
                "width": SIZE, "channels": 3, "classes": [f"class {i}" for i in range(CLASSES)],
                "mean": [110, 110, 110], "std": [60, 60, 60], "splits": splits}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


class JpegTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = write_set(self.folder / "set")

    def words(self, name, data=None, **options):
        options = {"model": "cnn-small", "steps": STEPS, "augment": AUGMENT, **options}
        words = ["train", "--data", data or self.data, "--run-dir", self.folder / name, "--trace", self.trace(name),
                 "--global-batch", BATCH, "--logical-shards", 4, "--lr", 0.02, "--device", "cpu"]
        for key, value in options.items():
            words += ["--" + key.replace("_", "-")] + ([] if value is True else [value])
        return words

    def trace(self, name):
        return self.folder / f"{name}.trace"

    def train(self, name, ranks=1, **options):
        self.succeeds(renai_cli.on_ranks(ranks, *self.words(name, **options)))
        return self.trace(name)

    def same(self, a, b):
        self.identical(a, b, STEPS)

    def digest(self, name):
        return json.loads((self.folder / name / "summary.json").read_text())["digest"]

    def test_ranks_threads_restart_and_evaluation(self):
        one = self.train("np1", checkpoint_every=3)
        for ranks in (2, 4):
            self.same(one, self.train(f"np{ranks}", ranks, loader_threads=ranks - 1))
        self.same(one, self.train("loaders16", loader_threads=16))
        checkpoint = self.folder / "np1" / "checkpoints" / "step-00000003.h5"
        self.train("resumed", 2, resume=checkpoint)
        self.assertEqual(self.digest("resumed"), self.digest("np1"))
        summary = json.loads((self.folder / "np1" / "summary.json").read_text())
        result = renai_cli.run([renai_cli.renai(), "eval", "--checkpoint",
                                self.folder / "np1" / "checkpoints" / f"step-{STEPS:08d}.h5", "--data", self.data, "--json"])
        line = [line for line in self.succeeds(result).splitlines() if line.startswith("{")][-1]
        self.assertEqual(json.loads(line)["images"], VAL)
        self.assertEqual(json.loads(line)["top1"], summary["val_top1"])
        for name, options in (("seed", {"seed": 2}), ("scale", {"augment": "resized-crop0.5,flip,colour"}),
                              ("colour", {"augment": "resized-crop,flip"}), ("size", {"resolution": 32})):
            self.train(name, **options)
            self.assertNotEqual(self.digest(name), self.digest("np1"), name)

    def test_validation_crop_is_the_checkpoints(self):
        self.train("part", steps=2, val_crop=0.5)
        self.train("usual", steps=2)
        losses = []
        for name in ("part", "usual"):
            records = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
            trained = [record for record in records if record["kind"] == "val"][-1]["loss"]
            result = renai_cli.run([renai_cli.renai(), "eval", "--checkpoint",
                                    self.folder / name / "checkpoints" / "step-00000002.h5", "--json"])
            line = [line for line in self.succeeds(result).splitlines() if line.startswith("{")][-1]
            self.assertEqual(json.loads(line)["loss"], trained)
            losses.append(trained)
        self.assertEqual(self.digest("part"), self.digest("usual"))
        self.assertNotEqual(*losses)

    def test_progressive_resolution(self):
        net = renai_cli.SOURCE / "tests" / "golden" / "ema_net.toml"  # Its weights do not depend on the resolution.
        options = {"model": net, "resolution": "16@0,24@1", "val_resolution": 32}
        one = self.train("rising1", **options)
        self.same(one, self.train("rising2", 2, loader_threads=3, **options))

    def test_chunked_shards_are_read_through_the_library(self):
        chunked = write_set(self.folder / "chunked", chunked=True)
        self.assertIn("library", self.succeeds(renai_cli.run([renai_cli.renai(), "inspect", chunked / "train-00000.h5"])))
        self.train("direct")
        self.train("chunked-run", data=chunked, loader_threads=3)
        self.assertEqual(self.digest("chunked-run"), self.digest("direct"))

    def test_damage_is_named(self):
        shard = self.data / "train-00001.h5"
        with h5py.File(shard, "r") as file:
            offsets = file["image_offsets"][...]
            place = file["image_bytes"].id.get_offset()
        original = shard.read_bytes()
        cut = place + int(offsets[7] + offsets[8]) // 2
        # Zeros to the end of one image: its codes run out or make no sense.
        shard.write_bytes(original[:cut] + b"\xff\xd9" * ((place + int(offsets[8]) - cut) // 2) +
                          original[cut + 2 * ((place + int(offsets[8]) - cut) // 2):])
        self.fails(renai_cli.on_ranks(2, *self.words("damaged", augment="flip", epochs=1, steps=0)), 3, "train-00001.h5",
                   "sample 7", "cannot be decoded")
        shard.write_bytes(original[:-200])
        self.fails(renai_cli.on_ranks(1, *self.words("truncated")), 3, "train-00001.h5")
        shard.unlink()
        self.fails(renai_cli.on_ranks(1, *self.words("missing")), 3, "train-00001.h5")

    def test_damage_of_a_compressed_set_is_named(self):
        chunked = write_set(self.folder / "chunked", chunked=True)
        shard = chunked / "train-00001.h5"
        original = shard.read_bytes()

        def refused(*texts):
            train = self.words("damaged", data=chunked, augment="flip", epochs=1, steps=0)
            for words in (train, ["inspect", shard], ["verify", "--adopt", shard]):
                self.fails(renai_cli.run([renai_cli.renai(), *words]), 3, shard.name, *texts)

        for total in (2 ** 29, 2 ** 40):
            with h5py.File(shard, "r+") as file:
                data, last = file["image_bytes"][...], len(file["labels"]) - 1
                del file["image_bytes"]
                file.create_dataset("image_bytes", data=data, chunks=(777,), maxshape=(None,), compression="gzip")
                file["image_bytes"].resize((total,))
                file["image_offsets"][-1] = total
            refused(f"sample {last} ", str(total), "damaged")
            shard.write_bytes(original)
        with h5py.File(shard, "r+") as file:
            for name, count in (("labels", 2 ** 38), ("image_offsets", 2 ** 38 + 1)):
                data = file[name][...]
                del file[name]
                file.create_dataset(name, data=data, chunks=(16,), maxshape=(None,), compression="gzip")
                file[name].resize((count,))
        refused("'labels'", str(2 ** 38), "damaged")
        shard.write_bytes(original)
        with h5py.File(shard, "r") as file:
            chunk = file["image_bytes"].id.get_chunk_info(9)
            sample = int(np.searchsorted(file["image_offsets"][...], chunk.chunk_offset[0], side="right")) - 1
        damaged = bytearray(original)
        damaged[chunk.byte_offset + chunk.size // 2] ^= 0x55
        shard.write_bytes(damaged)
        self.fails(renai_cli.run([renai_cli.renai(), "verify", "--adopt", shard]), 3, shard.name, f"sample {sample} ")
        self.fails(renai_cli.run([renai_cli.renai(), *self.words("damaged", data=chunked, augment="flip", epochs=1, steps=0)]),
                   3, shard.name, "reading sample")

    def test_a_flipped_byte_is_found_by_its_digest(self):
        self.fails(renai_cli.on_ranks(1, *self.words("bare", verify_data=True)), 3, "verify --adopt")
        self.succeeds(renai_cli.run([renai_cli.renai(), "verify", "--adopt", self.data]))
        self.train("checked", verify_data=True)
        self.train("unchecked")
        self.assertEqual(self.digest("checked"), self.digest("unchecked"))
        shard = self.data / "train-00000.h5"
        with h5py.File(shard, "r") as file:
            place = file["image_bytes"].id.get_offset() + int(file["image_offsets"][10]) - 30
        damaged = bytearray(shard.read_bytes())
        damaged[place] ^= 4
        shard.write_bytes(damaged)
        self.fails(renai_cli.on_ranks(2, *self.words("flipped", verify_data=True, epochs=1, steps=0)), 3, "train-00000.h5",
                   "sample 9", "digest")
        self.fails(renai_cli.run([renai_cli.renai(), "verify", self.data]), 3, "train-00000.h5", "sample 9")
        damaged[place] ^= 4
        with h5py.File(shard, "r") as file:
            damaged[file["labels"].id.get_offset() + 4 * 11] ^= 1
        shard.write_bytes(damaged)
        self.fails(renai_cli.on_ranks(2, *self.words("relabelled", verify_data=True, epochs=1, steps=0)), 3, "train-00000.h5",
                   "sample 11", "its label")

    def test_an_evaluation_finds_a_flipped_byte_too(self):
        self.succeeds(renai_cli.run([renai_cli.renai(), "verify", "--adopt", self.data]))
        self.train("run")
        checkpoint = max((self.folder / "run" / "checkpoints").glob("*.h5"))
        words = ["eval", "--device", "cpu", "--checkpoint", checkpoint, "--verify-data"]
        self.assertEqual(self.succeeds(renai_cli.on_ranks(2, *words)), self.succeeds(renai_cli.on_ranks(2, *words[:-1])))
        shard = next(self.data.glob("val-*.h5"))
        with h5py.File(shard, "r") as file:
            place = file["image_bytes"].id.get_offset() + int(file["image_offsets"][3]) - 30
        damaged = bytearray(shard.read_bytes())
        damaged[place] ^= 4
        shard.write_bytes(damaged)
        self.fails(renai_cli.on_ranks(2, *words), 3, shard.name, "sample 2", "digest")

    @unittest.skipUnless(FLAKY.exists(), "the library of failing reads is not built")
    def test_reads_that_fail_for_a_moment_are_tried_again(self):
        self.train("steady")
        for number, name in ((errno.EIO, "io"), (errno.ESTALE, "stale"), (errno.EINTR, "signal")):
            env = renai_cli.environment(LD_PRELOAD=str(FLAKY), FLAKY_READS=f"{number}:3")
            self.succeeds(renai_cli.run([renai_cli.renai(), *self.words(name)], env=env))
            self.assertEqual(self.digest(name), self.digest("steady"))
        for number, said in ((errno.EIO, "asking again"), (errno.EACCES, "Permission denied")):
            env = renai_cli.environment(LD_PRELOAD=str(FLAKY), FLAKY_READS=f"{number}:-1")
            self.fails(renai_cli.run([renai_cli.renai(), *self.words(f"broken-{number}")], env=env), 4, ".h5", "offset",
                       f"errno {number}", said)

    @unittest.skipUnless(FLAKY.exists(), "the library of failing reads is not built")
    def test_reads_through_the_library_that_fail_are_no_damage(self):
        chunked = write_set(self.folder / "chunked", chunked=True)
        env = renai_cli.environment(LD_PRELOAD=str(FLAKY), FLAKY_READS=f"{errno.EIO}:-1")
        self.fails(renai_cli.run([renai_cli.renai(), *self.words("broken", data=chunked)], env=env), 4, ".h5",
                   "Input/output error")

    def test_raw_images_are_cropped_and_coloured_too(self):
        raw = self.folder / "raw"
        self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "synthetic", "--train", 120, "--val", 24, "--out", raw]))
        one = self.train("raw1", data=raw)
        self.same(one, self.train("raw4", 4, data=raw, loader_threads=3))
        self.train("raw-flip", data=raw, augment="resized-crop,flip")
        self.train("raw-part", data=raw, val_crop=0.5)
        self.assertNotEqual(self.digest("raw-flip"), self.digest("raw1"))
        self.assertEqual(self.digest("raw-part"), self.digest("raw1"))
        grey = self.folder / "grey"
        self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "synthetic", "--train", 64, "--val", 24, "--channels", 1,
                                     "--out", grey]))
        self.fails(renai_cli.on_ranks(1, *self.words("grey-run", data=grey)), 2, "colour", "1 channel")

    def test_what_such_images_cannot_do_is_refused(self):
        self.fails(renai_cli.on_ranks(1, *self.words("padded", augment="crop4,flip")), 2, "--augment crop4,flip",
                   "resized-crop")
        self.fails(renai_cli.on_ranks(1, *self.words("twice", augment="crop4,resized-crop")), 2, "resized-crop")
        self.fails(renai_cli.on_ranks(1, *self.words("val", val_crop=1.5)), 2, "--val-crop")


if __name__ == "__main__":
    renai_cli.main()
