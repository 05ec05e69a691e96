#!/usr/bin/env python3
"""What a continued or evaluated run may differ in: nothing that changes a bit; and a refusal leaves the run as it was."""

import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

MODEL = """name = "small"
[[layers]]
type = "flatten"
[[layers]]
name = "hidden"
type = "linear"
out = 16
[[layers]]
type = "relu"
[[layers]]
name = "fc"
type = "linear"
out = "classes"
"""


class ResumeTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack("data", 128)
        self.model = self.folder / "model.toml"
        self.model.write_text(MODEL)
        self.run_dir = self.folder / "run"

    def pack(self, name, train):
        return self.pack_idx(train, 32, source=f"{name}-idx", out=name)

    def train(self, *words, data=None, run_dir=None):
        return renai_cli.run([renai_cli.renai(), "train", "--data", data or self.data, "--model", self.model, "--run-dir",
                              run_dir or self.run_dir, "--global-batch", 32, "--steps", 4, *words])

    def evaluate(self, *words):
        checkpoint = self.run_dir / "checkpoints" / "step-00000004.h5"
        output = self.succeeds(renai_cli.run([renai_cli.renai(), "eval", "--checkpoint", checkpoint, "--json", *words]))
        return json.loads(output.splitlines()[-1])

    def summary(self):
        return json.loads((self.run_dir / "summary.json").read_text())

    def test_another_run_is_refused_and_nothing_is_written(self):
        self.succeeds(self.train())
        before = {path: path.read_bytes() for path in self.run_dir.rglob("*") if path.is_file()}
        other = self.pack("other", 129)
        self.fails(self.train("--resume", "auto", data=other), 2, "the data set differs")
        self.fails(self.train("--resume", "auto", "--lr", "0.5"), 2, "lr = ")
        self.fails(self.train("--resume", "auto", "--threads", "2"), 2, "threads = ")
        self.model.write_text(MODEL.replace("relu", "tanh"))
        self.fails(self.train("--resume", "auto"), 2, "the model differs")
        self.fails(self.train("--augment", "flop"), 2, "flop")
        after = {path: path.read_bytes() for path in self.run_dir.rglob("*") if path.is_file()}
        self.assertEqual(before, after)

    def test_a_failure_before_the_first_step_is_told(self):
        """On --resume no summary of an earlier attempt stays: neither for a damaged checkpoint nor for damaged data."""
        shard = next(self.data.glob("train-*.h5"))
        whole = shard.read_bytes()
        for damage in (lambda: shard.write_bytes(whole[:100]),
                       lambda: (self.run_dir / "checkpoints" / "step-00000004.h5").write_bytes(b"no HDF5")):
            self.succeeds(self.train())
            self.assertEqual(self.summary()["status"], "completed")
            damage()
            self.fails(self.train("--resume", self.run_dir / "checkpoints" / "step-00000004.h5"), 3)
            self.assertEqual(self.summary()["status"], "failed")
            self.assertTrue(self.summary()["error"])
            shard.write_bytes(whole)
            shutil.rmtree(self.run_dir)

    def test_moved_data_is_the_same_data(self):
        self.succeeds(self.train())
        moved = self.folder / "moved"
        self.data.rename(moved)
        again = self.succeeds(self.train("--resume", "auto", data=moved))
        self.assertRegex(again, r"completed after 4 steps: .*, no speed measured, digest ")

    def test_trace_is_continued(self):
        whole, parts = self.folder / "whole.trace", self.folder / "parts.trace"
        self.succeeds(self.train("--trace", whole, "--lr-schedule", "constant", run_dir=self.folder / "whole"))
        more = ["--trace", parts, "--lr-schedule", "constant", "--checkpoint-every", "1"]
        process = self.train(*more, "--inject-fault", "exit@2:0")
        self.assertNotEqual(process.returncode, 0)
        self.succeeds(self.train(*more, "--resume", "auto"))
        self.identical(whole, parts, 4)

    def test_what_a_killed_run_left_half_written(self):
        """The last lines of its files, steps after its checkpoint, a checkpoint at work; and a run continued at its end."""
        options = ["--lr-schedule", "constant", "--log-every", "1", "--checkpoint-every", "2", "--keep", "9"]
        whole, parts = self.folder / "whole", self.run_dir
        self.succeeds(self.train(*options, "--trace", self.folder / "whole.trace", run_dir=whole))
        more = [*options, "--trace", self.folder / "parts.trace"]
        self.assertNotEqual(self.train(*more, "--inject-fault", "exit@3:0").returncode, 0)
        for path in (parts / "metrics.jsonl", self.folder / "parts.trace"):
            with open(path, "a") as file:
                file.write('{"kind":"train","st')
        (parts / "checkpoints" / "step-00000003.h5.77-0.partial").write_text("half")

        def lines(folder):
            return [(line["kind"], line["step"]) for line in
                    map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())]

        for _ in range(2):
            self.succeeds(self.train(*more, "--resume", "auto"))
            self.assertEqual(lines(parts), lines(whole))
            losses = [json.loads((folder / "summary.json").read_text())["train_loss"] for folder in (parts, whole)]
            self.assertEqual(losses[0], losses[1])
            self.identical(self.folder / "whole.trace", self.folder / "parts.trace", 4)
            self.assertEqual([path for path in parts.rglob("*.partial")], [])

    def test_evaluation_needs_neither_the_model_file_nor_the_training_set(self):
        other = self.pack("other", 77)
        self.succeeds(self.train("--val-data", other))
        self.model.unlink()
        shutil.rmtree(self.data)
        result = self.evaluate("--data", other)
        self.assertEqual(result["top1"], self.summary()["val_top1"])
        self.assertEqual(result["loss"], self.summary()["val_loss"])

    def test_evaluation_of_a_model_with_flattened_maps(self):
        self.model = "lenet5"
        self.succeeds(self.train())
        result = self.evaluate("--data", self.data)
        self.assertEqual(result["top1"], self.summary()["val_top1"])
        self.assertEqual(result["loss"], self.summary()["val_loss"])

    def test_evaluation_chooses_its_own_precision(self):
        """A checkpoint trained in another precision than this machine computes in can be evaluated here."""
        self.succeeds(self.train())
        checkpoint = self.run_dir / "checkpoints" / "step-00000004.h5"
        process = renai_cli.run([renai_cli.renai(), "eval", "--checkpoint", checkpoint, "--device", "cpu", "--precision", "bf16"])
        self.fails(process, 2, "--precision bf16 with --device cpu", "use --precision fp32")
        self.assertEqual(self.evaluate("--precision", "fp32")["loss"], self.summary()["val_loss"])

    def test_evaluation_mixes_nothing(self):
        self.succeeds(self.train("--mixup", 0.2, "--cutmix", 1, "--random-erasing", 0.5, "--accumulate", 2))
        # One row a logical shard, with which training would have no partners.
        self.assertEqual(self.evaluate("--global-batch", 8)["images"], 32)

    def test_earlier_run_is_moved_aside(self):
        self.succeeds(self.train())
        digest = self.summary()["digest"]
        self.succeeds(self.train("--seed", "2", run_dir=str(self.run_dir) + "/"))
        self.assertNotEqual(self.summary()["digest"], digest)
        self.assertEqual(json.loads((self.folder / "run.1" / "summary.json").read_text())["digest"], digest)

    def test_the_resolved_recipe_reads_back_as_the_same_recipe(self):
        self.model = self.folder / 'small "quoted" \\ model.toml'
        self.model.write_text(MODEL)
        self.succeeds(self.train("--no-nesterov", "--bn-weight-decay", "--lr", "0.1234567890123456789",
                                 "--weight-decay", "1e-7", "--seed", "9223372036854775807",
                                 "--resolution", "28", "--epochs", "2.5", "--clip-norm", "12345678901234567168"))
        written, digest = (self.run_dir / "recipe.toml").read_text(), self.summary()["digest"]
        for line in ("nesterov = false", "bn-weight-decay = true", 'val-data = ""', "seed = 9223372036854775807"):
            self.assertIn(line, written.splitlines())
        self.succeeds(renai_cli.run([renai_cli.renai(), "train", "--config", self.run_dir / "recipe.toml"]))
        self.assertEqual((self.run_dir / "recipe.toml").read_text(), written)
        self.assertEqual(self.summary()["digest"], digest)
        self.assertTrue((self.folder / "run.1").is_dir())

    def test_the_command_line_wins_over_the_recipe(self):
        recipe = self.folder / "recipe.toml"
        recipe.write_text('nesterov = true\nbn-weight-decay = false\nlr = 5e-2\nresolution = 28\nplan-cache = ""\n')
        self.succeeds(self.train("--config", recipe, "--no-nesterov"))
        lines = (self.run_dir / "recipe.toml").read_text().splitlines()
        for line in ("nesterov = false", "bn-weight-decay = false", "lr = 0.05", 'resolution = "28"', 'plan-cache = ""'):
            self.assertIn(line, lines)

    def test_values_out_of_range(self):
        table = [(["--seed", "-1"], "-1"), (["--seed", "9223372036854775808"], "seed"), (["--lr", ""], "lr"),
                 (["--threads", "100000"], "at most 1024"), (["--loader-threads", "2147483647"], "at most 256"),
                 (["--epochs", "1e300"], "at most"), (["--global-batch", "9223372036854775807"], "at most"),
                 (["--steps", "99999999999999999999"], "in range"), (["--watchdog-seconds", "1e300"], "between"),
                 (["--run-dir", "a\nb"], "control character")]
        for words, text in table:
            with self.subTest(words=words):
                self.fails(self.train(*words), 2, text)
        recipe = self.folder / "recipe.toml"
        for text, said in (("lr = [0.1, 0.2]\n", "exactly one value"), ("lr = 0.1\nlr = 0.2\n", "recipe.toml:2")):
            recipe.write_text(text)
            self.fails(self.train("--config", recipe), 2, said)

    def test_models_too_large_for_any_machine(self):
        for layers in ('[[layers]]\ntype = "conv2d"\nkernel = 1\nout = 1048576\npadding = 524274\n',
                       '[[layers]]\ntype = "concat"\ninputs = ["previous", "previous"]\n' * 62):
            self.model.write_text('name = "large"\n' + layers + '[[layers]]\ntype = "flatten"\n[[layers]]\nname = "fc"\n'
                                  'type = "linear"\nout = "classes"\n')
            self.fails(self.train(), 2, "too large")

    def test_without_validation_nothing_is_claimed(self):
        manifest = json.loads((self.data / "manifest.json").read_text())
        splits = manifest["splits"]
        manifest["splits"] = ({name: split for name, split in splits.items() if name != "val"} if isinstance(splits, dict)
                              else [split for split in splits if split["name"] != "val"])
        (self.data / "manifest.json").write_text(json.dumps(manifest))
        self.assertIn("no validation", self.succeeds(self.train()))
        self.assertIsNone(self.summary()["val_top1"])


if __name__ == "__main__":
    renai_cli.main()
