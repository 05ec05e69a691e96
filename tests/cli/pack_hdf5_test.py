#!/usr/bin/env python3
"""renai pack hdf5 on files written by h5py in every layout and number type; divided sets; CIFAR's class names."""

import json
import os
import sys
from pathlib import Path

import h5py
import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

COUNT, HEIGHT, WIDTH, CHANNELS, CLASSES = 40, 9, 11, 3, 5


def make_images(seed=0):
    values = numpy.random.default_rng(seed).integers(0, 256, (COUNT, HEIGHT, WIDTH, CHANNELS), dtype=numpy.uint8)
    return values, (numpy.arange(COUNT) * 7 % CLASSES).astype(numpy.int64)


def read_set(out, split):
    """(pixels, labels) of a packed split."""
    manifest = json.loads((Path(out) / "manifest.json").read_text())
    images, labels = [], []
    for info in next(s for s in manifest["splits"] if s["name"] == split)["shards"]:
        with h5py.File(Path(out) / info["file"], "r") as file:
            images.append(file["images"][:])
            labels.append(file["labels"][:])
    return numpy.concatenate(images), numpy.concatenate(labels)


class PackHdf5Test(renai_cli.FolderTest):
    number = 0

    def pack(self, arrays, *options, ranks=0, kind="hdf5"):
        """Writes the arrays into a file and packs it; returns the finished process. The set is self.out."""
        self.number += 1
        path, self.out = self.folder / f"in{self.number}.h5", self.folder / f"out{self.number}"
        with h5py.File(path, "w") as file:
            for name, value in arrays.items():
                if isinstance(value, tuple):
                    file.create_dataset(name, data=value[0], **value[1])
                else:
                    file[name] = value
        words = ["pack", kind, path, "--out", self.out, *options]
        return renai_cli.on_ranks(ranks, *words) if ranks else renai_cli.run([renai_cli.renai(), *words])

    def check(self, process, images, labels, split="train"):
        self.succeeds(process)
        found, found_labels = read_set(self.out, split)
        numpy.testing.assert_array_equal(found, images)
        numpy.testing.assert_array_equal(found_labels, labels)

    def test_layouts_and_number_types(self):
        images, labels = make_images()
        planes = images.transpose(0, 3, 1, 2)
        size = ["--height", HEIGHT, "--width", WIDTH]
        self.check(self.pack({"images": images, "labels": labels}), images, labels)
        self.check(self.pack({"images": planes, "labels": labels.astype(">i2")}), images, labels)
        self.check(self.pack({"images": images.astype(">i4"), "labels": labels.astype("u1")}), images, labels)
        self.check(self.pack({"images": planes.astype("u8"), "labels": labels.reshape(-1, 1)}), images, labels)
        self.check(self.pack({"images": images.reshape(COUNT, -1), "labels": labels}, *size), images, labels)
        self.check(self.pack({"images": planes.reshape(COUNT, -1), "labels": labels}, *size, "--layout", "flat-chw"), images,
                   labels)
        self.check(self.pack({"images": images[:, :, :, 0], "labels": labels}), images[:, :, :, :1], labels)
        packed = {"images": (images, {"chunks": (3, HEIGHT, WIDTH, CHANNELS), "compression": "gzip"}), "labels": labels}
        self.check(self.pack(packed, "--shard-samples", 16, ranks=2), images, labels)
        self.check(self.pack({"a/x": images, "a/y": labels.astype("f4")}, "--images", "a/x", "--labels", "a/y"), images, labels)
        hot = numpy.eye(CLASSES + 2, dtype="f4")[labels]
        self.check(self.pack({"images": images, "labels": hot}), images, labels)
        self.check(self.pack({"images": images, "labels": hot.astype(bool)}), images, labels)
        self.assertEqual(len(json.loads((self.out / "manifest.json").read_text())["classes"]), CLASSES + 2)

    def test_booleans_and_enumerations_are_their_numbers(self):
        images, labels = make_images()
        bits = images[:, :, :, :1] > 127
        self.check(self.pack({"images": bits, "labels": labels > 1}), bits.astype("u1"), (labels > 1).astype(int))
        named = h5py.enum_dtype({f"kind {i}": i for i in range(CLASSES)}, basetype=">i2")
        self.check(self.pack({"images": images, "labels": (labels, {"dtype": named})}), images, labels)

    def test_floating_point_scales(self):
        images, labels = make_images()
        unit = images.astype("f8") / 255
        process = self.pack({"images": unit, "labels": labels})
        self.check(process, images, labels)
        self.assertIn("taken to be 0 to 1", process.stdout)
        process = self.pack({"images": images.astype("f2"), "labels": labels}, ranks=3)
        self.check(process, images, labels)
        self.assertIn("taken to be 0 to 255", process.stdout)
        black = (images > 128).astype("f4")
        self.fails(self.pack({"images": black, "labels": labels}), 2, "0 to 1 are not clearly", "--scale unit")
        self.check(self.pack({"images": black, "labels": labels}, "--scale", "unit"), black * 255, labels)
        self.check(self.pack({"images": black, "labels": labels}, "--scale", "byte"), black, labels)
        self.fails(self.pack({"images": unit * 4 - 2, "labels": labels}), 2, "not clearly")
        self.fails(self.pack({"images": unit * 1.5, "labels": labels}), 2, "not clearly")
        for bad in (numpy.nan, numpy.inf, -numpy.inf):
            broken = unit.copy()
            broken[29, 0, 0, 0] = broken[7, 8, 10, 2] = bad
            for scale in ("auto", "unit", "byte"):
                process = self.pack({"images": broken, "labels": labels}, "--scale", scale, ranks=2)
                self.fails(process, 3, f"in{self.number}.h5", "sample 7 ", "no number" if scale == "auto" else str(bad))
        self.fails(self.pack({"images": images, "labels": labels}, "--scale", "unit"), 2, "holds integers")
        unit[17, 2, 3, 1] = 1.2
        self.fails(self.pack({"images": unit, "labels": labels}, "--scale", "unit"), 3, "sample 17", "1.2", "0 to 1")

    def test_all_splits_have_one_scale(self):
        images, labels = make_images()
        unit = (images / 255).astype("f4")
        names = ["--val-images", "v", "--val-labels", "labels"]
        black = numpy.zeros_like(unit)
        white = numpy.ones_like(unit)
        # What alone would not tell follows the other, whichever of the two that is.
        for ranks in (0, 2):
            for train, val, factor in ((unit, white, 255), (white, unit, 255), (unit, black, 255),
                                       (images.astype("f4"), white, 1), (white, images.astype("f4"), 1)):
                process = self.pack({"images": train, "labels": labels, "v": val}, *names, ranks=ranks)
                self.check(process, numpy.rint(train * factor), labels)
                self.check(process, numpy.rint(val * factor), labels, "val")
        for train, val in ((unit, images.astype("f4")), (images.astype("f4"), unit)):
            self.fails(self.pack({"images": train, "labels": labels, "v": val}, *names), 2, "dataset 'images'", "dataset 'v'",
                       "another scale")
        # Integers say their scale by themselves.
        process = self.pack({"images": unit, "labels": labels, "v": images}, *names)
        self.check(process, images, labels)
        self.check(process, images, labels, "val")
        wide = unit.copy()
        wide[5, 0, 0, 0] = 1.25
        self.fails(self.pack({"images": unit, "labels": labels, "v": wide}, *names), 3, "sample 5", "dataset 'v'", "1.25")
        self.fails(self.pack({"images": white, "labels": labels, "v": black}, *names), 2, "dataset 'images'", "not clearly")

    def test_values_that_cannot_be(self):
        images, labels = make_images()
        wide = images.astype("i2")
        wide[23, 0, 0, 0] = 256
        self.fails(self.pack({"images": wide, "labels": labels}), 3, "sample 23", "256")
        wide[23, 0, 0, 0] = -1
        self.fails(self.pack({"images": wide, "labels": labels}), 3, "sample 23", "-1")
        for bad in (-1, 2 ** 20, 2 ** 40):
            wrong = labels.copy()
            wrong[31] = bad
            self.fails(self.pack({"images": images, "labels": wrong}), 3, "sample 31", "label")
        hot = numpy.eye(CLASSES, dtype="u1")[labels]
        hot[12] = 0
        self.fails(self.pack({"images": images, "labels": hot}), 3, "sample 12", "one 1 among zeros")
        hot[12] = 1
        self.fails(self.pack({"images": images, "labels": hot}), 3, "sample 12", "one 1 among zeros")
        self.fails(self.pack({"images": images, "labels": labels.astype("f4") + 0.5}), 3, "sample 0")

    def test_arrays_that_are_not_meant(self):
        images, labels = make_images()
        self.fails(self.pack({"images": images, "labels": labels}, "--images", "image"), 2, "did you mean 'images'?")
        self.fails(self.pack({"images/x": images, "labels": labels}), 2, "'images'", "a group", "images/x")
        self.fails(self.pack({"images": images, "labels": labels[:-1]}), 2, "39 rows are no labels for 40 images")
        self.fails(self.pack({"images": images.reshape(COUNT, -1), "labels": labels}), 2, "--height and --width")
        self.fails(self.pack({"images": images.reshape(COUNT, -1), "labels": labels}, "--height", 10, "--width", 11), 2,
                   "no image of 10x11")
        self.fails(self.pack({"images": images.reshape(COUNT, -1), "labels": labels}, "--height", 2 ** 32, "--width", 2 ** 32),
                   2, "1 to 65536")
        self.fails(self.pack({"images": numpy.zeros((2, 65537, 1, 1), "u1"), "labels": labels[:2]}), 2, "1 to 65536")
        self.fails(self.pack({"images": images, "labels": labels}, "--shard-samples", 0), 2, "--shard-samples 0")
        self.fails(self.pack({"images": images[:, :3], "labels": labels}), 2, "--layout nhwc or --layout nchw")
        self.fails(self.pack({"images": images, "labels": labels}, "--layout", "nchw"), 2, "1 to 4 channels")
        self.fails(self.pack({"images": images, "labels": labels}, "--layout", "nwhc"), 2, "nhwc")
        path = self.folder / "text.h5"
        path.write_text("no HDF5")
        self.fails(renai_cli.run([renai_cli.renai(), "pack", "hdf5", path, "--out", self.folder / "o"]), 3, "text.h5")

    def test_arrays_whose_bytes_lie_elsewhere(self):
        images, labels = make_images()
        with h5py.File(self.folder / "store.h5", "w") as file:
            file["x"] = images
        images.tofile(self.folder / "pixels.bin")
        layout = h5py.VirtualLayout(images.shape, "u1")
        for half in (slice(0, COUNT // 2), slice(COUNT // 2, COUNT)):
            layout[half] = h5py.VirtualSource("store.h5", "x", images.shape)[half]
        external = [(str(self.folder / "pixels.bin"), 0, images.nbytes)]

        def write(name):
            path = self.folder / f"{name}.h5"
            with h5py.File(path, "w") as file:
                file["labels"] = labels
                if name == "link":
                    file["images"] = h5py.ExternalLink("store.h5", "x")
                elif name == "virtual":
                    file.create_virtual_dataset("images", layout, fillvalue=7)
                else:
                    file.create_dataset("images", images.shape, "u1", external=external)
            return path

        def pack(name):
            self.out = self.folder / f"{name}-out"
            words = ["pack", "hdf5", write(name), "--out", self.out, "--overwrite"]
            return renai_cli.run([renai_cli.renai(), *words])

        for name in ("link", "virtual", "external"):
            self.check(pack(name), images, labels)
        # The library would read what is not there as zeros or fill values.
        (self.folder / "pixels.bin").write_bytes(images.tobytes()[:-1])
        self.fails(pack("external"), 3, "dataset 'images'", "pixels.bin", "truncated?")
        (self.folder / "pixels.bin").unlink()
        self.fails(pack("external"), 3, "dataset 'images'", "pixels.bin", "No such file")
        (self.folder / "store.h5").unlink()
        self.fails(pack("virtual"), 3, "dataset 'images'", "'x' of store.h5", "not there")
        self.fails(pack("link"), 3, "dataset 'images'", "link to x of store.h5", "not there")

    def test_files_that_are_being_written(self):
        images, labels = make_images()
        words = [renai_cli.renai(), "pack", "hdf5", self.folder / "open.h5", "--out", self.folder / "out"]
        with h5py.File(self.folder / "open.h5", "w", libver="latest") as file:
            file["images"], file["labels"] = images, labels
            file.flush()
            self.fails(renai_cli.run(words), 3, "open.h5", "a program has it open for writing", "h5clear")
            before = os.environ.get("HDF5_USE_FILE_LOCKING")
            os.environ["HDF5_USE_FILE_LOCKING"] = "TRUE"
            try:
                self.fails(renai_cli.run(words), 4, "open.h5", "another program has it open", "HDF5_USE_FILE_LOCKING=FALSE")
            finally:
                del os.environ["HDF5_USE_FILE_LOCKING"]
                if before is not None:
                    os.environ["HDF5_USE_FILE_LOCKING"] = before
        self.succeeds(renai_cli.run(words))

    def test_a_filter_that_is_not_here_is_named(self):
        images, labels = make_images()
        self.fails(self.pack({"images": (images, {"compression": "lzf"}), "labels": labels}), 3,
                   "dataset 'images'", "filter 'lzf'", "gzip")

    def test_validation_samples(self):
        images, labels = make_images()
        other, other_labels = make_images(1)
        both = {"x": images, "y": labels, "vx": other[:7], "vy": other_labels[:7]}
        names = ["--images", "x", "--labels", "y"]
        process = self.pack(both, *names, "--val-images", "vx", "--val-labels", "vy")
        self.check(process, images, labels)
        self.check(process, other[:7], other_labels[:7], "val")
        with h5py.File(self.folder / "val.h5", "w") as file:
            file["x"], file["y"] = other, other_labels
        process = self.pack({"x": images, "y": labels}, *names, "--val-file", self.folder / "val.h5")
        self.check(process, other, other_labels, "val")
        self.fails(self.pack(both, *names, "--val-images", "vx", "--val-labels", "vy", "--val-fraction", "0.2"), 2,
                   "validation samples of its own")
        process = self.pack({"images": images, "labels": labels}, "--val-every", 5, "--shard-samples", 6, ranks=2)
        chosen = numpy.arange(COUNT) % 5 == 4
        self.check(process, images[~chosen], labels[~chosen])
        self.check(process, images[chosen], labels[chosen], "val")
        self.succeeds(self.pack({"images": images, "labels": labels}, "--val-fraction", 0.3))
        train, val = read_set(self.out, "train")[0], read_set(self.out, "val")[0]
        self.assertTrue(3 <= len(val) <= 25)
        together = {image.tobytes() for image in numpy.concatenate([train, val])}
        self.assertEqual(together, {image.tobytes() for image in images})

    def test_cifar_100_uses_fine_labels_and_names(self):
        folder = self.folder / "cifar"
        folder.mkdir()
        records = numpy.zeros((30, 3074), dtype=numpy.uint8)
        records[:, 0] = numpy.arange(30) % 20
        records[:, 1] = numpy.arange(30) * 3 % 100
        records[:, 2:] = numpy.random.default_rng(2).integers(0, 256, (30, 3072))
        (folder / "train.bin").write_bytes(records.tobytes())
        (folder / "fine_label_names.txt").write_text("".join(f"fine {i}\n" for i in range(100)))
        (folder / "coarse_label_names.txt").write_text("".join(f"coarse {i}\n" for i in range(20)))
        out = self.folder / "out"
        self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "cifar", folder, "--out", out, "--val-every", 3]))
        self.assertEqual(json.loads((out / "manifest.json").read_text())["classes"][:2], ["fine 0", "fine 1"])
        images, labels = read_set(out, "val")
        numpy.testing.assert_array_equal(labels, records[2::3, 1])
        numpy.testing.assert_array_equal(images, records[2::3, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


if __name__ == "__main__":
    renai_cli.main()
