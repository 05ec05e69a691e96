#!/usr/bin/env python3
"""Writes init_torchvision.json: how the parameters of torchvision's own networks start, for tests of --init torchvision.

Run as `python3 make_init_golden.py` in this folder; needs torch and torchvision. README.md describes the file.
"""

import json
import os

import torch
import torchvision

NETWORKS = ("resnet18", "vgg11_bn")
LARGEST = 5_000_000  # Elements: the largest linear layers of VGG start like the smaller ones.


def statistics(value):
    """Mean, deviation and greatest magnitude in float64, to six digits."""
    value = value.detach().double()
    return [float(f"{x:.6g}") for x in (value.mean(), value.std(unbiased=False), value.abs().max())]


def main():
    torch.manual_seed(1)
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    networks = []
    for name in NETWORKS:
        network = getattr(torchvision.models, name)(weights=None)
        params = {key: [value.numel(), *statistics(value)] for key, value in network.named_parameters()
                  if value.numel() <= LARGEST}
        networks.append(f"{json.dumps(name)}: {json.dumps(params)}")
    with open("init_torchvision.json", "w", encoding="ascii") as file:
        file.write("{" + ",\n".join(networks) + "}\n")


if __name__ == "__main__":
    main()
