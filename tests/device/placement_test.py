#!/usr/bin/env python3
"""Which rank gets which GPU: lists, one GPU shown to each rank, a shared GPU, none at all."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import device_cli  # noqa: E402
import renai_cli  # noqa: E402

STEPS = 7 if device_cli.ON_CPU else 20
# Shows each rank one GPU, as some launchers do: `own_gpu.sh LIST COMMAND...`.
OWN_GPU = """#!/bin/sh
list=$1
shift
export CUDA_VISIBLE_DEVICES=$(echo "$list" | cut -d, -f$((OMPI_COMM_WORLD_LOCAL_RANK + 1)))
exec "$@"
"""


def seeing(devices):
    return renai_cli.environment(NCCL_NVLS_ENABLE="0", CUDA_VISIBLE_DEVICES=devices)


class PlacementTest(device_cli.DeviceTest):
    def setUp(self):
        super().setUp()
        self.data = self.synthetic()

    def words(self, name, **options):
        return self.train_words(name, self.data, **{"model": "cnn-small", "steps": STEPS, **options})

    def train_seeing(self, name, devices, ranks=1, **options):
        return device_cli.launch(ranks, *self.words(name, **options), env=seeing(devices))

    def uuids(self, name):
        return [place["uuid"] for place in json.loads((self.folder / name / "ranks.json").read_text())]

    def trace(self, name):
        return self.folder / f"{name}.trace"

    def test_two_ranks_on_one_gpu(self):
        self.require_cuda()
        first = device_cli.visible_devices()[0]
        job = self.train_seeing("refused", first, ranks=2, allow_shared_gpu=None)
        output = self.fails(job, 2, "same GPU", "--allow-shared-gpu", "rank 0", "1 on")
        errors = [line for line in output.splitlines() if line.startswith("renai: rank")]
        self.assertEqual(len(errors), 1, output)
        self.nothing_left(job)
        self.succeeds(self.train_seeing("one", first))
        self.succeeds(self.train_seeing("shared", first, ranks=2, allow_shared_gpu=True))
        self.assertEqual(len(set(self.uuids("shared"))), 1)
        self.same(self.trace("one"), self.trace("shared"), STEPS)

    def test_a_list_and_one_gpu_for_each_rank(self):
        self.require_two_ranks()
        wrapper = self.folder / "own_gpu.sh"
        wrapper.write_text(OWN_GPU)
        wrapper.chmod(0o755)
        devices = device_cli.visible_devices()[:2] or ["0", "1"]
        self.succeeds(self.train_seeing("list", ",".join(devices), ranks=2))
        self.succeeds(self.train_seeing("turned", ",".join(reversed(devices)), ranks=2))
        job = device_cli.launch(2, *self.words("own"), wrapper=(wrapper, ",".join(devices)))
        self.succeeds(job)
        for name in ("turned", "own"):
            self.same(self.trace("list"), self.trace(name), STEPS)
        if not device_cli.ON_CPU:
            self.assertEqual(len(set(self.uuids("list"))), 2)
            self.assertEqual(self.uuids("own"), self.uuids("list"))
            self.assertEqual(self.uuids("turned"), self.uuids("list")[::-1])
            for uuid in self.uuids("list"):
                self.assertIn(uuid, job.stdout)

    def test_no_gpu_to_be_seen(self):
        refused = self.train_seeing("refused", "", device="cuda")
        reason = ("GPU", "CUDA_VISIBLE_DEVICES") if not device_cli.ON_CPU else ("CUDA",)
        self.fails(refused, 5, "--device cuda", *reason)
        automatic = self.train_seeing("auto", "", device="auto", steps=2)
        output = self.succeeds(automatic)
        self.assertIn(self.summary("auto")["device"], ("cpu", "reference"))
        if not device_cli.ON_CPU:
            self.assertIn("no GPU", output)
            self.assertIn("CPU", output)

    def test_auto_takes_the_gpu(self):
        self.require_cuda()
        self.train("auto", self.data, model="cnn-small", steps=STEPS, device="auto")
        self.assertEqual(self.summary("auto")["device"], "cuda")


if __name__ == "__main__":
    device_cli.main()
