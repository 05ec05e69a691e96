#!/usr/bin/env python3
"""Measures PyTorch's DataLoader on a folder of images, to compare `renai bench data` with: torchvision's ImageFolder and PIL,
RandomResizedCrop, flip, conversion to normalised float.

Prints one JSON object: images/s after the workers have started. Example: torch_loader.py photos --workers 16 --size 224
"""

import argparse
import json
import time

import torch
from torchvision import datasets, transforms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="one folder a class")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10, help="at least so long is measured, in whole epochs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = datasets.ImageFolder(arguments.folder, transforms.Compose([
        transforms.RandomResizedCrop(arguments.size), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]))
    loader = torch.utils.data.DataLoader(data, arguments.batch, shuffle=True, num_workers=arguments.workers,
                                         persistent_workers=arguments.workers > 0)
    sum(len(labels) for _, labels in loader)  # Starts the workers and fills the page cache.
    images, start = 0, time.perf_counter()
    while time.perf_counter() - start < arguments.seconds:
        images += sum(len(labels) for _, labels in loader)
    seconds = time.perf_counter() - start
    print(json.dumps({"images_per_second": round(images / seconds, 1), "workers": arguments.workers, "size": arguments.size,
                      "images": images, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
