#!/usr/bin/env python3
"""Writes ema_net.h5: training runs of PyTorch with an exponential moving average, which renai's --ema must give, and with
gradients accumulated over micro-batches, which renai's --accumulate must give.

Run as `python3 make_ema_golden.py` in this folder; needs torch, numpy and h5py. The average is PyTorch's own
torch.optim.swa_utils.AveragedModel with buffers; start values and batches are the formulas of README.md.
"""

import os

import h5py
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel

import make_torch_golden as golden

STEPS, BATCH, LR, DECAY, EMA_DECAY = 25, 16, 0.05, 5e-4, 0.9
MICRO_BATCHES = 4


class EmaNet(golden.Net):
    """Names, shapes and start values in the order of ema_net.toml."""

    input_shape = (10, 10, 3)

    def __init__(self):
        super().__init__()
        self.conv("conv1", 6, 3, 3, False)
        self.norm("bn1", 6)
        self.conv("conv2", 8, 6, 3, True)
        self.norm("bn2", 8)
        self.linear("fc", golden.CLASSES, 8)


class Module(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, golden.CLASSES)
        with torch.no_grad():
            for name, value in self.named_parameters():
                value.copy_(start[name])

    def forward(self, x):
        x = F.silu(self.bn1(self.conv1(x)))
        x = F.silu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


def tensors_of(module):
    return {name: value.numpy().copy() for name, value in module.state_dict().items() if "num_batches" not in name}


def make_optimizer(net, module):
    decayed = [v for n, v in module.named_parameters() if net.shapes[n][1] == "weight"]
    plain = [v for n, v in module.named_parameters() if net.shapes[n][1] != "weight"]
    return torch.optim.SGD([{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}], lr=LR,
                           momentum=golden.MOMENTUM)


def backward(net, module, step, micro_batches):
    """Gradients of the mean loss over the step's batch, accumulated over runs of consecutive rows; returns the loss."""
    images = torch.tensor(golden.images_of(step, BATCH, *net.input_shape)).float()
    x = ((images - golden.PIXEL_MEAN) / golden.PIXEL_STD).permute(0, 3, 1, 2)
    total = 0.0
    for rows, labels in zip(x.chunk(micro_batches), torch.tensor(golden.labels_of(step, BATCH)).chunk(micro_batches)):
        loss = F.cross_entropy(module(rows), labels) / micro_batches
        loss.backward()
        total += loss.item()
    return total


def train(net, micro_batches, after_step):
    module = Module(net.initial(torch.float32))
    optimizer = make_optimizer(net, module)
    losses = []
    after_step(module)
    for step in range(STEPS):
        optimizer.zero_grad()
        losses.append(backward(net, module, step, micro_batches))
        optimizer.step()
        after_step(module)
        print(f"K={micro_batches} step {step}: {losses[-1]:.7f}")
    return module, losses


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    net = EmaNet()
    averages, averaged = [], []

    def average(module):
        if not averaged:  # Before the first step: a copy of the start.
            averaged.append(AveragedModel(module, use_buffers=True, avg_fn=lambda average, value, _:
                                          EMA_DECAY * average + (1 - EMA_DECAY) * value))
            return
        averaged[0].update_parameters(module)
        averages.append(tensors_of(averaged[0].module))

    module, losses = train(net, 1, average)
    accumulated, accumulated_losses = train(net, MICRO_BATCHES, lambda _: None)
    with h5py.File("ema_net.h5", "w") as file:
        names = "\n".join(net.shapes)
        for key, value in {"parameters": names, "ema_decay": repr(EMA_DECAY), "lr": repr(LR), "weight_decay": repr(DECAY),
                           "momentum": repr(golden.MOMENTUM), "made_with": "torch " + torch.__version__}.items():
            file.attrs.create(key, value, dtype=h5py.string_dtype("ascii", len(value)))
        for key, value in {"batch": BATCH, "steps": STEPS, "micro_batches": MICRO_BATCHES}.items():
            file.attrs.create(key, value, dtype=np.int64)
        file["loss"] = np.array(losses, dtype=np.float64)
        file["accumulated_loss"] = np.array(accumulated_losses, dtype=np.float64)
        for group, values in (("ema", averages), ("weights", [tensors_of(module)]), ("accumulated", [tensors_of(accumulated)])):
            for name in values[0]:
                data = np.stack([value[name] for value in values]).astype(np.float32)
                file.create_dataset(f"{group}/{name}", data=data, chunks=data.shape, compression="gzip",
                                    compression_opts=9, shuffle=True)


if __name__ == "__main__":
    main()
