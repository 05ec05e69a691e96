#!/usr/bin/env python3
"""Runs every command of README.md in a folder that looks like the checkout, with small data and a few steps a run.

A line <!-- readme-test: ... --> in front of a block says what becomes of it:
  covered elsewhere    it is not run here: it installs, builds or tests all of renai; its scripts and options must exist
  slurm                it is run with a stand-in for Slurm
  gpus N               it is run where N GPUs are and the build can use them; skipped with the reason elsewhere
All other blocks are run on the CPU.
"""

import os
import re
import stat
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import device_cli  # noqa: E402
import renai_cli  # noqa: E402

PUBLISHED = "/usr/share/datasets/fashion-mnist"
STEPS = 3
# Training runs are cut to a few steps; everything else reaches the program as written.
WRAPPER = """#!/bin/bash
case ${{1:-train}} in train|-*) case " $* " in *" --dry-run "*) ;; *) set -- "$@" --steps {steps} ;; esac ;; esac
exec {renai} "$@"
"""


def blocks():
    """(directive, commands) of each sh block."""
    text = (renai_cli.SOURCE / "README.md").read_text()
    found = re.findall(r"(?:<!-- readme-test: ([^>]*) -->\n)?```sh\n(.*?)```", text, re.DOTALL)
    assert text.count("```sh") == len(found)
    return found


class ReadmeTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        (self.folder / "build").mkdir()
        self.script("build/renai", WRAPPER.format(steps=STEPS, renai=renai_cli.renai()))
        for name in ("launch", "ci"):
            (self.folder / name).symlink_to(renai_cli.SOURCE / name)
        renai_cli.write_idx(self.folder / "idx")
        renai_cli.write_photos(self.folder / "photos")
        self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "idx", "idx", "--out", "datasets/fashion-mnist"],
                                    cwd=self.folder))

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_block(self, commands, env=None, timeout=420):
        text = "set -euo pipefail\n" + commands.replace(PUBLISHED, str(self.folder / "idx"))
        process = renai_cli.run(["bash", "-c", text], cwd=self.folder, env=env, timeout=timeout)
        self.assertEqual(process.returncode, 0, f"{commands}\n{process.stdout}")
        if "trace-diff" in commands:
            self.assertIn("identical", process.stdout)
        return process.stdout

    def test_the_first_block_is_the_two_commands(self):
        directive, commands = blocks()[0]
        self.assertEqual(directive, "covered elsewhere")
        self.assertEqual(commands.split(), ["./launch/quickstart.sh", "./ci/test.sh"])

    def test_what_is_covered_elsewhere_exists(self):
        cmake = "".join(path.read_text() for path in [renai_cli.SOURCE / "CMakeLists.txt",
                                                      *(renai_cli.SOURCE / "ci" / "cmake").glob("*.cmake")])
        stages = (renai_cli.SOURCE / "ci" / "test.sh").read_text()
        for directive, commands in blocks():
            if directive != "covered elsewhere":
                continue
            for script in re.findall(r"[\w./]+\.sh\b", commands):
                self.assertTrue((renai_cli.SOURCE / script).stat().st_mode & stat.S_IXUSR, script)
            for option in re.findall(r"-D(RENAI_\w+)=", commands):
                self.assertRegex(cmake, rf"(set|option)\({option} .*")
            for stage in re.findall(r"ci/test\.sh (\w+)", commands):
                self.assertIn(f"\n    {stage})\n", stages)

    def test_every_other_command_works(self):
        ran = 0
        for directive, commands in blocks():
            self.assertRegex(directive, r"^(|covered elsewhere|slurm|gpus [1-8])$")
            if not directive:
                self.run_block(commands, renai_cli.environment(CUDA_VISIBLE_DEVICES=""))
                ran += 1
        self.assertGreaterEqual(ran, 6)

    def run_gpu_blocks(self, gpus):
        """Blocks that need so many GPUs."""
        chosen = [commands for directive, commands in blocks() if directive == f"gpus {gpus}"]
        self.assertTrue(chosen)
        if os.environ.get("RENAI_HAVE_CUDA", "ON") == "OFF":
            raise unittest.SkipTest("this build has no CUDA leaves")
        if len(device_cli.GPUS) < gpus:
            raise unittest.SkipTest(f"{len(device_cli.GPUS) or 'no'} GPU here, {gpus} needed")
        for commands in chosen:
            self.run_block(commands, renai_cli.environment(XDG_CACHE_HOME=str(self.folder / "cache")))

    def test_commands_for_one_gpu(self):
        self.run_gpu_blocks(1)

    def test_commands_for_two_gpus(self):
        self.run_gpu_blocks(2)

    def test_slurm_hands_the_options_on(self):
        commands = [text for directive, text in blocks() if directive == "slurm"]
        self.assertEqual(len(commands), 1)
        words = commands[0].split()
        script = words.index("launch/slurm.sh")
        self.assertEqual(words[0], "sbatch")
        # What srun would start, started on one rank: the options must be those that `renai train` takes.
        self.script("srun", '#!/bin/bash\n[ "$1" = --mpi=pmix ] && [ "$2" = --cpu-bind=cores ] || exit 9\nshift 2\nexec "$@"\n')
        env = renai_cli.environment(SLURM_SUBMIT_DIR=str(self.folder), SLURM_JOB_ID="17")
        env["PATH"] = f"{self.folder}:{env['PATH']}"
        env.pop("RENAI", None)
        # Slurm runs a copy of the script from a folder of its own.
        copy = self.folder / "slurm_script"
        copy.write_text((renai_cli.SOURCE / words[script]).read_text())
        self.succeeds(renai_cli.run(["bash", copy, *words[script + 1:]], cwd="/", env=env))
        self.assertTrue((self.folder / "runs/slurm-17/summary.json").exists())


if __name__ == "__main__":
    renai_cli.main()
