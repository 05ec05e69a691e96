#!/usr/bin/env python3
"""Times one training step of renai and of PyTorch side by side: the two alternate, so that a disturbed machine slows both.

Each round runs `renai bench step` (which first proves its step against the reference backend) and torch_step.py with the same
network, batch and threads. Prints images per second of every round and the ratio of the medians; exit code 1 when a ratio is below
--least. Example: compare_step.py --renai build/renai --least 1.0
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

TORCH_STEP = pathlib.Path(__file__).with_name("torch_step.py")
# model, image size, channels, batches
CASES = [("cnn-small", 28, 1, (64, 256)), ("resnet9", 32, 3, (64, 128))]


def last_json(command):
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])


def renai_step(arguments, model, size, channels, batch, steps):
    return last_json([
        arguments.renai, "bench", "step", "--model", model, "--device", "cpu", "--global-batch", str(batch),
        "--logical-shards", "1", "--threads", str(arguments.threads), "--steps", str(steps), "--warmup", "2",
        "--image-size", str(size), "--channels", str(channels), "--json",
    ])["images_per_second"]


def torch_step(arguments, model, size, channels, batch, steps):
    return last_json([
        arguments.python, str(TORCH_STEP), "--model", model, "--batch", str(batch), "--threads", str(arguments.threads),
        "--steps", str(steps), "--warmup", "2", "--image-size", str(size), "--channels", str(channels),
    ])["images_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renai", default="build/renai", help="the program")
    parser.add_argument("--python", default="/usr/bin/python3", help="a Python that has torch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", choices=[case[0] for case in CASES], help="only this network")
    parser.add_argument("--least", type=float, default=1.0, help="smallest ratio that passes")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = []
    for model, size, channels, batches in CASES:
        if arguments.model not in (None, model):
            continue
        for batch in batches:
            steps = 30 if model == "cnn-small" else 4
            ours, theirs = [], []
            for _ in range(arguments.rounds):
                ours.append(renai_step(arguments, model, size, channels, batch, steps))
                theirs.append(torch_step(arguments, model, size, channels, batch, steps))
            ratio = statistics.median(ours) / statistics.median(theirs)
            results.append({"model": model, "batch": batch, "renai": ours, "torch": theirs, "ratio": ratio})
            if not arguments.json:
                print(f"{model:10} batch {batch:4}: renai {statistics.median(ours):9.1f} images/s, "
                      f"torch {statistics.median(theirs):9.1f}, ratio {ratio:.2f}", flush=True)
    if arguments.json:
        print(json.dumps(results))
    return 0 if all(result["ratio"] >= arguments.least for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
