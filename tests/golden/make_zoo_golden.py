#!/usr/bin/env python3
"""Writes zoo.h5: names, shapes, logits and gradients of PyTorch's networks, which tests/golden compares the zoo with.

Run as `python3 make_zoo_golden.py [name ...]` in this folder; needs torch, torchvision, numpy and h5py. Names: only
these networks are written anew. README.md describes the file. Everything is a pure function of this script and of the libraries' versions.
"""

import os
import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock

from make_torch_golden import CLASSES, PIXEL_MEAN, PIXEL_STD, images_of, labels_of, mix64, unit

BATCH = 8
SAMPLES = 32  # Elements of each gradient that are stored.
KEYS = 4  # Batches tried.
KEYS_OF_LARGE = 1  # Of vgg with batch norm, whose runs are dear.
SILENT = 1e-6  # Of the largest gradient: the true gradient of a bias in front of a batch norm is 0.
DECIDED = 5e-5  # Gradients of float32 kernels no further apart than this: no ReLU turned over.
NAMES = (
    "resnet18 resnet34 resnet50 resnet101 resnet152 wide_resnet50_2 resnext50_32x4d "
    "vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn resnet20 resnet32 resnet44 resnet56 "
    "cnn-small mlp lenet5 resnet9"
).split()


class CifarResNet(nn.Module):
    """The networks for 32x32 images of He et al. (2015), section 4.2, with projections (option B)."""

    def __init__(self, depth):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        width = 16
        for stage, out in enumerate((16, 32, 64), 1):
            blocks = []
            for i in range((depth - 2) // 6):
                stride = 2 if i == 0 and stage > 1 else 1
                down = None
                if stride != 1 or width != out:
                    down = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
                blocks.append(BasicBlock(width, out, stride, down))
                width = out
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class ConvNorm(nn.Module):
    """relu(bn(conv(x))); with `residual` the sum of a pool of it and of two more of the same width behind that."""

    def __init__(self, inp, out, pool=1, residual=False):
        super().__init__()
        self.conv, self.bn, self.pool = nn.Conv2d(inp, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), pool
        if residual:
            self.res1, self.res2 = ConvNorm(out, out), ConvNorm(out, out)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), self.pool)
        return x + self.res2(self.res1(x)) if hasattr(self, "res1") else x


class CnnSmall(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1, self.layer2, self.layer3 = ConvNorm(1, 16, 2), ConvNorm(16, 32, 2), ConvNorm(32, 64, 2)
        self.fc = nn.Linear(64 * 3 * 3, CLASSES)

    def forward(self, x):
        return self.fc(torch.flatten(self.layer3(self.layer2(self.layer1(x))), 1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(28 * 28, 1024), nn.Linear(1024, 512)
        self.fc3, self.fc4 = nn.Linear(512, 256), nn.Linear(256, CLASSES)

    def forward(self, x):
        x = F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))))
        return self.fc4(F.relu(self.fc3(x)))


class Lenet5(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.max_pool2d(F.relu(self.conv1(x)), 2))), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))))


class Resnet9(nn.Module):
    def __init__(self):
        super().__init__()
        self.prep, self.layer1 = ConvNorm(3, 64), ConvNorm(64, 128, 2, residual=True)
        self.layer2, self.layer3 = ConvNorm(128, 256, 2), ConvNorm(256, 512, 2, residual=True)
        self.fc = nn.Linear(512, CLASSES)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.prep(x))))
        return self.fc(torch.flatten(F.max_pool2d(x, 4), 1))


OWN = {"cnn-small": (CnnSmall, 28, 1), "mlp": (Mlp, 28, 1), "lenet5": (Lenet5, 28, 1), "resnet9": (Resnet9, 32, 3)}


def make(name):
    """The network, the extent of its input and its channels."""
    if name in OWN:
        network, size, channels = OWN[name]
        return network(), size, channels
    if name[6:] in ("20", "32", "44", "56") and name.startswith("resnet"):
        return CifarResNet(int(name[6:])), 32, 3
    net = getattr(torchvision.models, name)(num_classes=CLASSES)
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return net, 64, 3


def statistics_of(net):
    """(name, values) of the running statistics."""
    return [(name, values) for name, values in net.named_buffers() if not name.endswith("num_batches_tracked")]


def start_values(net):
    """Weights and running statistics by the formulas of README.md, in the order of `fill`."""
    values = []
    for index, (name, value) in enumerate(net.named_parameters()):
        u = unit(index, value.numel())
        if value.dim() > 1:
            u = u * np.sqrt(6.0 / (value.numel() // value.shape[0]))
        elif name.endswith(".weight"):
            u = 0.5 + u * 0.125
        else:
            u = u * 0.125
        values.append(torch.tensor(u.astype(np.float32).reshape(value.shape)))
    for index, (name, value) in enumerate(statistics_of(net)):
        u = unit(1000 + index, value.numel())
        u = 1.0 + u * 0.25 if name.endswith("var") else u * 0.125
        values.append(torch.tensor(u.astype(np.float32)))
    return values


def fill(net, values):
    with torch.no_grad():
        for (_, own), value in zip([*net.named_parameters(), *statistics_of(net)], values):
            own.copy_(value)


def sampled(index, elems):
    """Places of the stored elements of the gradient of parameter `index`."""
    return (mix64(np.arange(SAMPLES, dtype=np.uint64) | np.uint64((index + 2000) << 32)) % np.uint64(elems)).astype(int)


def measure(net, values, size, channels, dtype, kernels, key):
    """(logits, loss, gradients): logits with the running statistics, the rest with those of the batch."""
    memory_format = torch.channels_last if kernels == "channels_last" else torch.contiguous_format
    net = net.to(dtype=dtype, memory_format=memory_format)
    fill(net, values)
    x = torch.tensor(images_of(key, BATCH, size, size, channels)).to(dtype)
    x = ((x - PIXEL_MEAN) / PIXEL_STD).permute(0, 3, 1, 2).contiguous(memory_format=memory_format)
    with torch.no_grad():
        logits = net.eval()(x).double().numpy()
    net.train().zero_grad()
    loss = F.cross_entropy(net(x), torch.tensor(labels_of(key, BATCH)))
    loss.backward()
    gradients = [value.grad.contiguous().double().numpy().reshape(-1) for value in net.parameters()]
    return logits, loss.item(), gradients


def distances(gradients, wanted):
    """Of each gradient from the wanted one, over its norm; where that is 0 but for rounding, over the largest."""
    norms = np.array([np.linalg.norm(value) for value in wanted])
    scales = np.where(norms < SILENT * norms.max(), norms.max(), norms)
    return np.array([np.linalg.norm(a - b) for a, b in zip(gradients, wanted)]) / scales


def float32_runs(net, keys, values, *extents):
    """The two float32 runs of the batch on which they agree best, or the first on which they agree, and its key."""
    best = None
    for key in range(keys):
        runs = [measure(net, values, *extents, torch.float32, kernels, key) for kernels in ("default", "channels_last")]
        apart = distances(runs[0][2], runs[1][2]).max()
        if best is None or apart < best[0]:
            best = apart, key, runs
        if apart <= DECIDED:
            break
    return best[1], best[2]


def write(file, name):
    net, *extents = make(name)
    values = start_values(net)
    key, runs = float32_runs(net, KEYS_OF_LARGE if name.endswith("_bn") else KEYS, values, *extents)
    exact = measure(net, values, *extents, torch.float64, "default", key)
    logits_spread = max(np.abs(run[0] - exact[0]).max() for run in runs)
    loss_spread = max(abs(run[1] - exact[1]) for run in runs)
    spread = np.max([distances(run[2], exact[2]) for run in runs], axis=0)
    if name in file:
        del file[name]
    group = file.create_group(name)
    for attribute, entries in {"parameters": net.named_parameters(), "statistics": statistics_of(net)}.items():
        text = "".join(f"{n} {' '.join(map(str, v.shape))}\n" for n, v in entries)
        group.attrs.create(attribute, text, dtype=h5py.string_dtype("ascii", max(len(text), 1)))
    for attribute, value in {"size": extents[0], "channels": extents[1], "batch": BATCH, "key": key}.items():
        group.attrs.create(attribute, value, dtype=np.int64)
    group["logits"] = exact[0]
    group["loss"] = np.array([exact[1]])
    group["spread"] = np.array([logits_spread, loss_spread])
    group["gradient_spread"] = spread
    group["gradient_norm"] = np.array([np.linalg.norm(g) for g in exact[2]])
    rows = np.stack([g[sampled(i, g.size)] for i, g in enumerate(exact[2])])
    group.create_dataset("gradient_samples", data=rows.astype(np.float32), compression="gzip", compression_opts=9,
                         shuffle=True)
    print(f"{name}: batch {key}, {len(rows)} parameters, loss {exact[1]:.6f}, float32 apart by {loss_spread:.1e} (loss), "
          f"{logits_spread:.1e} (logits), {spread.max():.1e} (gradients)", flush=True)


def main():
    torch.set_num_threads(1)
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    with h5py.File("zoo.h5", "a" if sys.argv[1:] else "w") as file:
        versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
        file.attrs.create("made_with", versions, dtype=h5py.string_dtype("ascii", len(versions)))
        for name in sys.argv[1:] or NAMES:
            write(file, name)


if __name__ == "__main__":
    main()
