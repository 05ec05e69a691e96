#!/usr/bin/env python3
"""Bad input: one clear error with the right exit code, on one rank and on several, and nothing hangs."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

LIMIT_SECONDS = 5

SLOW_ABORT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
/* The job's end as a busy launcher brings it: seconds after a rank has asked for it. */
int MPI_Abort(void* comm, int code) {
  int (*real)(void*, int) = (int (*)(void*, int))dlsym(RTLD_NEXT, "MPI_Abort");
  sleep(3);
  return real(comm, code);
}
"""


class BadInputTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(96, 32, "--shard-samples", 40)

    def refuses(self, code, texts, *words, ranks=(1, 2)):
        """The command fails with the code and says the texts in exactly one error line, within the limit."""
        for count in ranks:
            with self.subTest(ranks=count, words=[str(word) for word in words]):
                start = time.monotonic()
                command = [renai_cli.renai(), *words]
                process = renai_cli.run(command) if count == 1 else renai_cli.on_ranks(count, *words)
                self.assertLess(time.monotonic() - start, LIMIT_SECONDS)
                self.fails(process, code, *texts)
                errors = [line for line in process.stdout.splitlines() if line.startswith("renai: rank ")]
                self.assertEqual(len(errors), 1, process.stdout)
                self.assertRegex(errors[0], r"^renai: rank \d+ on \S+: .+; .+")

    def train(self, code, texts, *words, data=None, ranks=(1, 2)):
        self.refuses(code, texts, "train", "--data", data or self.data, "--run-dir", self.folder / "run", "--global-batch", 32,
                     "--steps", 2, *words, ranks=ranks)

    def test_equal_mistakes_are_told_once_however_slowly_the_job_ends(self):
        if shutil.which("cc") is None:
            self.skipTest("no C compiler to slow MPI_Abort down with")
        source, library, script = (self.folder / name for name in ("slow.c", "slow.so", "start.sh"))
        source.write_text(SLOW_ABORT)
        self.succeeds(renai_cli.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"]))
        script.write_text(f"#!/bin/sh\nexport LD_PRELOAD={library}\nexec {renai_cli.renai()} \"$@\"\n")
        script.chmod(0o755)
        process = renai_cli.run([renai_cli.SOURCE / "ci" / "mpiexec.sh", 4, script, "train", "--data", self.data, "--run-dir",
                                 self.folder / "run", "--global-batch", 30, "--steps", 2])
        self.fails(process, 2, "--global-batch 30")
        self.assertEqual(process.stdout.count("renai: rank "), 1, process.stdout)

    def test_options(self):
        table = [
            (["--modle", "mlp"], ["modle", "'model'"]),
            (["--model", "renset9"], ["renset9", "resnet9"]),
            (["--lr-schedule", "cosin"], ["cosin", "'cosine'"]),
            (["--optimizer", "sdg"], ["sdg", "'sgd'"]),
            (["--device", "gpu"], ["gpu", "auto, cpu, cuda, reference"]),
            (["--augment", "none,flip"], ["'none' goes with no other word"]),
            (["--resolution", "28@0,"], ["--resolution 28@0,"]),
            (["--inject-fault", "flip@2:0"], ["--inject-fault flip@2:0", "2 steps"]),
            (["--inject-fault", "flip@1:1"], ["--inject-fault flip@1:1", "ranks are 0 to 0"]),
            (["--augment", "crop4,flop"], ["flop", "flip"]),
            (["--global-batch", "30"], ["30", "24 and 32", "--logical-shards 8"]),
            (["--global-batch", "0"], ["--global-batch 0"]),
            (["--global-batch", "-8"], ["--global-batch -8"]),
            (["--global-batch", "many"], ["global-batch"]),
            (["--logical-shards", "3"], ["power of two"]),
            (["--logical-shards", "0"], ["logical-shards"]),
            (["--logical-shards", "-8"], ["logical-shards"]),
            (["--epochs", "-1"], ["--epochs"]),
            (["--lr", "nan"], ["--lr nan", "finite"]),
            (["--threads", "0"], ["--threads 0"]),
            (["--loader-threads", "0"], ["--loader-threads 0"]),
            (["--resolution", "0"], ["--resolution 0"]),
            (["--resolution", "28@1"], ["epoch 0"]),
            (["--val-batch", "12"], ["--val-batch 12"]),
            (["--precision", "bf16"], ["bf16"]),
            (["--inject-fault", "flip@x:1"], ["--inject-fault"]),
            (["--watchdog-seconds", "0"], ["--watchdog-seconds"]),
            (["--optimizer", "adam", "--beta1", "1"], ["--beta1 1", "[0, 1)"]),
            (["--optimizer", "adamw", "--eps", "0"], ["--eps 0", "above 0"]),
            (["--optimizer", "adam", "--momentum", "0.5"], ["--momentum 0.5", "no meaning for --optimizer adam", "--beta1"]),
            (["--beta2", "0.99"], ["--beta2 0.99", "no meaning for --optimizer sgd"]),
            (["--optimizer", "lars", "--lars-eta", "0"], ["--lars-eta 0", "no weight would move"]),
            (["--mixup", "-0.5"], ["--mixup -0.5", "at least 0"]),
            (["--mixup", "1e-309"], ["--mixup", "0 or at least 0.001"]),
            (["--ema", "0.99999999"], ["--ema 0.99999999", "float32"]),
            (["--bn-momentum", "0.3", "--model", "mlp"], ["--bn-momentum 0.3", "no batch norm"]),
            (["--init", "xavier-normal", "--init-from", "x.h5"], ["--init xavier-normal", "--init-from sets every weight"]),
            (["--cutmix", "1", "--logical-shards", "32"], ["--cutmix 1", "one row only", "--global-batch 64"]),
            (["--random-erasing", "2"], ["--random-erasing 2", "[0, 1]"]),
            (["--dropout", "1"], ["--dropout 1", "[0, 1)"]),
            (["--init", "torchvison"], ["torchvison", "'torchvision'"]),
            (["--zero-gamma", "--model", "mlp"], ["--zero-gamma", "no residual block"]),
            (["--config", "none.toml"], ["none.toml"]),
            (["surplus"], ["surplus"]),
        ]
        for words, texts in table:
            self.train(2, texts, *words, ranks=(1,))
        self.train(2, ["modle", "'model'"], "--modle", "mlp", ranks=(2,))
        self.train(2, ["24 and 32"], "--global-batch", "30", ranks=(2,))
        self.refuses(2, ["trian", "'train'"], "trian", ranks=(1, 2))

    def test_leading_zeros_make_no_other_number(self):
        """The option library would read 010 as eight, and 08 as nothing."""
        run = self.folder / "run"
        self.succeeds(renai_cli.run([renai_cli.renai(), "train", "--data", self.data, "--model", "mlp", "--run-dir", run, "--steps",
                                     "010", "--global-batch", "+08", "--seed", "007", "--log-every", "01"]))
        recipe = (run / "recipe.toml").read_text().splitlines()
        for line in ("steps = 10", "global-batch = 8", "seed = 7", "log-every = 1"):
            self.assertIn(line, recipe)
        data = self.folder / "tens"
        self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "synthetic", "--out", data, "--train", "020", "--val", "0",
                                     "--shard-samples", "010"]))
        self.assertEqual([shard["samples"] for shard in json.loads((data / "manifest.json").read_text())["splits"][0]["shards"]],
                         [10, 10])
        self.refuses(2, ["--shard-samples", "'0x10' is not a whole number"], "pack", "synthetic", "--out", data,
                     "--shard-samples", "0x10", ranks=(1,))

    def test_words_of_commands(self):
        for words, said in ((["eval"], "--checkpoint is required; see renai eval --help"),
                            (["pack"], "see renai pack --help"),
                            (["pack", "folder", "photos"], "--out is required; see renai pack folder --help"),
                            (["--lr", "x"], "'x' is not a number; see renai train --help"),
                            (["pack", "folder", "photos", "more", "--out", "set"],
                             "renai pack folder does not take this argument; see renai pack folder --help"),
                            (["bench", "step", "--stps", "3"], "renai bench step has no such option; did you mean 'steps'?")):
            self.refuses(2, [said], *words, ranks=(1,))

    def test_recipe_files(self):
        recipe = self.folder / "recipe.toml"
        for text, texts in ((b'modle = "mlp"\n', ["recipe.toml:1", "modle", "'model'"]),
                            (b'seed = 2\nlr = "fast"\n', ["recipe.toml:2", "'lr'"]),
                            (b'lr = ""\n', ["recipe.toml:1", "'lr'"]),
                            (b"[section]\nlr = 0.1\n", ["recipe.toml", "section"]),
                            (b"[[lr]]\n", ["recipe.toml", "section"]),
                            (b"help = true\n", ["recipe.toml:1", "'help'", "no such option"]),
                            (b"no-nesterov = true\n", ["recipe.toml:1", "'no-nesterov'", "write nesterov = false"]),
                            (b"no-bn-weight-decay = false\n", ["'no-bn-weight-decay'", "write bn-weight-decay = false"]),
                            (b"no-such-thing = true\n", ["'no-such-thing'", "no such option"]),
                            (b"\nnesterov = 5\n", ["recipe.toml:2", "'nesterov'", "'5' is neither true nor false"]),
                            (b'nesterov = "true"\n', ["recipe.toml:1", "'nesterov'", "neither true nor false"]),
                            (b'nesterov = ""\n', ["recipe.toml:1", "'nesterov'", "neither true nor false"]),
                            (b"lr = {a = 1}\n", ["recipe.toml:1", "'lr'", "exactly one value"]),
                            (b"lr = 1979-05-27\n", ["recipe.toml:1", "'lr'", "exactly one value"]),
                            (b"lr = 0.1\n]]\n", ["recipe.toml:2", "not valid TOML"]),
                            (b'lr = 0.1\nmodel = "mlp\n', ["recipe.toml:2", "not valid TOML"]),
                            (b'lr = 0.1\nmodel = mlp\n', ["recipe.toml:2", "not valid TOML"]),
                            (b'lr = 0.1\nmodel = "\xff\xfe"\n', ["recipe.toml:2", "not valid TOML"])):
            recipe.write_bytes(text)
            self.train(2, texts, "--config", recipe, ranks=(1,))

    def test_texts_that_are_no_files(self):
        folder, pipe, device, large = (self.folder / f"{name}.toml" for name in ("folder", "pipe", "device", "large"))
        folder.mkdir()
        os.mkfifo(pipe)
        device.symlink_to("/dev/zero")
        with large.open("wb") as file:
            file.truncate(1 << 32)
        for option in ("--model", "--config"):
            for path, why in ((folder, "it is a folder"), (pipe, "a pipe or a device"), (device, "a pipe or a device"),
                              (large, "it has 4096 MiB"), (self.folder / "none.toml", "no such file")):
                self.train(2, [str(path), why], option, path, ranks=(1,))

    def test_a_trace_replaces_no_other_file(self):
        before = {path: path.read_bytes() for path in self.data.iterdir()}
        for path in before:
            self.train(2, [str(path), "is no trace"], "--trace", path, ranks=(1,))
        self.train(2, ["metrics.jsonl", "of its own"], "--trace", self.folder / "run" / "metrics.jsonl")
        self.assertEqual({path: path.read_bytes() for path in self.data.iterdir()}, before)
        self.assertFalse((self.folder / "run").exists())

    def test_a_run_that_ends_in_no_numbers_has_failed(self):
        self.train(2, ["validation after step 2", "not finite", "lower --lr"], "--model", "mlp", "--lr", "1e30",
                   "--warmup-epochs", 0)
        summary = json.loads((self.folder / "run" / "summary.json").read_text())
        self.assertEqual((summary["status"], summary["steps"], summary["val_loss"]), ("failed", 2, None))
        self.assertFalse((self.folder / "run" / "checkpoints").exists())

    def test_useless_weights_push_no_good_checkpoint_out(self):
        rates = ["--lr", "1e30", "--lr-schedule", "piecewise", "--lr-points", "1e-31@0,1e-31@1,1@1.01", "--warmup-epochs", 0]
        self.train(2, ["training diverged", "5 steps in a row"], "--model", "mlp", *rates, "--steps", 30, "--max-bad-steps", 5,
                   "--checkpoint-every", 1, "--keep", 3, ranks=(2,))
        names = sorted(path.name for path in (self.folder / "run" / "checkpoints").glob("*.h5"))
        # The rate leaps in step 5, which still has finite gradients.
        self.assertEqual(names, ["step-00000003.h5", "step-00000004.h5", "step-00000005.h5"])

    def test_ranks_must_divide_shards(self):
        self.train(2, ["3 ranks", "use 2 or 4 ranks"], ranks=(3,))
        self.train(2, ["4 ranks with --logical-shards 2", "use 2 ranks"], "--logical-shards", 2, ranks=(4,))

    def test_data_sets(self):
        shard = "train-00001-of-00003.h5"

        def missing(path):
            (path / shard).unlink()

        def truncated(path):
            raw = (path / shard).read_bytes()
            (path / shard).write_bytes(raw[:len(raw) // 2])

        def count(path):
            text = (path / "manifest.json").read_text()
            self.assertIn("\"samples\": 40", text)
            (path / "manifest.json").write_text(text.replace("\"samples\": 40", "\"samples\": 41", 1))

        def broken(path):
            (path / "manifest.json").write_text("{")

        def few_classes(path):
            manifest = json.loads((path / "manifest.json").read_text())
            manifest["classes"] = manifest["classes"][:4]
            (path / "manifest.json").write_text(json.dumps(manifest))

        for number, (damage, texts) in enumerate(((missing, [shard]), (truncated, [shard]), (count, ["41"]),
                                                  (broken, ["manifest.json"]), (few_classes, ["label"]))):
            data = self.folder / f"damaged{number}"
            shutil.copytree(self.data, data)
            damage(data)
            self.train(3, texts, data=data)
        self.train(2, ["nowhere"], data=self.folder / "nowhere")
        self.refuses(2, ["nowhere"], "inspect", self.folder / "nowhere", ranks=(1,))

    def test_too_few_samples(self):
        data = self.pack_idx(7, 7, source="seven", out="seven-data")
        self.train(2, ["7 samples", "--logical-shards 8"], data=data)

    def test_run_directory_that_cannot_be_written(self):
        (self.folder / "file").write_text("")
        self.refuses(4, ["file"], "train", "--data", self.data, "--run-dir", self.folder / "file" / "run", "--steps", 1,
                     "--global-batch", 32)

    def test_names_that_no_file_can_have(self):
        name = "n" * 300
        for words in (["inspect", name], ["verify", name], ["verify", "--adopt", name], ["trace-diff", name, name],
                      ["eval", "--checkpoint", name, "--data", self.data], ["bench", "data", name],
                      *(["pack", kind, name, "--out", self.folder / "out"] for kind in ("idx", "cifar", "hdf5", "folder"))):
            self.refuses(2, [name], *words, ranks=(1,))
        self.train(2, [name], data=name, ranks=(1,))
        for option in ("--val-data", "--config", "--init-from", "--resume"):
            self.train(2, [name], option, name, ranks=(1,))

    def test_checkpoints(self):
        (self.folder / "no.h5").write_text("no HDF5")
        self.train(2, ["--resume yes; there is no such file; use auto, no, or"], "--resume", "yes", ranks=(1, 2))
        self.train(2, ["none.h5; there is no such file; give"], "--init-from", self.folder / "none.h5", ranks=(1,))
        self.train(2, ["none.h5; there is no such file; use auto"], "--resume", self.folder / "none.h5", ranks=(1,))
        self.assertFalse((self.folder / "run").exists(), "a refused command line begins no run")
        for words, name, ranks in ((["--init-from"], "no.h5", (1, 2)), (["--resume"], "no.h5", (1,))):
            self.train(3, [name], *words, self.folder / name, ranks=ranks)
            summary = json.loads((self.folder / "run" / "summary.json").read_text())
            self.assertEqual(summary["status"], "failed")
            self.assertIn(name, summary["error"])
        self.refuses(3, ["no.h5"], "eval", "--checkpoint", self.folder / "no.h5", ranks=(1, 2))

    def denied(self, texts, path, *words):
        """A file that is there but may not be read: exit 4, whatever kind it is. The superuser may read everything."""
        mode = path.stat().st_mode & 0o777
        path.chmod(0)
        user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        try:
            process = subprocess.run([renai_cli.renai(), *map(str, words)], env=renai_cli.environment(), text=True, timeout=60,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, cwd="/", **user)
        finally:
            path.chmod(mode)
        with self.subTest(words=[str(word) for word in words]):
            self.fails(process, 4, path.name, "Permission denied", *texts)

    def test_files_that_may_not_be_read(self):
        idx, out = self.folder / "idx", self.folder / "open"
        out.mkdir()
        self.folder.chmod(0o755)
        out.chmod(0o777)
        train = ["train", "--data", self.data, "--run-dir", out / "run", "--global-batch", 32, "--steps", 2]
        shard, manifest = self.data / "train-00001-of-00003.h5", self.data / "manifest.json"
        for path in (shard, manifest, self.data):
            for words in (train, ["inspect", self.data], ["verify", self.data], ["bench", "data", self.data]):
                self.denied([], path, *words)
        self.denied([], shard, "inspect", shard)
        self.denied([], shard, "verify", shard)
        model, recipe, checkpoint, trace = (out / name for name in ("net.toml", "recipe.toml", "weights.h5", "a.trace"))
        for path in (model, recipe, checkpoint, trace):
            path.write_bytes(shard.read_bytes() if path == checkpoint else b"x")
        self.denied([], model, *train, "--model", model)
        self.denied([], recipe, *train, "--config", recipe)
        for words in ([*train, "--resume", checkpoint], [*train, "--init-from", checkpoint], ["inspect", checkpoint],
                      ["eval", "--checkpoint", checkpoint], ["verify", checkpoint]):
            self.denied([], checkpoint, *words)
        self.denied([], trace, "trace-diff", trace, trace)
        pack = ["--out", out / "set"]
        for name in ("train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"):
            self.denied([], idx / name, "pack", "idx", idx, *pack)
        self.denied([], recipe, "pack", "idx", idx, *pack, "--class-names", recipe)
        cifar = out / "cifar"
        cifar.mkdir()
        (cifar / "train.bin").write_bytes(bytes(3074 * 4))
        self.denied([], cifar / "train.bin", "pack", "cifar", cifar, *pack)
        self.denied([], checkpoint, "pack", "hdf5", checkpoint, *pack)
        photos = self.folder / "photos"
        renai_cli.write_photos(photos, classes=2, images=4)
        for path in (sorted(photos.glob("*/*.jpg"))[3], sorted(photos.iterdir())[1], photos):
            for number, words in enumerate(([], ["--skip-bad"])):
                self.denied([], path, "pack", "folder", photos, "--out", out / f"photos{number}", *words)
        self.denied([], photos, "pack", "cifar", photos, *pack)

    def test_limits_of_open_files(self):
        """Four shards: where few files may be open they are read none the less, and refused with what it takes."""
        words = [renai_cli.renai(), "train", "--data", self.data, "--run-dir", self.folder / "run", "--global-batch", 32,
                 "--steps", 2, "--device", "cpu"]
        for limit, number in (("-Sn", 24), ("-n", 160)):
            self.succeeds(renai_cli.run(["sh", "-c", f'ulimit {limit} {number} && exec "$@"', "sh", *words]))
        self.fails(renai_cli.run(["sh", "-c", 'ulimit -n 40 && exec "$@"', "sh", *words]), 4,
                   "a process may have 40 files open here, and needs ")

    def test_names_of_nothing(self):
        """What the command line names and is not there, or is a folder where a file is meant: exit 2, whatever kind it is."""
        none, folder = self.folder / "none", self.folder / "idx"
        train = ["train", "--data", self.data, "--run-dir", self.folder / "run", "--global-batch", 32, "--steps", 2]
        for path, why in ((none, "no such"), (folder, "a folder")):
            for words in ([*train, "--config"], [*train, "--resume"], [*train, "--init-from"], ["eval", "--checkpoint"],
                          ["pack", "hdf5", "--out", self.folder / "new"]):
                self.refuses(2, [path.name, why], *words, path, ranks=(1,))
            self.refuses(2, [path.name, why], "trace-diff", path, path, ranks=(1,))
        for words in (["trace-diff", self.folder / ("a" * 300)], [*train, "--init-from"]):
            self.refuses(2, ["too long"], *words, self.folder / ("a" * 300), ranks=(1,))
        (self.folder / "net.toml").mkdir()
        self.refuses(2, ["net.toml", "a folder"], *train, "--model", self.folder / "net.toml", ranks=(1,))
        self.refuses(2, ["other.toml", "no such"], *train, "--model", self.folder / "other.toml", ranks=(1,))
        for kind in ("idx", "cifar", "folder"):
            self.refuses(2, ["none", "no such"], "pack", kind, none, "--out", self.folder / "new", ranks=(1,))
        for path, why in ((none, "no such"), (folder, "a folder")):
            self.refuses(2, ["class names", path.name, why], "pack", "idx", folder, "--out", self.folder / "new",
                         "--class-names", path, ranks=(1,))
        for command in ("inspect", "verify"):
            self.refuses(2, ["none", "no such"], command, none, ranks=(1,))
        (self.folder / "run").mkdir()
        (self.folder / "run" / "metrics.jsonl").write_text("")
        (self.folder / "run" / "recipe.toml").write_text("")
        self.refuses(3, ["no checkpoint"], "verify", self.folder / "run", ranks=(1,))

    def test_recipes_that_differ_between_ranks(self):
        script = self.folder / "start.sh"
        script.write_text("#!/bin/sh\nif [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then more='--lr 0.07'; fi\n"
                          f"exec {renai_cli.renai()} train --data {self.data} --run-dir {self.folder}/run --global-batch 32 "
                          "--steps 2 $more\n")
        script.chmod(0o755)
        start = time.monotonic()
        process = renai_cli.run([renai_cli.SOURCE / "ci" / "mpiexec.sh", 2, script])
        self.assertLess(time.monotonic() - start, LIMIT_SECONDS)
        self.fails(process, 2, "lr = 0.07", "recipe")


if __name__ == "__main__":
    renai_cli.main()
