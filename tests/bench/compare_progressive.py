#!/usr/bin/env python3
"""Times a training run in phases of growing images, from launch to end, beside torch.compile with static and with dynamic
shapes: compilation, capture, partial batches and validations are all in it.

renai reads its images from packed shards (made first, not timed) and writes its run directory and last checkpoint; PyTorch
(torch_progressive.py) has its images on the GPU and writes nothing. Prints both, and the ratios. Exit code 1 when renai is
the slower.
Example: compare_progressive.py --renai build/renai
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

LAUNCH = pathlib.Path(__file__).parents[2] / "ci" / "mpiexec.sh"
TORCH = pathlib.Path(__file__).with_name("torch_progressive.py")


def timed(command, seconds):
    start = time.perf_counter()
    process = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=seconds)
    wall = time.perf_counter() - start
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {process.returncode}\n{process.stdout[-2000:]}{process.stderr[-4000:]}")
    return wall, process.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renai", default="build/renai", help="the program")
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch and torchvision")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--train", type=int, default=10000)
    parser.add_argument("--val", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--resolution", default="128@0,160@1,192@2")
    parser.add_argument("--size", type=int, default=192, help="of the stored images and in validation")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--loader-threads", type=int, default=8)
    parser.add_argument("--pack-ranks", type=int, default=2)
    parser.add_argument("--modes", default="static,dynamic", help="of torch.compile; empty: renai alone")
    parser.add_argument("--limit", type=int, default=600, help="seconds for each run")
    arguments = parser.parse_args()
    shared = ["--model", arguments.model, "--epochs", arguments.epochs, "--resolution", arguments.resolution,
              "--val-resolution", arguments.size, "--precision", "bf16"]
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data"
        timed([LAUNCH, arguments.pack_ranks, arguments.renai, "pack", "synthetic", "--out", data, "--train", arguments.train, "--val", arguments.val,
               "--height", arguments.size, "--width", arguments.size, "--channels", 3, "--classes", 1000, "--shard-samples", 512],
              600)
        run = pathlib.Path(folder) / "run"
        ours, _ = timed([arguments.renai, "train", *shared, "--data", data, "--run-dir", run, "--global-batch",
                         arguments.batch, "--logical-shards", 1, "--device", arguments.device, "--augment", "flip",
                         "--loader-threads", arguments.loader_threads, "--plan-cache", pathlib.Path(folder) / "plans"],
                        arguments.limit)
        summary = json.loads((run / "summary.json").read_text())
    print(json.dumps({"renai_wall_seconds": round(ours, 2), "startup_seconds": summary["startup_seconds"],
                      "capture_seconds": summary["capture_seconds"], "captured_graphs": summary["captured_graphs"],
                      "peak_device_bytes": summary["peak_device_bytes"]}), flush=True)
    slower = False
    for mode in filter(None, arguments.modes.split(",")):
        wall, output = timed([arguments.python, TORCH, "--mode", mode, *shared, "--train", arguments.train, "--val",
                              arguments.val, "--batch", arguments.batch, "--stored-size", arguments.size],
                             arguments.limit)
        result = json.loads(output.strip().splitlines()[-1])
        print(json.dumps({"torch_compile": mode, "wall_seconds": round(wall, 2), **result,
                          "ratio": round(wall / ours, 2)}), flush=True)
        slower |= wall < ours
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
