#!/usr/bin/env python3
"""Runs every command of README.md in a folder that looks like the checkout, with small data and a few steps a run."""

import re
import stat
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
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
        self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "idx", "idx", "--out", "datasets/fashion-mnist"],
                                    cwd=self.folder))

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def test_the_first_block_is_the_two_commands(self):
        directive, commands = blocks()[0]
        self.assertEqual(directive, "covered elsewhere")
        self.assertEqual(commands.split(), ["./launch/quickstart.sh", "./ci/test.sh"])
        for command in commands.split():
            self.assertTrue((renai_cli.SOURCE / command).stat().st_mode & stat.S_IXUSR, command)

    def test_every_other_command_works(self):
        ran = 0
        for directive, commands in blocks()[1:]:
            if directive:
                self.assertIn(directive, ("slurm", "needs GPUs"))
                continue
            text = "set -euo pipefail\n" + commands.replace(PUBLISHED, str(self.folder / "idx"))
            process = renai_cli.run(["bash", "-c", text], cwd=self.folder, timeout=420)
            self.assertEqual(process.returncode, 0, f"{commands}\n{process.stdout}")
            if "trace-diff" in commands:
                self.assertIn("identical", process.stdout)
            ran += 1
        self.assertGreaterEqual(ran, 6)

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
