#!/usr/bin/env python3
"""Writes mix_lenet5.json: a training run of PyTorch with mixup, cutmix and erasing that tests/golden compares renai with.

Run as `python3 make_mix_golden.py` in this folder; needs torch, numpy and h5py. README.md describes the file.
"""

import json
import os

import numpy as np
import torch
import torch.nn.functional as F

import make_torch_golden as golden

STEPS, BATCH, SHARDS, LR, DECAY = 25, 32, 2, 0.05, 5e-4
ROWS = BATCH // SHARDS


def draws(key, count):
    """Float64 values in [0, 1) that depend on the batch's key."""
    return (golden.unit(5000 + key, count) + 1.0) / 2.0


def mix_of(key, shard, height, width):
    """Rotation, share and box of one shard: cutmix where key + shard is odd, else mixup (an empty box)."""
    u = draws(key, 16)[8 * shard : 8 * shard + 8]
    mix = {"shift": 1 + int(u[0] * (ROWS - 1)), "box": [0, 0, 0, 0], "lambda": float(np.float32(u[1]))}
    if (key + shard) % 2 == 1:
        y, x = int(u[2] * height), int(u[3] * width)
        h, w = 1 + int(u[4] * (height - y)), 1 + int(u[5] * (width - x))
        mix["box"] = [y, x, h, w]
        mix["lambda"] = float(np.float32(1.0 - h * w / (height * width)))
    return mix


def erased_of(key, height, width):
    """By row: the box that is erased, empty for every third row."""
    boxes = []
    for row, u in enumerate(draws(key + 10000, 4 * BATCH).reshape(BATCH, 4)):
        y, x = int(u[0] * height), int(u[1] * width)
        h, w = 1 + int(u[2] * (height - y) / 2), 1 + int(u[3] * (width - x) / 2)
        boxes.append([y, x, h, w] if row % 3 else [0, 0, 0, 0])
    return boxes


class MixRun(golden.Run):
    """The same training on erased, then mixed images with the loss of both labels."""

    def batch_of(self, key):
        x, labels = super().batch_of(key)
        for row, (y, left, h, w) in enumerate(erased_of(key, *self.net.input_shape[:2])):
            x[row, :, y : y + h, left : left + w] = 0.0
        return x, labels

    def backward(self, key):
        self.optimizer.zero_grad()
        losses = []
        parts = zip(*(torch.chunk(part, self.shards) for part in self.batch_of(key)))
        for shard, (x, labels) in enumerate(parts):
            mix = mix_of(key, shard, *self.net.input_shape[:2])
            share, (y, left, h, w) = mix["lambda"], mix["box"]
            partner, other = x.roll(-mix["shift"], 0), labels.roll(-mix["shift"], 0)
            if h > 0:
                mixed = x.clone()
                mixed[:, :, y : y + h, left : left + w] = partner[:, :, y : y + h, left : left + w]
            else:
                mixed = share * x + (1.0 - share) * partner
            logits = self.net.forward(self.params, mixed, None)
            loss = share * F.cross_entropy(logits, labels) + (1.0 - share) * F.cross_entropy(logits, other)
            (loss / self.shards).backward()
            losses.append(loss.item())
        return losses, {}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    single, double = (MixRun(golden.Lenet5(), SHARDS, BATCH, LR, DECAY, dtype) for dtype in (torch.float32, torch.float64))
    height, width = golden.Lenet5.input_shape[:2]
    steps = []
    for step in range(STEPS):
        key = golden.choose_key(single, step)
        steps.append({"key": key, "erased": erased_of(key, height, width),
                      "shards": [mix_of(key, shard, height, width) for shard in range(SHARDS)],
                      "loss_fp32": single.step(key), "loss_fp64": double.step(key)})
        print(f"step {step} batch {key}: {steps[-1]['loss_fp32']:.7f} "
              f"{steps[-1]['loss_fp32'] - steps[-1]['loss_fp64']:+.2e}", flush=True)
    head = {"model": "lenet5", "batch": BATCH, "logical_shards": SHARDS, "lr": LR, "momentum": golden.MOMENTUM,
            "weight_decay": DECAY, "parameters": list(single.params), "made_with": "torch " + torch.__version__}
    lines = ",\n".join(json.dumps(step) for step in steps)
    with open("mix_lenet5.json", "w", encoding="ascii") as file:
        file.write(json.dumps(head)[:-1] + ',\n"steps": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
