#!/usr/bin/env python3
"""ResNet-50 on a folder of JPEG photographs: packed, trained on one rank and on two with the same bits, evaluated.

RENAI_PHOTOGRAPHS   a folder with one folder a class; without it a few made images
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import device_cli  # noqa: E402
import renai_cli  # noqa: E402

STEPS = 3 if device_cli.ON_CPU else 40


class PhotographsTest(device_cli.DeviceTest):
    def test_folder_to_checkpoint(self):
        folder = os.environ.get("RENAI_PHOTOGRAPHS")
        if not folder:
            folder = self.folder / "photos"
            renai_cli.write_photos(folder)
        data = self.folder / "data"
        ranks = 2 if self.two_ranks() else 1
        self.succeeds(renai_cli.on_ranks(2, "pack", "folder", folder, "--out", data, "--val-every", 10))
        self.succeeds(renai_cli.run([renai_cli.renai(), "verify", data]))
        options = {"model": "resnet50", "augment": "resized-crop0.35,flip,colour", "global_batch": 8 if device_cli.ON_CPU else 32,
                   "logical_shards": 2, "steps": STEPS, "resolution": 64 if device_cli.ON_CPU else 224, "verify_data": True,
                   "precision": device_cli.PRECISIONS[:2][-1]}
        one = self.train("one", data, loader_threads=3, **options)
        validations = [line for line in map(json.loads, one.read_text().splitlines()) if line["kind"] == "val"]
        self.assertGreaterEqual(len(validations), 1)
        if ranks == 2:
            self.same(one, self.train("two", data, 2, loader_threads=1, **options), STEPS)
        name = "two" if ranks == 2 else "one"
        shared = ["--allow-shared-gpu"] if device_cli.SHARED else []
        job = device_cli.launch(ranks, "eval", "--checkpoint", self.folder / name / "checkpoints" / f"step-{STEPS:08d}.h5",
                                "--data", data, "--device", device_cli.DEVICE, *shared)
        output = self.succeeds(job)
        top1 = self.summary(name)["val_top1"]
        device_cli.say(f"{output.strip().splitlines()[-1]} (training's last validation: {top1:.4f})")
        self.assertIn(f"{top1:.4f}", output)


if __name__ == "__main__":
    device_cli.main()
