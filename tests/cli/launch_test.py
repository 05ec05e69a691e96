#!/usr/bin/env python3
"""The launchers: quickstart from small files, what the CUDA leaves need, local and Slurm launchers, the default recipe."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

LAUNCH = renai_cli.SOURCE / "launch"


class QuickstartTest(renai_cli.FolderTest):
    def test_packs_once_and_trains(self):
        renai_cli.write_idx(self.folder / "idx")
        build = os.path.dirname(renai_cli.renai())
        for attempt in (1, 2):
            run = self.folder / f"run{attempt}"
            env = renai_cli.environment(RENAI_IDX=str(self.folder / "idx"), RENAI_DATA=str(self.folder / "data"),
                                        RENAI_BUILD=build, RENAI_RUN=str(run))
            output = self.succeeds(renai_cli.run([LAUNCH / "quickstart.sh", "--epochs", "2"], cwd="/", env=env))
            self.assertEqual("packing" in output, attempt == 1)
            self.assertNotIn("configuring", output)
            self.assertNotIn("\033[K", output, "a progress bar in a pipe")
            self.assertIn("\nepoch ", output)
            summary = json.loads((run / "summary.json").read_text())
            self.assertEqual(summary["status"], "completed")
            self.assertEqual(summary["world_size"], 2)
            last = output.strip().splitlines()[-1]
            self.assertIn(f"val_top1 {summary['val_top1']}", last)
            self.assertIn(f"digest {summary['digest']}", last)

    def test_missing_files_are_named(self):
        env = renai_cli.environment(RENAI_IDX=str(self.folder / "none"), RENAI_DATA=str(self.folder / "data"),
                                    RENAI_BUILD=os.path.dirname(renai_cli.renai()))
        self.fails(renai_cli.run([LAUNCH / "quickstart.sh"], env=env), 3, "set RENAI_IDX")


class CudaPackagesTest(renai_cli.FolderTest):
    """ci/dependencies.sh --cuda, with a GPU, nvcc and pip that are scripts of this test."""

    def setUp(self):
        super().setUp()
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("a GPU is here: its absence cannot be tried")
        (self.folder / "bin").mkdir()
        self.script("nvcc", 'echo "Cuda compilation tools, release 12.4, V12.4.131"')
        self.packages = self.folder / "build" / "python"

    def script(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def show_a_gpu(self):
        self.script("nvidia-smi", 'echo "GPU 0: a model (UUID: GPU-1)"')

    def fake_pip(self, text):
        """A python3 that finds no package, and whose pip does `text`."""
        self.script("python3", 'case "$*" in "-m pip --version") ;; -m*) ' + text + " ;; esac")

    def dependencies(self, *words):
        env = renai_cli.environment(PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}")
        env.pop("CUDACXX", None)
        return renai_cli.run([renai_cli.SOURCE / "ci" / "dependencies.sh", *words, self.packages], env=env)

    def require_no_front_end(self):
        for place in ("/usr/include", "/usr/local/include", "/usr/local/cuda/include"):
            if os.path.exists(f"{place}/cudnn_frontend.h"):
                self.skipTest("the front end is installed here")

    def test_nothing_without_a_gpu(self):
        self.fake_pip("exit 9")
        self.assertEqual(self.succeeds(self.dependencies("--cuda")), "")
        self.assertFalse(self.packages.exists())

    def test_fetched_once(self):
        self.require_no_front_end()
        self.fake_pip(f'echo "$*" >>{self.folder}/calls; mkdir -p {self.packages}/include; '
                      f"touch {self.packages}/include/cudnn_frontend.h")
        self.show_a_gpu()
        self.assertIn("nvidia-cudnn-frontend", self.succeeds(self.dependencies("--cuda")))
        self.assertEqual(self.succeeds(self.dependencies("--cuda")), "")
        self.assertEqual(self.succeeds(self.dependencies("--cuda-always")), "")
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual(len(calls), 1)
        self.assertIn("--no-deps", calls[0])
        self.assertIn(f"--target {self.packages}", calls[0])

    def test_no_network_is_said_and_is_no_failure(self):
        self.require_no_front_end()
        self.fake_pip('echo "no route to host"; exit 1')
        self.show_a_gpu()
        output = self.succeeds(self.dependencies("--cuda"))
        self.assertIn("no CUDA leaves: pip cannot fetch nvidia-cudnn-frontend", output)
        self.assertIn("no route to host", output)

    def test_a_folder_is_needed(self):
        process = renai_cli.run([renai_cli.SOURCE / "ci" / "dependencies.sh", "--cuda"])
        self.fails(process, 2, "needs a folder")


class LocalTest(renai_cli.FolderTest):
    def test_wrong_use(self):
        for words in ([], ["two", "train"], ["0", "train"], ["-1"]):
            with self.subTest(words=words):
                self.fails(renai_cli.run([LAUNCH / "local.sh", *words]), 2, "usage:")

    def test_missing_program(self):
        env = renai_cli.environment(RENAI=str(self.folder / "renai"))
        self.fails(renai_cli.run([LAUNCH / "local.sh", "1", "train"], env=env), 4, "is missing", "quickstart")

    def test_status_of_the_program_is_handed_on(self):
        env = renai_cli.environment(RENAI=renai_cli.renai())
        self.fails(renai_cli.run([LAUNCH / "local.sh", "2", "train", "--data", str(self.folder / "none")], env=env), 2)


class SlurmTest(renai_cli.FolderTest):
    def test_refuses_outside_slurm(self):
        env = renai_cli.environment()
        env.pop("SLURM_SUBMIT_DIR", None)
        process = renai_cli.run([LAUNCH / "slurm.sh"], env=env)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("sbatch", process.stdout)

    def test_missing_program(self):
        env = renai_cli.environment(SLURM_SUBMIT_DIR=str(self.folder))
        env.pop("RENAI", None)
        self.fails(renai_cli.run([LAUNCH / "slurm.sh"], env=env), 4, "is missing")


class RecipeTest(renai_cli.FolderTest):
    def test_the_default_recipe_is_the_written_one(self):
        """launch/recipes/fashion-mnist.toml says that it is what `renai train` does without options."""
        self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "synthetic", "--train", "256", "--val", "64", "--height", "28",
                                     "--width", "28", "--channels", "1", "--out", self.folder / "data"]))
        resolved = []
        for name, words in (("plain", []), ("recipe", ["--config", LAUNCH / "recipes" / "fashion-mnist.toml"])):
            run = self.folder / name
            self.succeeds(renai_cli.run([renai_cli.renai(), "train", *words, "--data", self.folder / "data", "--run-dir", run,
                                         "--steps", "1"]))
            lines = (run / "recipe.toml").read_text().splitlines()
            resolved.append([line for line in lines if not line.startswith("run-dir")])
        self.assertEqual(resolved[0], resolved[1])


if __name__ == "__main__":
    renai_cli.main()
