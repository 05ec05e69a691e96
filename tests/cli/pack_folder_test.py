#!/usr/bin/env python3
"""renai pack folder: trees of images of every kind, against PIL, numpy and h5py; damage, skipping, going on, ranks."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy
from PIL import Image, ImageOps

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402


def picture(seed, height=40, width=56, channels=3):
    """A smooth picture with some texture: what photographs are like, so that lossy steps stay small."""
    rows, columns = numpy.mgrid[0:height, 0:width]
    planes = [128 + 80 * numpy.sin((rows * (c + 1) + seed * 7) / 19) + 40 * numpy.cos((columns + seed * (3 + c)) / 11)
              for c in range(channels)]
    return numpy.clip(numpy.stack(planes, axis=-1), 0, 255).astype(numpy.uint8)


def jpeg_bytes(image, **options):
    stream = io.BytesIO()
    image.save(stream, "JPEG", **{"quality": 90, **options})
    return stream.getvalue()


def png_bytes(image, **options):
    stream = io.BytesIO()
    image.save(stream, "PNG", **options)
    return stream.getvalue()


def png16_bytes(values):
    """PIL writes 16-bit grey from mode I;16."""
    image = Image.frombytes("I;16", values.shape[::-1], values.astype("<u2").tobytes())
    return png_bytes(image)


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def corner_cases():
    """name -> (file's bytes, RGB pixels that it stands for)."""
    rgb = Image.fromarray(picture(1))
    grey = Image.fromarray(picture(2, channels=1)[:, :, 0])
    cases = {}

    def add(name, data, pixels=None):
        cases[name] = (data, numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB")) if pixels is None else pixels)

    add("plain.jpg", jpeg_bytes(rgb))
    add("UPPER.JPEG", jpeg_bytes(rgb, subsampling=0))
    add("progressive.jpg", jpeg_bytes(rgb, progressive=True))
    add("grey.jpg", jpeg_bytes(grey))
    add("cmyk.jpg", jpeg_bytes(rgb.convert("CMYK")))
    turned = jpeg_bytes(rgb, exif=exif(6))
    add("turned.jpg", turned, numpy.asarray(Image.open(io.BytesIO(turned)).rotate(-90, expand=True).convert("RGB")))
    add("plain.png", png_bytes(rgb))
    add("grey.png", png_bytes(grey))
    add("one bit.png", png_bytes(grey.convert("1")))
    add("palette.png", png_bytes(rgb.quantize(64)))
    add("alpha.png", png_bytes(Image.merge("RGBA", [*rgb.split(), grey])))
    add("grey alpha.png", png_bytes(Image.merge("LA", [grey, rgb.split()[0]])))
    wide = picture(3, channels=1)[:, :, 0].astype(numpy.uint32) * 257 + 100
    wide = numpy.minimum(wide, 65535)
    add("sixteen.png", png16_bytes(wide), numpy.repeat(numpy.rint(wide / 257).astype(numpy.uint8)[:, :, None], 3, axis=2))
    add("jpeg under another name.png", jpeg_bytes(rgb))
    add("tiny.jpg", jpeg_bytes(Image.fromarray(picture(4, 1, 1))))
    add("thin.jpg", jpeg_bytes(Image.fromarray(picture(5, 3, 200))))
    return cases


def write_tree(root, classes=3, images=9, seed=0):
    """root/class_c/i.jpg"""
    for c in range(classes):
        folder = Path(root) / f"class_{c}"
        folder.mkdir(parents=True)
        for i in range(images):
            shape = (32 + 3 * (i % 12), 48 - i % 12)
            (folder / f"{i:03}.jpg").write_bytes(jpeg_bytes(Image.fromarray(picture(seed + 31 * c + i, *shape))))


def paths_of(root):
    """Images of a tree in the byte order of their paths."""
    root = os.fsencode(root)
    found = [os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root, followlinks=True)
             for name in names if name.lower().endswith((b".jpg", b".jpeg", b".png"))]
    return sorted(found)


def stored(out, split):
    """(label, bytes) of each sample of a jpeg set, or (label, pixels) of a raw one."""
    manifest = json.loads((Path(out) / "manifest.json").read_text())
    samples = []
    for info in next(s for s in manifest["splits"] if s["name"] == split)["shards"]:
        with h5py.File(Path(out) / info["file"], "r") as file:
            labels = file["labels"][:]
            assert len(labels) == info["samples"]
            if manifest["encoding"] == "raw":
                samples += list(zip(labels.tolist(), file["images"][:]))
                continue
            offsets, data = file["image_offsets"][:], file["image_bytes"][:]
            assert offsets[0] == 0 and offsets[-1] == len(data) and file["image_bytes"].chunks is None
            samples += [(int(label), data[offsets[i]:offsets[i + 1]].tobytes()) for i, label in enumerate(labels)]
    return samples


def files_of(out):
    return {path.name: path.read_bytes() for path in Path(out).iterdir()}


class PackFolderTest(renai_cli.FolderTest):
    def pack(self, *arguments, ranks=0, **keywords):
        words = ["pack", "folder", *arguments]
        if ranks:
            return renai_cli.on_ranks(ranks, *words, cwd=self.folder, **keywords)
        return renai_cli.run([renai_cli.renai(), *words], cwd=self.folder, **keywords)

    def write_cases(self, folder="in/all"):
        cases = corner_cases()
        (self.folder / folder).mkdir(parents=True)
        for name, (data, _) in cases.items():
            (self.folder / folder / name).write_bytes(data)
        return [cases[name] for name in sorted(cases, key=os.fsencode)]

    def test_jpeg_files_stay_and_png_files_are_encoded(self):
        cases = self.write_cases()
        text = self.succeeds(self.pack("in", "--out", "out", "--order", "sorted"))
        self.assertIn("7 PNG images encoded as JPEG, quality 95, 4:4:4", text)
        samples = stored(self.folder / "out", "train")
        self.assertEqual(len(samples), len(cases))
        for (data, pixels), (label, kept) in zip(cases, samples):
            self.assertEqual(label, 0)
            if data.startswith(b"\xff\xd8"):
                self.assertEqual(kept, data)
                continue
            image = Image.open(io.BytesIO(kept))
            self.assertEqual((image.format, image.size), ("JPEG", pixels.shape[1::-1]))
            self.assertTrue(all(layer[1:3] == (1, 1) for layer in image.layer))
            error = numpy.asarray(image.convert("RGB")).astype(int) - pixels
            self.assertLess(abs(error).mean(), 4)
        self.succeeds(renai_cli.run([renai_cli.renai(), "verify", self.folder / "out"]))

    def test_raw_pixels_are_those_of_pil(self):
        cases = self.write_cases()
        size = 24
        self.succeeds(self.pack("in", "--out", "out", "--order", "sorted", "--encoding", "raw", "--size", size))
        samples = stored(self.folder / "out", "train")
        self.assertEqual(len(samples), len(cases))
        for (_, pixels), (_, kept) in zip(cases, samples):
            height, width = pixels.shape[:2]
            shorter = min(height, width)
            full = (width * size // shorter, height * size // shorter)
            left, top = (full[0] - size) // 2, (full[1] - size) // 2
            image = Image.fromarray(pixels).resize(full, Image.BILINEAR).crop((left, top, left + size, top + size))
            self.assertLessEqual(abs(numpy.asarray(image).astype(int) - kept).max(), 1)
        manifest = json.loads((self.folder / "out/manifest.json").read_text())
        pixels = numpy.stack([kept for _, kept in samples]).astype(float)
        numpy.testing.assert_allclose(manifest["mean"], pixels.mean(axis=(0, 1, 2)), atol=1e-4)
        numpy.testing.assert_allclose(manifest["std"], pixels.std(axis=(0, 1, 2)), atol=1e-3)

    def test_raw_pixels_of_jpeg_files_decoded_smaller_stay_in_place(self):
        """77 x 131 pixels are 48.125 x 81.875 at five eighths: rounding that would move what is seen by half a pixel."""
        rows, columns = numpy.indices((77, 131)) // 8
        board = numpy.where((rows + columns) % 2, 200, 40).astype(numpy.uint8)
        pixels = numpy.stack([board, 255 - board, picture(6, 77, 131, 1)[:, :, 0]], axis=-1)
        size, expected = 24, []
        (self.folder / "in/all").mkdir(parents=True)
        for orientation in range(1, 9):
            data = jpeg_bytes(Image.fromarray(pixels), subsampling=0, quality=95, exif=exif(orientation))
            (self.folder / f"in/all/{orientation}.jpg").write_bytes(data)
            image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
            full = (image.width * size // 77, image.height * size // 77)
            left, top = (full[0] - size) // 2, (full[1] - size) // 2
            image = image.resize(full, Image.BILINEAR).crop((left, top, left + size, top + size))
            expected.append(numpy.asarray(image).astype(int))
        self.succeeds(self.pack("in", "--out", "out", "--order", "sorted", "--encoding", "raw", "--size", size))
        for orientation, (kept, (_, found)) in enumerate(zip(expected, stored(self.folder / "out", "train")), 1):
            error = abs(kept - found)
            self.assertLess(error.mean(), 2, f"orientation {orientation}")
            self.assertLess(error.max(), 20, f"orientation {orientation}")

    def test_statistics_of_jpeg_sets(self):
        write_tree(self.folder / "in")
        self.succeeds(self.pack("in", "--out", "out", "--size", "32"))
        means, squares = [], []
        for path in paths_of(self.folder / "in"):
            pixels = numpy.asarray(Image.open(os.path.join(os.fsencode(self.folder / "in"), path))).astype(float)
            means.append(pixels.mean(axis=(0, 1)))
            squares.append((pixels ** 2).mean(axis=(0, 1)))
        mean = numpy.mean(means, axis=0)
        manifest = json.loads((self.folder / "out/manifest.json").read_text())
        numpy.testing.assert_allclose(manifest["mean"], mean, atol=1)
        numpy.testing.assert_allclose(manifest["std"], numpy.sqrt(numpy.mean(squares, axis=0) - mean ** 2), rtol=0.03)
        self.assertEqual([manifest[key] for key in ("encoding", "height", "width", "channels")], ["jpeg", 32, 32, 3])

    def test_classes_splits_and_odd_names(self):
        write_tree(self.folder / "in/train", classes=2, images=4)
        write_tree(self.folder / "in/val", classes=2, images=3, seed=50)
        train = self.folder / "in/train"
        odd = os.path.join(os.fsencode(train), b"\xff class\xc3\xa9")
        os.mkdir(odd)
        picture_bytes = jpeg_bytes(Image.fromarray(picture(9)))
        for name in (b"new\nline.jpg", b"\xe9.jpg", b"-x .jpg", b"tab\t.jpg", b"$(x)'\".jpg"):
            Path(os.fsdecode(os.path.join(odd, name))).write_bytes(picture_bytes)
        (train / "class_0/inner").mkdir()
        (train / "class_0/inner/deep.jpg").write_bytes(picture_bytes)
        (train / "class_0/.hidden.jpg").write_bytes(b"x")
        (train / "class_0/notes.txt").write_text("x")
        (train / "README").write_text("x")
        (train / "class_1/loop").symlink_to(train / "class_1")
        (train / "class_1/link.jpg").symlink_to(train / "class_0/000.jpg")
        text = self.succeeds(self.pack("in", "--out", "out", "--order", "sorted", "--shard-samples", "4"))
        for said in ("1 hidden file", "2 files of other kinds left out (without extension 1, txt 1)", "1 link back"):
            self.assertIn(said, text)
        manifest = json.loads((self.folder / "out/manifest.json").read_text())
        self.assertEqual(manifest["classes"][:2], ["class_0", "class_1"])
        self.assertEqual(manifest["classes"][2], "\\xff class\u00e9")
        inspected = self.succeeds(renai_cli.run([renai_cli.renai(), "inspect", self.folder / "out"]))
        self.assertIn(text.split("3 classes, digest ")[1].split(",")[0], inspected)
        labels = [label for label, _ in stored(self.folder / "out", "train")]
        self.assertEqual(labels, [0] * 5 + [1] * 5 + [2] * 5)
        val = stored(self.folder / "out", "val")
        expected = [(self.folder / "in/val" / os.fsdecode(path)).read_bytes() for path in paths_of(self.folder / "in/val")]
        self.assertEqual([data for _, data in val], expected)
        self.assertEqual(len(manifest["splits"][0]["shards"]), 4)

    def test_order_and_division_are_fixed(self):
        write_tree(self.folder / "in", images=20)
        everything = {path: Path(os.fsdecode(os.path.join(os.fsencode(self.folder / "in"), path))).read_bytes()
                      for path in paths_of(self.folder / "in")}
        self.succeeds(self.pack("in", "--out", "a", "--val-fraction", "0.25"))
        train, val = stored(self.folder / "a", "train"), stored(self.folder / "a", "val")
        self.assertEqual(sorted(data for _, data in train + val), sorted(everything.values()))
        self.assertTrue(5 <= len(val) <= 25, len(val))
        labels = [label for label, _ in train]
        self.assertNotEqual(labels, sorted(labels))
        # Other files leave the choice as it was.
        (self.folder / "in/class_1/zzz.jpg").write_bytes(jpeg_bytes(Image.fromarray(picture(77))))
        self.succeeds(self.pack("in", "--out", "b", "--val-fraction", "0.25"))
        more = [data for _, data in stored(self.folder / "b", "val")]
        self.assertTrue({data for _, data in val} <= set(more))
        self.succeeds(self.pack("in", "--out", "c", "--val-every", "5", "--order", "sorted"))
        self.assertEqual([label for label, _ in stored(self.folder / "c", "val")], [0] * 4 + [1] * 4 + [2] * 4)

    def damage(self):
        """name -> why: bad files in class_1."""
        folder = self.folder / "in/class_1"
        good = (folder / "000.jpg").read_bytes()
        png = png_bytes(Image.fromarray(picture(3)))
        flipped = bytearray(png)
        flipped[len(flipped) // 2] ^= 0x10
        bad = {"cut.jpg": good[:len(good) // 2], "head.jpg": good[:200], "empty.jpg": b"", "text.jpg": b"no image at all",
               "gif.png": b"GIF89a" + bytes(40), "cut.png": png[:len(png) // 2], "flipped.png": bytes(flipped),
               "end.png": png[:-12]}
        for name, data in bad.items():
            (folder / name).write_bytes(data)
        (folder / "nowhere.jpg").symlink_to("missing")
        os.mkfifo(folder / "pipe.jpg")
        return sorted([*bad, "nowhere.jpg", "pipe.jpg"])

    def test_bad_files_are_named(self):
        write_tree(self.folder / "in")
        for name in self.damage():
            kept = self.folder / "bad" / name
            kept.parent.mkdir(exist_ok=True)
            os.rename(self.folder / "in/class_1" / name, kept)
        for kept in sorted((self.folder / "bad").iterdir()):
            target = self.folder / "in/class_1" / kept.name
            os.rename(kept, target)
            text = self.fails(self.pack("in", "--out", "out"), 3, f"in/class_1/{kept.name}", "--skip-bad")
            reason = {"empty.jpg": "empty", "text.jpg": "no image", "gif.png": "GIF", "pipe.jpg": "no regular file",
                      "cut.png": "truncated", "end.png": "truncated"}.get(kept.name, "")
            self.assertIn(reason, text)
            self.assertFalse((self.folder / "out/manifest.json").exists())
            target.unlink()

    def test_bad_files_are_skipped_when_asked(self):
        write_tree(self.folder / "in")
        self.succeeds(self.pack("in", "--out", "clean", "--order", "sorted"))
        names = self.damage()
        text = self.succeeds(self.pack("in", "--out", "out", "--skip-bad", "--order", "sorted", "--shard-samples", "8"))
        self.assertIn(f"{len(names)} bad files left out", text)
        listed = (self.folder / "out/skipped.txt").read_text().splitlines()
        self.assertEqual([line.split("\t")[0] for line in listed], [f"class_1/{name}" for name in names])
        self.assertTrue(all(len(line.split("\t")) == 2 and line.split("\t")[1] for line in listed))
        self.assertEqual(stored(self.folder / "out", "train"), stored(self.folder / "clean", "train"))
        self.succeeds(self.pack("in", "--out", "two", "--skip-bad", "--order", "sorted", "--shard-samples", "8", ranks=3))
        self.assertEqual({name: data for name, data in files_of(self.folder / "out").items() if name != "manifest.json"},
                         {name: data for name, data in files_of(self.folder / "two").items() if name != "manifest.json"})
        self.succeeds(renai_cli.run([renai_cli.renai(), "verify", self.folder / "out"]))

    def test_trees_that_make_no_sense(self):
        write_tree(self.folder / "in", classes=2, images=2)
        (self.folder / "in/empty").mkdir()
        self.fails(self.pack("in", "--out", "out"), 3, "in/empty", "holds no JPEG or PNG image")
        (self.folder / "in/empty/bad.jpg").write_bytes(b"")
        self.fails(self.pack("in", "--out", "out", "--skip-bad"), 3, "class empty", "none of its training images")
        (self.folder / "flat").mkdir()
        self.fails(self.pack("flat", "--out", "flat-out"), 3, "no folders of classes")
        self.fails(self.pack("nowhere", "--out", "no-out"), 2, "there is no such folder")
        self.fails(self.pack("", "--out", "no-out"), 2, "input ; there is no such folder")
        write_tree(self.folder / "two/train", classes=1, images=2)
        write_tree(self.folder / "two/test", classes=2, images=1)
        self.fails(self.pack("two", "--out", "two-out"), 3, "two/test/class_1", "no training images of such a class")
        deep = self.folder.joinpath("deep/a", *(["d"] * 66))
        deep.mkdir(parents=True)
        (deep / "lost.jpg").write_bytes(jpeg_bytes(Image.fromarray(picture(1))))
        (self.folder / "deep/a/found.jpg").write_bytes(jpeg_bytes(Image.fromarray(picture(2))))
        self.fails(self.pack("deep", "--out", "deep-out"), 3, "deep/a/d/d", "more than 64 folders deep")
        (self.folder / "in/class_0/inner").mkdir()
        (self.folder / "in/begun").mkdir()
        for out in ("in/packed", "in/begun", "in/class_0/inner", "in"):
            self.fails(self.pack("in", "--out", out), 2, "lies in the input folder")
        write_tree(self.folder / "vehicles", classes=1, images=2)
        os.rename(self.folder / "vehicles/class_0", self.folder / "vehicles/train")
        self.fails(self.pack("vehicles", "--out", "o"), 3, "if 'train' is a class itself")
        self.fails(self.pack("two/train", "--out", "o", "--val-fraction", "0.1", "--val-every", "3"), 2, "give one of them")
        self.fails(self.pack("two/train", "--out", "o", "--val-fraction", "1.5"), 2, "between 0 and 1")
        self.fails(self.pack("two/train", "--out", "o", "--val-every", "5"), 2, "none would go to validation")
        self.fails(self.pack("two/train", "--out", "o", "--encoding", "webp"), 2, "jpeg")
        for size in ("-1", "0"):
            self.fails(self.pack("two/train", "--out", "o", "--size", size), 2, f"--size {size}")
        self.fails(self.pack("two/train", "--out", "o", "--threads", "1025"), 2, "1 to 1024")

    def test_any_number_of_ranks_and_threads_gives_the_same_bytes(self):
        write_tree(self.folder / "in", images=14)
        for raw in ([], ["--encoding", "raw", "--size", "20"]):
            sets = []
            for ranks, threads in ((1, 1), (1, 5), (2, 2), (4, 1)):
                out = self.folder / str(len(raw)) / f"r{ranks}t{threads}" / "set"
                out.parent.mkdir(parents=True)
                self.succeeds(self.pack("in", "--out", out, "--shard-samples", "5", "--threads", threads, *raw, ranks=ranks))
                sets.append(files_of(out))
            self.assertEqual(len(sets[0]), 10)
            for other in sets[1:]:
                self.assertEqual(sets[0], other)

    def test_an_interrupted_pack_goes_on(self):
        write_tree(self.folder / "in", images=60)
        for c in range(3):  # Large ones, so that there is time to interrupt.
            data = jpeg_bytes(Image.fromarray(picture(c, 1500, 1500)))
            for i in range(12):
                (self.folder / f"in/class_{c}/large{i}.jpg").write_bytes(data)
        words = ["--shard-samples", "12", "--threads", "1"]
        (self.folder / "a").mkdir()
        (self.folder / "b").mkdir()
        self.succeeds(self.pack("in", "--out", "a/set", *words))
        process = subprocess.Popen([renai_cli.renai(), "pack", "folder", "in", "--out", "b/set", *words], cwd=self.folder,
                                   env=renai_cli.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        out = self.folder / "b/set"
        end = time.monotonic() + 60
        while time.monotonic() < end and len(list(out.glob("*.summary"))) < 2:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertFalse((out / "manifest.json").exists(), "it was too fast to interrupt")
        done = {path.name: path.stat().st_mtime_ns for path in out.glob("*.summary")}
        self.assertGreaterEqual(len(done), 2)
        shard = sorted(done)[0].removesuffix(".summary")
        kept = (out / shard).stat().st_mtime_ns
        self.fails(self.pack("in", "--out", "b/set", "--shard-samples", "13"), 2, "shard-samples = 12", "shard-samples = 13")
        self.fails(self.pack("in", "--out", "b/set", *words, "--encoding", "raw"), 2, "encoding = jpeg", "encoding = raw")
        self.succeeds(self.pack("in", "--out", "b/set", *words, ranks=2))
        self.assertEqual((out / shard).stat().st_mtime_ns, kept)
        self.assertEqual(files_of(self.folder / "a/set"), files_of(out))

    def test_a_changed_file_or_damaged_shard_is_packed_again(self):
        write_tree(self.folder / "in")
        (self.folder / "a").mkdir()
        words = ["in", "--out", "a/set", "--shard-samples", "9", "--order", "sorted"]
        self.succeeds(self.pack(*words))
        whole = files_of(self.folder / "a/set")
        self.fails(self.pack(*words), 2, "complete data set", "--overwrite")
        # As an interrupted run leaves it: a bad file stops the last shard.
        good = (self.folder / "in/class_2/008.jpg").read_bytes()
        (self.folder / "in/class_2/008.jpg").write_bytes(good[:100])
        self.fails(self.pack(*words, "--overwrite"), 3, "class_2/008.jpg")
        (self.folder / "in/class_2/008.jpg").write_bytes(good)
        shard = self.folder / "a/set/train-00000-of-00003.h5"
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(bytes(data))
        self.succeeds(self.pack(*words))
        self.assertEqual(files_of(self.folder / "a/set"), whole)
        other = jpeg_bytes(Image.fromarray(picture(99)))
        (self.folder / "in/class_0/000.jpg").write_bytes(other)
        self.succeeds(self.pack(*words, "--overwrite"))
        self.assertEqual(stored(self.folder / "a/set", "train")[0], (0, other))

    def test_a_file_replaced_by_one_of_its_size_and_time_is_packed_again(self):
        write_tree(self.folder / "in")
        replaced, damaged = self.folder / "in/class_0/000.jpg", self.folder / "in/class_2/008.jpg"
        old, good = replaced.read_bytes() + b"old", damaged.read_bytes()
        replaced.write_bytes(old)
        (self.folder / "a").mkdir()
        words = ["in", "--out", "a/set", "--shard-samples", "9", "--order", "sorted"]
        damaged.write_bytes(good[:100])  # The pack ends after the first shards, as one that is interrupted.
        self.fails(self.pack(*words), 3, "class_2/008.jpg")
        self.assertTrue((self.folder / "a/set/train-00000-of-00003.h5.summary").exists())
        damaged.write_bytes(good)
        before = replaced.stat()
        new = old[:-3] + b"new"
        replaced.write_bytes(new)
        os.utime(replaced, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.succeeds(self.pack(*words))
        self.assertEqual(stored(self.folder / "a/set", "train")[0], (0, new))

    def test_whole_numbers_that_no_option_can_hold(self):
        write_tree(self.folder / "in", images=2)
        for option, value in (("--shard-samples", "9223372036854775808"), ("--split-seed", "-1"),
                              ("--split-seed", "18446744073709551616"), ("--val-every", "9223372036854775808")):
            self.fails(self.pack("in", "--out", "set", f"{option}={value}"), 2, option, f"'{value}' is not a whole number")

    def test_folders_that_would_be_one_class(self):
        for name in (b"a\xff", b"a\\xff"):
            (self.folder / "in" / os.fsdecode(name)).mkdir(parents=True)
            (self.folder / "in" / os.fsdecode(name) / "0.jpg").write_bytes(jpeg_bytes(Image.fromarray(picture(1))))
        self.fails(self.pack("in", "--out", "out"), 3, r"a\\xff and a\xff;", "rename")

    def test_an_empty_validation_folder(self):
        write_tree(self.folder / "in/train")
        (self.folder / "in/val").mkdir()
        self.fails(self.pack("in", "--out", "out"), 3, "in/val", "no folders of classes")
        self.fails(self.pack("in/train", "--out", ""), 2, "--out")

    def test_ranks_must_agree(self):
        write_tree(self.folder / "in")
        write_tree(self.folder / "other", images=3)
        script = self.folder / "start.sh"
        script.write_text(f'#!/bin/bash\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && in=other || in=in\n'
                          f'exec {renai_cli.renai()} pack folder $in --out out\n')
        script.chmod(0o755)
        process = renai_cli.run([renai_cli.SOURCE / "ci/mpiexec.sh", 2, script], cwd=self.folder)
        self.fails(process, 2, "rank 1 has", "same options and the same input")


if __name__ == "__main__":
    renai_cli.main()
