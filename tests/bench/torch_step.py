#!/usr/bin/env python3
"""Times PyTorch's training step on the CPU for the networks that `renai bench step` times.

Same networks, batch, threads and optimizer (SGD with momentum and weight decay), synthetic data that lies in memory. Both memory
formats are measured and the better one is reported. Output: one JSON object.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional


def conv_bn_relu(channels_in, channels_out):
    """3x3 convolution without bias, batch norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False), nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)
    )


class Residual(nn.Module):
    """x + conv_bn_relu(conv_bn_relu(x))"""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(conv_bn_relu(channels, channels), conv_bn_relu(channels, channels))

    def forward(self, x):
        return x + self.body(x)


def cnn_small(channels, size, classes):
    side = size // 2 // 2 // 2
    return nn.Sequential(
        conv_bn_relu(channels, 16), nn.MaxPool2d(2), conv_bn_relu(16, 32), nn.MaxPool2d(2),
        conv_bn_relu(32, 64), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * side * side, classes),
    )


def resnet9(channels, size, classes):
    side = size // 8 // 4
    return nn.Sequential(
        conv_bn_relu(channels, 64), conv_bn_relu(64, 128), nn.MaxPool2d(2), Residual(128),
        conv_bn_relu(128, 256), nn.MaxPool2d(2), conv_bn_relu(256, 512), nn.MaxPool2d(2), Residual(512),
        nn.MaxPool2d(4), nn.Flatten(), nn.Linear(512 * side * side, classes),
    )


MODELS = {"cnn-small": cnn_small, "resnet9": resnet9}


def measure(arguments, memory_format):
    """Median seconds of one step."""
    torch.manual_seed(0)
    network = MODELS[arguments.model](arguments.channels, arguments.image_size, arguments.classes)
    network = network.to(memory_format=memory_format).train()
    images = torch.randn(arguments.batch, arguments.channels, arguments.image_size, arguments.image_size)
    images = images.contiguous(memory_format=memory_format)
    labels = torch.randint(0, arguments.classes, (arguments.batch,))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    times = []
    for step in range(arguments.warmup + arguments.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
        if step >= arguments.warmup:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), default="cnn-small")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--image-size", type=int, default=28)
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--classes", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    seconds = {
        "nchw": measure(arguments, torch.contiguous_format),
        "channels_last": measure(arguments, torch.channels_last),
    }
    best = min(seconds, key=seconds.get)
    result = {
        "framework": "torch " + torch.__version__, "model": arguments.model, "batch": arguments.batch,
        "threads": torch.get_num_threads(), "format": best, "step_ms_median": seconds[best] * 1e3,
        "images_per_second": arguments.batch / seconds[best],
        "step_ms": {name: value * 1e3 for name, value in seconds.items()},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
