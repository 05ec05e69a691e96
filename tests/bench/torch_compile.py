#!/usr/bin/env python3
"""Times PyTorch's training step on one GPU for torchvision's networks: eager and torch.compile, channels_last.

Synthetic input that lies on the GPU, SGD with momentum and weight decay, half precision by autocast. Output: one JSON object.
"""

import argparse
import json
import statistics
import time

import torch
import torchvision
from torch.nn import functional

DTYPES = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def make_step(arguments, compiled):
    """A function that runs one training step."""
    torch.manual_seed(0)
    network = torchvision.models.get_model(arguments.model, num_classes=arguments.classes)
    network = network.cuda().to(memory_format=torch.channels_last).train()
    size = arguments.image_size
    images = torch.randn(arguments.batch, 3, size, size, device="cuda").contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, arguments.classes, (arguments.batch,), device="cuda")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-5, nesterov=True)
    dtype = DTYPES[arguments.precision]
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)

    def loss_of(inputs, targets):
        with torch.autocast("cuda", dtype=dtype or torch.float16, enabled=dtype is not None):
            return functional.cross_entropy(network(inputs), targets)

    run = torch.compile(loss_of) if compiled else loss_of

    def step():
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(run(images, labels)).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def measure(arguments, compiled):
    """Median seconds of a step over windows, and the seconds until the first window."""
    start = time.perf_counter()
    step = make_step(arguments, compiled)
    for _ in range(arguments.warmup):
        step()
    torch.cuda.synchronize()
    ready = time.perf_counter() - start
    times = []
    for _ in range(arguments.windows):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(arguments.steps):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / arguments.steps)
    return statistics.median(times), ready


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--precision", choices=sorted(DTYPES), default="bf16")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--eager", action="store_true", help="measure eager mode too")
    arguments = parser.parse_args()
    tf32 = arguments.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    result = {"torch": torch.__version__, "model": arguments.model, "precision": arguments.precision,
              "batch": arguments.batch}
    for name in ["compile"] + (["eager"] if arguments.eager else []):
        seconds, ready = measure(arguments, name == "compile")
        result[name + "_ms"] = round(seconds * 1e3, 3)
        result[name + "_images_per_second"] = round(arguments.batch / seconds, 1)
        result[name + "_ready_s"] = round(ready, 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
