#!/usr/bin/env python3
"""renai bench: its synthetic data on one host and on several, whose temporary folders are their own."""

import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

WORDS = ["bench", "step", "--model", "mlp", "--global-batch", 16, "--image-size", 8, "--steps", 2, "--warmup", 1, "--json"]


class BenchStepTest(renai_cli.FolderTest):
    def check(self, process, ranks):
        result = json.loads(next(line for line in self.succeeds(process).splitlines() if line.startswith("{")))
        self.assertEqual(result["world_size"], ranks)
        self.assertEqual(result["steps"], 2)

    def test_ranks_of_one_host_share_the_data(self):
        env = renai_cli.environment(TMPDIR=str(self.folder))
        self.check(renai_cli.on_ranks(2, *WORDS, env=env), 2)
        self.assertEqual(list(self.folder.glob("renai-bench-*")), [])

    def test_the_proof_is_of_the_gradients(self):
        """Adam's first step is the sign of the gradient, which rounding decides where it is small."""
        words = ["bench", "step", "--model", "resnet9", "--global-batch", 16, "--steps", 2, "--image-size", 32, "--json"]
        for more in (["--optimizer", "adam"], ["--freeze-until", "first@1000"]):
            report = json.loads(self.succeeds(renai_cli.run([renai_cli.renai(), *words, *more])).splitlines()[-1])
            self.assertLess(report["deviation_from_reference"], 1e-3)
            self.assertGreater(report["deviation_from_reference"], 0)

    def test_the_proof_of_fifty_layers(self):
        """Rounding of one layer must not be enlarged by the next ones until the proof says nothing."""
        words = ["bench", "step", "--model", "resnet50", "--device", "cpu", "--global-batch", 4, "--logical-shards", 1,
                 "--image-size", 32, "--steps", 1, "--warmup", 1, "--json"]
        report = json.loads(self.succeeds(renai_cli.run([renai_cli.renai(), *words], timeout=240)).splitlines()[-1])
        self.assertLess(report["deviation_from_reference"], 1e-2)

    def test_every_host_has_its_own(self):
        """Hosts are played by name spaces: a host name and a temporary folder for each."""
        if shutil.which("unshare") is None or renai_cli.run(["unshare", "--uts", "hostname", "host0"]).returncode != 0:
            self.skipTest("this user may not name a host")
        script = self.folder / "start.sh"
        script.write_text("#!/bin/sh\n"
                          "host=host$((OMPI_COMM_WORLD_RANK / 2))\n"
                          f"mkdir -p {self.folder}/$host\n"
                          f"export TMPDIR={self.folder}/$host\n"
                          f"exec unshare --uts sh -c 'hostname '$host'; exec \"$0\" \"$@\"' {renai_cli.renai()} \"$@\"\n")
        script.chmod(0o755)
        self.check(renai_cli.run([renai_cli.SOURCE / "ci" / "mpiexec.sh", 4, script, *WORDS]), 4)
        for host in ("host0", "host1"):
            self.assertEqual(list((self.folder / host).glob("renai-bench-*")), [])


class NumbersTest(renai_cli.FolderTest):
    def test_numbers_out_of_range_are_named_with_their_option(self):
        self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "synthetic", "--train", 8, "--val", 8, "--out", self.folder / "set"]))
        wrong = {("data", self.folder / "set"): [("--threads", -1), ("--threads", 1025), ("--size", -5), ("--images", -2),
                                                 ("--seconds", 0), ("--seconds", "inf"), ("--need", -1), ("--need", "nan")],
                 ("step", "--model", "mlp", "--global-batch", 16): [("--steps", -1), ("--warmup", -2), ("--image-size", 0), ("--channels", 5), ("--classes", 1)],
                 ("comm",): [("--min-bytes", 3), ("--max-bytes", -1), ("--max-bytes", 2**37), ("--max-bytes", 64), ("--pieces", -1)]}
        for words, options in wrong.items():
            for option, value in options:
                with self.subTest(words=words[0], option=option, value=value):
                    self.fails(renai_cli.run([renai_cli.renai(), "bench", *words, f"{option}={value}"]), 2, f"{option} ")


if __name__ == "__main__":
    renai_cli.main()
