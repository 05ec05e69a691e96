#!/usr/bin/env python3
"""Trains one of torchvision's networks in phases of growing images with torch.compile, and says what took how long.

Random uint8 images that lie on the GPU, resized, normalised and flipped there; half precision by autocast, channels_last,
SGD; every epoch ends in a partial batch and a validation with one of its own. Output: one JSON object.

--mode static    every shape compiled for itself
--mode dynamic   shapes are symbols from the start
"""

import argparse
import json
import time

import torch
import torchvision
from torch import _dynamo
from torch.nn import functional

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def phases(text):
    """[(first epoch, image size)] of "128@0,160@1"."""
    return [(int(epoch), int(size)) for size, epoch in (word.split("@") for word in text.split(","))]


class Run:
    def __init__(self, arguments):
        self.arguments = arguments
        torch.manual_seed(0)
        stored = arguments.stored_size
        self.images, self.val_images = (torch.randint(0, 256, (n, 3, stored, stored), dtype=torch.uint8, device="cuda")
                                        for n in (arguments.train, arguments.val))
        self.labels, self.val_labels = (torch.randint(0, arguments.classes, (n,), device="cuda")
                                        for n in (arguments.train, arguments.val))
        network = torchvision.models.get_model(arguments.model, num_classes=arguments.classes)
        self.network = network.cuda().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5)
        dynamic = arguments.mode == "dynamic"
        self.loss = torch.compile(self.plain_loss, dynamic=dynamic)
        self.hits = torch.compile(self.plain_hits, dynamic=dynamic)

    def logits(self, images):
        with torch.autocast("cuda", dtype=DTYPES[self.arguments.precision]):
            return self.network(images)

    def plain_loss(self, images, labels):
        return functional.cross_entropy(self.logits(images).float(), labels)

    def plain_hits(self, images, labels):
        return (self.logits(images).argmax(1) == labels).sum()

    @staticmethod
    def prepared(images, size, flips):
        x = functional.interpolate(images.float(), size=(size, size), mode="bilinear", align_corners=False)
        if flips:
            x = torch.where(torch.rand(len(x), 1, 1, 1, device="cuda") < 0.5, x.flip(3), x)
        return ((x - 127.5) / 64.0).contiguous(memory_format=torch.channels_last)

    def train_epoch(self, size):
        self.network.train()
        order, batch = torch.randperm(len(self.images), device="cuda"), self.arguments.batch
        for first in range(0, len(order), batch):
            chosen = order[first:first + batch]
            loss = self.loss(self.prepared(self.images[chosen], size, True), self.labels[chosen])
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
        return loss

    def validate(self, size):
        self.network.eval()
        batch, hits = self.arguments.batch, 0
        with torch.no_grad():
            for first in range(0, len(self.val_images), batch):
                images = self.prepared(self.val_images[first:first + batch], size, False)
                hits += self.hits(images, self.val_labels[first:first + batch])
        return int(hits)

    def all_epochs(self):
        """Seconds of each epoch with its validation."""
        seconds, plan = [], phases(self.arguments.resolution)
        for epoch in range(self.arguments.epochs):
            start = time.perf_counter()
            size = [size for first, size in plan if first <= epoch][-1]
            self.train_epoch(size)
            self.validate(self.arguments.val_resolution)
            torch.cuda.synchronize()
            seconds.append(round(time.perf_counter() - start, 2))
        return seconds


def main():
    start = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["static", "dynamic"], default="static")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--train", type=int, default=10000)
    parser.add_argument("--val", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--stored-size", type=int, default=192)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--resolution", default="128@0,160@1,192@2")
    parser.add_argument("--val-resolution", type=int, default=192)
    parser.add_argument("--precision", choices=sorted(DTYPES), default="bf16")
    arguments = parser.parse_args()
    for name in ("cache_size_limit", "recompile_limit"):
        if hasattr(_dynamo.config, name):
            setattr(_dynamo.config, name, 64)
    run = Run(arguments)
    seconds = run.all_epochs()
    print(json.dumps({"torch": torch.__version__, "mode": arguments.mode, "epoch_seconds": seconds,
                      "total_seconds": round(time.perf_counter() - start, 2)}))


if __name__ == "__main__":
    main()
