#!/usr/bin/env python3
"""All features of training in one run: the same bits on any number of ranks and after a restart, other bits without any of
them."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

STEPS, SAVED = 15, 7
# 3 epochs of 5 steps, the last of each partial; resolution and what is trained change at epochs.
OPTIONS = {
    "model": "resnet20", "global-batch": 64, "accumulate": 2, "optimizer": "lars", "lr": 0.5, "momentum": 0.8,
    "warmup-epochs": 0.4, "ema": 0.9, "mixup": 0.2, "cutmix": 1, "random-erasing": 0.4, "dropout": 0.2,
    "label-smoothing": 0.1, "augment": "crop2,flip", "clip-norm": 0.5, "resolution": "16@0,24@1,20@2", "val-resolution": 24,
    "freeze-until": "first@1,layer1@2", "init": "kaiming-normal", "bn-momentum": 0.2, "verify-every": 4,
}
WITHOUT = {
    "ema": 0, "optimizer": "sgd", "mixup": 0, "cutmix": 0, "random-erasing": 0, "dropout": 0, "clip-norm": 0,
    "accumulate": 1, "freeze-until": "", "resolution": "16", "seed": 2,
}


class EverythingTest(renai_cli.FolderTest):
    def setUp(self):
        super().setUp()
        self.data = self.pack_idx(4 * 64 + 37, 35)

    def train(self, name, ranks=1, **changes):
        options = {**OPTIONS, **{key.replace("_", "-"): value for key, value in changes.items()}}
        words = [word for key, value in options.items() if value != "" for word in ("--" + key, value)]
        trace = self.folder / f"{name}.trace"
        self.succeeds(renai_cli.on_ranks(ranks, "train", "--data", self.data, "--run-dir", self.folder / name, "--trace",
                                         trace, "--steps", STEPS, *words))
        return trace

    def summary(self, name):
        return json.loads((self.folder / name / "summary.json").read_text())

    def test_ranks_restart_and_controls(self):
        one = self.train("np1", checkpoint_every=SAVED)
        for ranks in (2, 4, 8):
            self.identical(one, self.train(f"np{ranks}", ranks), STEPS)
        checkpoint = self.folder / "np1" / "checkpoints" / f"step-{SAVED:08d}.h5"
        for ranks in (1, 4):
            self.train(f"resumed{ranks}", ranks, resume=checkpoint)
            for key in ("digest", "val_top1", "val_loss", "val_top1_ema"):
                self.assertEqual(self.summary(f"resumed{ranks}")[key], self.summary("np1")[key], key)
        self.assertEqual(self.summary("np1")["step_allocations"], 0)
        for key, value in WITHOUT.items():
            self.train(f"without-{key}", **{key.replace("-", "_"): value})
            same = self.summary(f"without-{key}")["digest"] == self.summary("np1")["digest"]
            self.assertEqual(same, key == "ema", key)  # Averages follow the weights and do not lead them.


if __name__ == "__main__":
    renai_cli.main()
