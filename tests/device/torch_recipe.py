#!/usr/bin/env python3
"""Trains a network of renai in PyTorch with renai's recipe on renai's files, to compare accuracies.

The same data set directory, model, batch, logical shards (batch norm sees one shard at a time), drop of the epoch's
remainder, SGD with Nesterov momentum and decay of weights only, warm-up and cosine, label smoothing, crops and flips.
Weights, order and augmentation come from PyTorch's own random numbers, so accuracies are compared over a few seeds,
never bits. Validation after every epoch, as renai does. Output: one JSON object a seed; train_seconds is the time of all
epochs, data on the device, after a step of each batch size has run (and, with --compile, been compiled). Options are
named as renai's.
"""

import argparse
import copy
import json
import math
import struct
import time
from pathlib import Path

import numpy
import torch
from torch import nn
from torch.nn import functional

PRECISIONS = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class PlainHdf5:
    """Reads contiguous data sets in the root group of a file in HDF5's first format, where h5py is not installed."""

    def __init__(self, path):
        self.raw = Path(path).read_bytes()
        if self.raw[:8] != b"\x89HDF\r\n\x1a\n" or self.raw[8] != 0 or self.raw[13:15] != b"\x08\x08":
            raise ValueError(f"{path} is not an HDF5 file of the first format: install h5py")
        # Behind the superblock's fixed part and four addresses stands the root group's entry; its scratch space holds
        # the addresses of B-tree and heap.
        tree, heap = struct.unpack_from("<QQ", self.raw, 24 + 4 * 8 + 24)
        self.names = struct.unpack_from("<Q", self.raw, heap + 24)[0]
        self.objects = dict(self.entries(tree))

    def entries(self, tree):
        """(name, header address) of every member below a B-tree node."""
        level, used = self.raw[tree + 5], struct.unpack_from("<H", self.raw, tree + 6)[0]
        for i in range(used):
            child = struct.unpack_from("<Q", self.raw, tree + 24 + 8 + 16 * i)[0]
            if level > 0:
                yield from self.entries(child)
                continue
            for k in range(struct.unpack_from("<H", self.raw, child + 6)[0]):
                name, header = struct.unpack_from("<QQ", self.raw, child + 8 + 40 * k)
                start = self.names + name
                yield self.raw[start:self.raw.index(b"\0", start)].decode(), header

    def messages(self, header):
        """(kind, body) of an object header, continuations included."""
        blocks = [(header + 16, struct.unpack_from("<I", self.raw, header + 8)[0])]
        while blocks:
            at, size = blocks.pop(0)
            end = at + size
            while at + 8 <= end:
                kind, length = struct.unpack_from("<HH", self.raw, at)
                body = self.raw[at + 8:at + 8 + length]
                if kind == 0x10:
                    blocks.append(struct.unpack("<QQ", body[:16]))
                yield kind, body
                at += 8 + length

    def __getitem__(self, name):
        shape, item, address = None, None, None
        for kind, body in self.messages(self.objects[name]):
            if kind == 0x1:
                shape = struct.unpack_from("<" + "Q" * body[1], body, 8 if body[0] == 1 else 4)
            elif kind == 0x3:
                size = struct.unpack_from("<I", body, 4)[0]
                item = numpy.dtype(f"<{'i' if body[1] & 8 else 'u'}{size}")
                if body[0] & 15 != 0 or body[1] & 1:
                    raise ValueError(f"data set {name} does not hold little-endian integers: install h5py")
            elif kind == 0x8:
                if body[0] != 3 or body[1] != 1:
                    raise ValueError(f"data set {name} is not contiguous: install h5py")
                address = struct.unpack_from("<Q", body, 2)[0]
        count = math.prod(shape)
        return numpy.frombuffer(self.raw, item, count, address).reshape(shape)


def read_file(path, plain=False):
    """(images [n, h, w, c] uint8, labels [n]) of a shard."""
    try:
        if plain:
            raise ImportError
        import h5py
    except ImportError:
        file = PlainHdf5(path)
        return file["images"], file["labels"]
    with h5py.File(path, "r") as file:
        return file["images"][:], file["labels"][:]


def read_split(folder, split, plain=False):
    """All shards of a split, in the manifest's order, and the manifest."""
    manifest = json.loads((Path(folder) / "manifest.json").read_text())
    shards = next(entry["shards"] for entry in manifest["splits"] if entry["name"] == split)
    parts = [read_file(Path(folder) / shard["file"], plain) for shard in shards]
    images, labels = (numpy.concatenate([part[i] for part in parts]) for i in range(2))
    return images, labels.astype(numpy.int64), manifest


class ShardNorm(nn.BatchNorm2d):
    """Batch norm whose statistics are of one logical shard; the running ones get the shards' mean once a step."""

    shards = 1

    def forward(self, x):
        if not self.training or self.shards == 1:
            return super().forward(x)
        n, c, h, w = x.shape
        rows = n // self.shards
        side_by_side = x.view(self.shards, rows, c, h, w).transpose(0, 1).reshape(rows, self.shards * c, h, w)
        y = functional.batch_norm(side_by_side, None, None, self.weight.repeat(self.shards),
                                  self.bias.repeat(self.shards), True, 0.0, self.eps)
        with torch.no_grad():
            variance, mean = torch.var_mean(side_by_side.float(), dim=(0, 2, 3), unbiased=True)
            self.running_mean.lerp_(mean.view(self.shards, c).mean(0), self.momentum)
            self.running_var.lerp_(variance.view(self.shards, c).mean(0), self.momentum)
            self.num_batches_tracked += 1
        return y.view(rows, self.shards, c, h, w).transpose(0, 1).reshape(n, c, h, w)


def conv_bn_relu(channels_in, channels_out):
    """3x3 convolution without bias, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False), ShardNorm(channels_out),
                         nn.ReLU(inplace=True))


class Residual(nn.Module):
    """x + conv_bn_relu(conv_bn_relu(x))"""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(conv_bn_relu(channels, channels), conv_bn_relu(channels, channels))

    def forward(self, x):
        return x + self.body(x)


def cnn_small(channels, size, classes):
    return nn.Sequential(
        conv_bn_relu(channels, 16), nn.MaxPool2d(2), conv_bn_relu(16, 32), nn.MaxPool2d(2), conv_bn_relu(32, 64),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * (size // 8) ** 2, classes))


def resnet9(channels, size, classes):
    return nn.Sequential(
        conv_bn_relu(channels, 64), conv_bn_relu(64, 128), nn.MaxPool2d(2), Residual(128), conv_bn_relu(128, 256),
        nn.MaxPool2d(2), conv_bn_relu(256, 512), nn.MaxPool2d(2), Residual(512), nn.MaxPool2d(4), nn.Flatten(),
        nn.Linear(512 * (size // 32) ** 2, classes))


class Block(nn.Module):
    """relu(bn(conv(relu(bn(conv(x))))) + shortcut(x)), as torchvision's basic block."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False), ShardNorm(channels), nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False), ShardNorm(channels))
        self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(
            nn.Conv2d(channels_in, channels, 1, stride, bias=False), ShardNorm(channels))

    def forward(self, x):
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet20(channels, size, classes):
    blocks = [Block(16 if stage == 0 else 8 << stage, 16 << stage, 2) if stage > 0 and i == 0 else
              Block(16 << stage, 16 << stage, 1) for stage in range(3) for i in range(3)]
    return nn.Sequential(conv_bn_relu(channels, 16), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(64, classes))


MODELS = {"cnn-small": cnn_small, "resnet9": resnet9, "resnet20": resnet20}


def learning_rate(arguments, step, total, batches):
    """Linear warm-up, then half a cosine, by step."""
    warmup = round(arguments.warmup_epochs * batches)
    if step < warmup:
        return arguments.lr * (step + 1) / warmup
    share = min(max((step - warmup) / max(total - warmup, 1), 0.0), 1.0)
    return arguments.lr * 0.5 * (1.0 + math.cos(math.pi * share))


def augmented(images, text):
    """uint8 [n, c, h, w], each image with its own crop (black outside of it) and flip."""
    n, _, h, w = images.shape
    for word in filter(None, text.split(",")):
        if word == "flip":
            turned = torch.rand(n, device=images.device) < 0.5
            images = torch.where(turned[:, None, None, None], images.flip(3), images)
        elif word.startswith("crop"):
            pad = int(word[4:])
            padded = functional.pad(images, (pad, pad, pad, pad))
            top, left = (torch.randint(0, 2 * pad + 1, (n, 1), device=images.device) for _ in range(2))
            rows = (top + torch.arange(h, device=images.device))[:, None, :, None]
            columns = (left + torch.arange(w, device=images.device))[:, None, None, :]
            sample = torch.arange(n, device=images.device)[:, None, None, None]
            channel = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
            images = padded[sample, channel, rows, columns]
        elif word != "none":
            raise SystemExit(f"--augment {text}: '{word}' is not known")
    return images


class Training:
    """One run of one seed."""

    def __init__(self, arguments, seed):
        self.arguments = arguments
        self.device = torch.device(arguments.device)
        torch.manual_seed(seed)
        self.images, self.labels, manifest = self.load("train")
        self.val_images, self.val_labels, _ = self.load("val")
        self.mean, self.std = (torch.tensor(manifest[key], dtype=torch.float32, device=self.device).view(1, -1, 1, 1)
                               for key in ("mean", "std"))
        network = MODELS[arguments.model](self.images.shape[1], self.images.shape[2], len(manifest["classes"]))
        if arguments.init == "torchvision":
            for layer in network.modules():
                if isinstance(layer, nn.Conv2d):
                    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        self.network = network.to(self.device, memory_format=torch.channels_last)
        decayed = [p for p in self.network.parameters() if p.dim() > 1]
        plain = [p for p in self.network.parameters() if p.dim() <= 1]
        groups = [{"params": decayed, "weight_decay": arguments.weight_decay}, {"params": plain}]
        self.optimizer = torch.optim.SGD(groups, lr=0.1, momentum=arguments.momentum, nesterov=True)
        self.dtype = PRECISIONS[arguments.precision]
        scaled = {"enabled": self.dtype == torch.float16}
        self.scaler = torch.amp.GradScaler("cuda", **scaled) if hasattr(torch.amp, "GradScaler") else (
            torch.cuda.amp.GradScaler(**scaled))
        self.loss = nn.CrossEntropyLoss(label_smoothing=arguments.label_smoothing)
        self.predict = torch.compile(self.forward) if arguments.compile else self.forward
        self.criterion = torch.compile(self.loss_of) if arguments.compile else self.loss_of

    def load(self, split):
        images, labels, manifest = read_split(self.arguments.data, split)
        images = torch.from_numpy(numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))).to(self.device)
        return images, torch.from_numpy(labels).to(self.device), manifest

    def forward(self, images):
        x = ((images.float() - self.mean) / self.std).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, dtype=self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            return self.network(x).float()

    def loss_of(self, images, labels):
        return self.loss(self.forward(images), labels)

    def update(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(self.criterion(images, labels)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def warm_up(self):
        """Runs every shape a few times, and takes back what that did to the network."""
        state = copy.deepcopy([part.state_dict() for part in (self.network, self.optimizer, self.scaler)])
        ShardNorm.shards = self.arguments.logical_shards
        for count in dict.fromkeys(count for _, count in self.batches()):
            self.network.train()
            for _ in range(3):
                chosen = torch.arange(count, device=self.device)
                self.update(augmented(self.images[chosen], self.arguments.augment), self.labels[chosen])
        self.accuracy()
        for part, before in zip((self.network, self.optimizer, self.scaler), state):
            part.load_state_dict(before)
        self.synchronize()

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def batches(self):
        """Positions of an epoch's batches: full ones, then what fills all shards evenly."""
        size, shards, samples = self.arguments.global_batch, self.arguments.logical_shards, len(self.images)
        full = samples // size
        rest = (samples - full * size) // shards * shards
        return [(i * size, size) for i in range(full)] + ([(full * size, rest)] if rest else [])

    def train(self):
        batches = self.batches()
        total = math.ceil(self.arguments.epochs * len(batches))
        ShardNorm.shards = self.arguments.logical_shards
        order = None
        for step in range(total):
            at = step % len(batches)
            if at == 0:
                self.network.train()
                order = torch.randperm(len(self.images), device=self.device)
            first, count = batches[at]
            chosen = order[first:first + count]
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(self.arguments, step, total, len(batches))
            self.update(augmented(self.images[chosen], self.arguments.augment), self.labels[chosen])
            if at + 1 == len(batches) or step + 1 == total:
                accuracy = self.accuracy()
        return accuracy

    def accuracy(self):
        self.network.eval()
        hits = 0
        with torch.no_grad():
            for first in range(0, len(self.val_images), 1000):
                logits = self.predict(self.val_images[first:first + 1000])
                hits += int((logits.argmax(1) == self.val_labels[first:first + 1000]).sum())
        return hits / len(self.val_images)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", choices=sorted(MODELS), default="cnn-small")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=sorted(PRECISIONS), default="fp32")
    parser.add_argument("--epochs", type=float, default=5)
    parser.add_argument("--global-batch", type=int, default=128)
    parser.add_argument("--logical-shards", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--warmup-epochs", type=float, default=0.5)
    parser.add_argument("--label-smoothing", type=float, default=0.0)
    parser.add_argument("--augment", default="none")
    parser.add_argument("--init", choices=["model", "torchvision"], default="model")
    parser.add_argument("--compile", action="store_true", help="torch.compile the network with its loss")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    tf32 = arguments.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    for seed in arguments.seeds:
        start = time.monotonic()
        training = Training(arguments, seed)
        training.warm_up()
        begin = time.monotonic()
        accuracy = training.train()
        training.synchronize()
        end = time.monotonic()
        result = {"torch": torch.__version__, "model": arguments.model, "precision": arguments.precision, "seed": seed,
                  "val_top1": accuracy, "train_seconds": round(end - begin, 2), "seconds": round(end - start, 1)}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
