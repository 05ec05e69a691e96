#!/usr/bin/env python3
"""Standard streams that are closed, full or that nobody reads, files that may not grow, and settings of one rank alone."""

import json
import resource
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import h5py  # noqa: E402
import renai_cli  # noqa: E402


class StreamsTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data, self.run_dir = self.pack_idx(64, 16), self.folder / "run"

    def words(self, *more):
        return ["train", "--data", self.data, "--model", "lenet5", "--global-batch", "16", "--run-dir", self.run_dir,
                "--device", "cpu", "--log-every", "1", *more]

    def shell(self, text, *words):
        """`text` with "$@" for the program and its words."""
        return subprocess.run(["bash", "-c", text, "bash", renai_cli.renai(), *(str(word) for word in words)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                              env=renai_cli.environment(), check=False)

    def completed(self, steps):
        summary = json.loads((self.run_dir / "summary.json").read_text())
        self.assertEqual((summary["status"], summary["steps"]), ("completed", steps))
        lines = [json.loads(line) for line in (self.run_dir / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines if line["kind"] == "train"], list(range(1, steps + 1)))
        self.succeeds(renai_cli.run([renai_cli.renai(), "verify", self.run_dir]))

    def test_closed_streams(self):
        """What is printed does not go into the file that is opened next."""
        process = self.shell('"$@" <&- >&- 2>&-', *self.words("--steps", "6"))
        self.assertEqual(process.returncode, 0)
        self.completed(6)

    def test_a_reader_that_goes(self):
        process = self.shell('set -o pipefail; "$@" | head -n 1', *self.words("--steps", "200"))
        self.assertEqual(process.returncode, 0, process.stdout)
        self.completed(200)

    def test_output_to_a_full_disk(self):
        process = self.shell('"$@" >/dev/full', *self.words("--steps", "6"))
        self.assertEqual(process.returncode, 0, process.stdout)
        self.completed(6)
        for words in (("inspect", self.data), ("verify", self.data), ("--version",)):
            process = self.shell('"$@" >/dev/full', *words)
            self.fails(process, 4, "standard output cannot be written", "space")

    def test_files_that_may_not_grow(self):
        """As a quota ends a write: an error with the file's name, and no half checkpoint."""
        most = 300000  # Bytes; a checkpoint of lenet5 has more, its logs have less.
        process = subprocess.run([renai_cli.renai(), *map(str, self.words("--steps", "6"))], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, timeout=120, env=renai_cli.environment(),
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
        self.fails(process, 4, str(self.run_dir / "checkpoints"), "ulimit -f")
        self.assertEqual([path.name for path in (self.run_dir / "checkpoints").glob("*")], [])
        self.assertEqual(json.loads((self.run_dir / "summary.json").read_text())["status"], "failed")

    def test_weights_that_are_no_numbers(self):
        self.succeeds(renai_cli.run([renai_cli.renai(), *self.words("--steps", "2")]))
        with h5py.File(self.run_dir / "checkpoints" / "step-00000002.h5", "r") as file:
            values = {name: file["weights"][name][()] for name in file["weights"]}
        for bad, text in ((float("nan"), "a NaN"), (float("-inf"), "an infinity")):
            values["conv2.weight"].flat[7] = bad
            start = self.folder / "start.h5"
            with h5py.File(start, "w") as file:
                for name, array in values.items():
                    file["weights/" + name] = array
            process = renai_cli.run([renai_cli.renai(), *self.words("--steps", "2", "--init-from", start)])
            self.fails(process, 3, str(start), "'conv2.weight' holds " + text + " at element 7")

    def test_variances_below_zero(self):
        """Their root would be no number, which a relu behind it may hide."""
        model = ("--model", "cnn-small")
        self.succeeds(renai_cli.run([renai_cli.renai(), *self.words("--steps", "2", *model)]))
        start = self.folder / "start.h5"
        with h5py.File(self.run_dir / "checkpoints" / "step-00000002.h5", "r") as file, h5py.File(start, "w") as other:
            for group in ("weights", "bn_running"):
                for name in file[group]:
                    other[f"{group}/{name}"] = file[group][name][()]
            other["bn_running/layer2.bn.running_mean"][5] = -1.0
        train = [renai_cli.renai(), *self.words("--steps", "2", *model, "--init-from", start)]
        self.succeeds(renai_cli.run(train))
        with h5py.File(start, "r+") as file:
            file["bn_running/layer2.bn.running_var"][5] = -1e-30
        self.fails(renai_cli.run(train), 3, str(start), "'layer2.bn.running_var' is negative at element 5")

    def test_capture_on_some_ranks(self):
        command = ["bash", "-c", '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export RENAI_UNCAPTURED=1; exec "$@"', "bash",
                   renai_cli.renai(), *self.words("--steps", "2")]
        process = renai_cli.run([renai_cli.SOURCE / "ci" / "mpiexec.sh", 2, *command])
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("RENAI_UNCAPTURED", process.stdout)
        self.assertIn("rank 1", process.stdout)


if __name__ == "__main__":
    renai_cli.main()
