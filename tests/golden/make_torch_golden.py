#!/usr/bin/env python3
"""Writes the golden training runs of PyTorch that tests/golden compares renai with.

Run as `python3 make_torch_golden.py [case ...]` in this folder; needs torch, torchvision, numpy and h5py. README.md describes the
files and says where the committed ones were made. Everything is a pure function of this script and of torch's version.
`python3 make_torch_golden.py --states FOLDER case ...` writes the runs there, with all their states (resnet9: 1.1 GB,
resnet50: 0.9 GB, vgg16_bn: 5.4 GB).
"""

import os
import sys
from fractions import Fraction

import h5py
import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch.nn.utils.stateless import functional_call

STEPS = 20
MOMENTUM = 0.9
BN_MOMENTUM = 0.1
BN_EPS = 1e-5
PIXEL_MEAN, PIXEL_STD = 128.0, 64.0  # Exact in float32, so that both sides see the same input bits.
CLASSES = 10
# The same float32 run with other kernels of PyTorch: a wider view of its own deviation from float64.
OTHER_KERNELS = ("channels_last", "native")
SHAKE = 1e-6  # Relative; a few units in the last place of float32.
SHAKEN_LIMIT = 2e-5  # A fifth of the tolerance of the updates.
MAX_FILE_VALUES = 240_000  # Float32 values a file, so that none is above a megabyte.
SILENT = 1e-4  # Of its weight: an update of a bias below this is rounding (before a batch norm its gradient is 0).
CHUNK = 1 << 22  # Elements whose formula is evaluated at a time.


# ---- Formulas shared with the C++ side ------------------------------------------------------------------------------
def mix64(x):
    """Finaliser of splitmix64 on uint64 arrays."""
    x = np.asarray(x, dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def unit(tensor_index, count):
    """`count` float64 values in [-1, 1): 24 bits of mix64(tensor_index << 32 | element)."""
    values = np.empty(count, dtype=np.float64)
    for first in range(0, count, CHUNK):
        element = np.arange(first, min(first + CHUNK, count), dtype=np.uint64) | np.uint64(tensor_index << 32)
        values[first : first + CHUNK] = (mix64(element) >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0
    return values


def labels_of(key, batch):
    rows = np.arange(batch)
    return ((rows * 7 + rows // 10 + key * 3) % CLASSES).astype(np.int64)


def images_of(key, batch, height, width, channels):
    """uint8 [batch, height, width, channels]: stripes that depend on the label, plus noise."""
    label = labels_of(key, batch).reshape(-1, 1, 1, 1)
    n, y, x, c = np.meshgrid(
        np.arange(batch), np.arange(height), np.arange(width), np.arange(channels), indexing="ij"
    )
    stripes = (label * 37 + y * (label + 3) * 5 + x * (label % 4 + 1) * 9 + c * 50) % 192
    position = ((n * height + y) * width + x) * channels + c
    noise = mix64((np.uint64(key + 1) << np.uint64(40)) | position.astype(np.uint64)) >> np.uint64(58)
    return (stripes + noise.astype(np.int64)).astype(np.uint8)


# ---- Networks, in the layer names of renai's zoo --------------------------------------------------------------------
class Net:
    """Parameters by name in order of definition; `forward` is a function of them."""

    def __init__(self):
        self.shapes = {}  # name -> (shape, kind)
        self.norms = []  # names of the batch norms

    def conv(self, name, out, inp, kernel, bias):
        self.shapes[name + ".weight"] = ((out, inp, kernel, kernel), "weight")
        if bias:
            self.shapes[name + ".bias"] = ((out,), inp * kernel * kernel)

    def linear(self, name, out, inp):
        self.shapes[name + ".weight"] = ((out, inp), "weight")
        self.shapes[name + ".bias"] = ((out,), inp)

    def norm(self, name, channels):
        self.shapes[name + ".weight"] = ((channels,), "scale")
        self.shapes[name + ".bias"] = ((channels,), "shift")
        self.norms.append(name)

    def conv_bn(self, prefix, out, inp):
        self.conv(prefix + ".conv", out, inp, 3, False)
        self.norm(prefix + ".bn", out)

    def initial(self, dtype):
        """Start values: weights uniform in +-1/sqrt(fan_in), scales 1 +- 1/4, shifts +-1/8; rounded to float32."""
        values = {}
        for index, (name, (shape, kind)) in enumerate(self.shapes.items()):
            u = unit(index, int(np.prod(shape)))
            if kind == "weight":
                u = u * np.sqrt(1.0 / int(np.prod(shape[1:])))
            elif kind == "scale":
                u = 1.0 + u * 0.25
            elif kind == "shift":
                u = u * 0.125
            else:
                u = u * np.sqrt(1.0 / kind)
            values[name] = torch.tensor(u.astype(np.float32).reshape(shape)).to(dtype)
        return values


class Lenet5(Net):
    input_shape = (28, 28, 1)

    def __init__(self):
        super().__init__()
        self.conv("conv1", 6, 1, 5, True)
        self.conv("conv2", 16, 6, 5, True)
        self.linear("fc1", 120, 400)
        self.linear("fc2", 84, 120)
        self.linear("fc3", CLASSES, 84)

    def forward(self, p, x, norm):
        del norm
        x = F.max_pool2d(F.relu(F.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=2)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, p["conv2.weight"], p["conv2.bias"])), 2)
        x = torch.flatten(x, 1)
        x = F.relu(F.linear(x, p["fc1.weight"], p["fc1.bias"]))
        x = F.relu(F.linear(x, p["fc2.weight"], p["fc2.bias"]))
        return F.linear(x, p["fc3.weight"], p["fc3.bias"])


class Resnet9(Net):
    input_shape = (32, 32, 3)

    def __init__(self, width):
        super().__init__()
        self.conv_bn("prep", width, 3)
        self.conv_bn("layer1", 2 * width, width)
        self.conv_bn("layer1.res1", 2 * width, 2 * width)
        self.conv_bn("layer1.res2", 2 * width, 2 * width)
        self.conv_bn("layer2", 4 * width, 2 * width)
        self.conv_bn("layer3", 8 * width, 4 * width)
        self.conv_bn("layer3.res1", 8 * width, 8 * width)
        self.conv_bn("layer3.res2", 8 * width, 8 * width)
        self.linear("fc", CLASSES, 8 * width)

    def forward(self, p, x, norm):
        def block(prefix, x):
            x = F.conv2d(x, p[prefix + ".conv.weight"], padding=1)
            return F.relu(norm(prefix + ".bn", x))

        x = block("prep", x)
        x = F.max_pool2d(block("layer1", x), 2)
        x = x + block("layer1.res2", block("layer1.res1", x))
        x = F.max_pool2d(block("layer2", x), 2)
        x = F.max_pool2d(block("layer3", x), 2)
        x = x + block("layer3.res2", block("layer3.res1", x))
        x = torch.flatten(F.max_pool2d(x, 4), 1)
        return F.linear(x, p["fc.weight"], p["fc.bias"])


class Torchvision(Net):
    """A network of torchvision for images of 64x64, dropout off; the norms are those of the run."""

    input_shape = (64, 64, 3)

    def __init__(self, name):
        super().__init__()
        self.module = getattr(torchvision.models, name)(num_classes=CLASSES)
        fan_in = 0
        for part_name, part in self.module.named_modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                self.norm(part_name, part.num_features)
                part.forward = lambda x, name=part_name: self.norm_of_run(name, x)
                continue
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
            for key, value in part.named_parameters(recurse=False):
                fan_in = value[0].numel() if key == "weight" else fan_in
                self.shapes[f"{part_name}.{key}"] = (tuple(value.shape), "weight" if key == "weight" else fan_in)
        assert list(self.shapes) == [name for name, _ in self.module.named_parameters()]
        for value in self.module.parameters():
            value.data = torch.empty(0)  # Each run brings its own.

    def forward(self, p, x, norm):
        self.norm_of_run = norm
        return functional_call(self.module, p, x)


# ---- Training -------------------------------------------------------------------------------------------------------
class Run:
    """SGD from the formula's start; after each step the callers read loss, momentum, weights, running statistics."""

    def __init__(self, net, shards, batch, lr, weight_decay, dtype, kernels="default"):
        self.net, self.shards, self.batch, self.dtype, self.kernels = net, shards, batch, dtype, kernels
        self.params = {name: value.requires_grad_() for name, value in net.initial(dtype).items()}
        decayed = [v for n, v in self.params.items() if net.shapes[n][1] == "weight"]
        plain = [v for n, v in self.params.items() if net.shapes[n][1] != "weight"]
        self.optimizer = torch.optim.SGD(
            [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}],
            lr=lr,
            momentum=MOMENTUM,
        )
        channels = {n: net.shapes[n + ".weight"][0][0] for n in net.norms}
        self.running = {n: (torch.zeros(c, dtype=dtype), torch.ones(c, dtype=dtype)) for n, c in channels.items()}

    def batch_of(self, key):
        images = torch.tensor(images_of(key, self.batch, *self.net.input_shape)).to(self.dtype)
        memory_format = torch.channels_last if self.kernels == "channels_last" else torch.contiguous_format
        x = ((images - PIXEL_MEAN) / PIXEL_STD).permute(0, 3, 1, 2).contiguous(memory_format=memory_format)
        return x, torch.tensor(labels_of(key, self.batch))

    def backward(self, key):
        """Gradients of the mean loss over the batch of this key; the losses and statistics of the groups."""
        self.optimizer.zero_grad()
        losses = []
        statistics = {name: [] for name in self.net.norms}
        for rows, wanted in zip(*(torch.chunk(part, self.shards) for part in self.batch_of(key))):
            loss = F.cross_entropy(self.net.forward(self.params, rows, self.make_norm(statistics)), wanted)
            # Gradients of the groups add up; the average over the groups is the gradient of the mean loss.
            (loss / self.shards).backward()
            losses.append(loss.item())
        return losses, statistics

    def step(self, key):
        """One step on the batch of this key; returns the loss, the mean over the batch."""
        with torch.backends.mkldnn.flags(enabled=self.kernels != "native"):
            losses, statistics = self.backward(key)
        self.optimizer.step()
        if self.shards > 1:
            for name, values in statistics.items():
                for own, batch_values in zip(self.running[name], zip(*values)):
                    own.mul_(1 - BN_MOMENTUM).add_(torch.stack(batch_values).mean(0), alpha=BN_MOMENTUM)
        return float(np.mean(losses))

    def make_norm(self, statistics):
        def norm(name, x):
            scale, shift = self.params[name + ".weight"], self.params[name + ".bias"]
            if self.shards == 1:  # PyTorch's own running update.
                return F.batch_norm(x, *self.running[name], scale, shift, True, BN_MOMENTUM, BN_EPS)
            # With momentum 1 the "running" values are this group's mean and unbiased variance.
            mean, var = torch.zeros_like(scale.detach()), torch.ones_like(scale.detach())
            y = F.batch_norm(x, mean, var, scale, shift, True, 1.0, BN_EPS)
            statistics[name].append((mean, var))
            return y

        return norm

    def momentum(self):
        return {n: self.optimizer.state[v]["momentum_buffer"].numpy().copy() for n, v in self.params.items()}

    def weights(self):
        return {n: v.detach().numpy().copy() for n, v in self.params.items()}


def gradients(run, key):
    run.backward(key)
    return {name: value.grad.numpy().copy() for name, value in run.params.items()}


def is_decided(single, key):
    """Whether rounding leaves the gradient of this batch alone: no ReLU near its kink and no tie of a pool that counts.

    Where one is within rounding, two correct programs may take different branches and differ by far more than rounding.
    Compares, in float64 at the run's weights, the gradient with those at weights shaken by a few units of float32.
    """
    probe = type(single)(single.net, single.shards, single.batch, 0.0, 0.0, torch.float64)
    exact = {name: value.astype(np.float64) for name, value in single.weights().items()}

    def at(shake):
        with torch.no_grad():
            for index, (name, value) in enumerate(exact.items()):
                noise = unit(1000 * (shake + 1) + index, value.size).reshape(value.shape) if shake >= 0 else 0.0
                probe.params[name].copy_(torch.tensor(value * (1.0 + SHAKE * noise)))
        return gradients(probe, key)

    wanted = at(-1)
    for shake in range(6):
        for name, value in at(shake).items():
            if np.linalg.norm(value - wanted[name]) > SHAKEN_LIMIT * np.linalg.norm(wanted[name]):
                return False
    return True


def updates(run, gradient, momentum):
    """What a step from this gradient adds to the momentum times the rate: the directions of the updates."""
    decay = {id(v): group["weight_decay"] for group in run.optimizer.param_groups for v in group["params"]}
    result = {}
    for name, value in run.params.items():
        result[name] = gradient[name] + decay[id(value)] * value.detach().numpy()
        if momentum is not None:
            result[name] += MOMENTUM * momentum[name]
    return result


def choose_key(single, step):
    """The first of the step's candidate batches that is decided."""
    for candidate in range(step, step + 100 * STEPS, 100):
        if is_decided(single, candidate):
            return candidate
    raise RuntimeError(f"no decided batch for step {step}")


def next_weight(weight, momentum, lr):
    """w - lr * m in float32 with one rounding (fused), the way torch's kernel adds a scaled tensor."""
    exact = weight.astype(np.float64) + np.float64(np.float32(-lr)) * momentum.astype(np.float64)
    return exact.astype(np.float32)


def fused_exactly(weight, momentum, lr):
    """The same for one element in rational arithmetic, where two roundings of `next_weight` could differ from one."""
    value = Fraction(float(weight)) + Fraction(float(np.float32(-lr))) * Fraction(float(momentum))
    low = np.float32(float(value))
    candidates = [np.nextafter(low, np.float32(-np.inf)), low, np.nextafter(low, np.float32(np.inf))]
    return min(candidates, key=lambda c: abs(Fraction(float(c)) - value))


def check_rebuilt(before, momentum, after, lr, name):
    """The C++ side rebuilds weights from momentum; this proves that it gets torch's bits."""
    rebuilt = next_weight(before, momentum, lr)
    for at in np.argwhere(rebuilt.view(np.uint32) != after.view(np.uint32)):
        at = tuple(at)
        assert fused_exactly(before[at], momentum[at], lr) == after[at], (name, at)


def digest_words(values):
    """The low word of renai's tensor_digest over float32 values."""
    bits = values.reshape(-1).view(np.uint32)
    total = np.uint64(0)
    with np.errstate(over="ignore"):
        for first in range(0, bits.size, CHUNK):
            part = bits[first : first + CHUNK].astype(np.uint64)
            position = (np.arange(first + 1, first + 1 + part.size, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            x = position ^ (part * np.uint64(0xD6E8FEB86659FD93))
            a = (x ^ (x >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
            total += np.uint64((a ^ (a >> np.uint64(31))).sum(dtype=np.uint64))
    return total


# ---- Cases ----------------------------------------------------------------------------------------------------------
#   name            network          model       batch  lr    decay  shards  states stored  steps with --states
CASES = {
    "lenet5": (lambda: Lenet5(), "lenet5", 32, 0.05, 5e-4, (1, 8), (1,), STEPS),
    "resnet9_narrow": (lambda: Resnet9(4), "resnet9_narrow.toml", 32, 0.02, 5e-4, (1, 8), (1, 8), STEPS),
    "resnet9": (lambda: Resnet9(64), "resnet9", 16, 0.002, 5e-4, (1, 8), (), STEPS),
    "resnet50": (lambda: Torchvision("resnet50"), "resnet50", 8, 0.002, 5e-4, (1,), (), 10),
    "vgg16_bn": (lambda: Torchvision("vgg16_bn"), "vgg16_bn", 8, 0.002, 5e-4, (1,), (), 10),
}

# At the rate above rounding moves the loss of these by a tenth in the second step; running free they take a lower one.
FREE_LR = {"resnet50": 1e-5, "vgg16_bn": 1e-5}


def write_attributes(file, case, shards, batch, lr, decay, model, steps):
    for key, value in {
        "case": case,
        "model": model,
        "lr": repr(lr),
        "momentum": repr(MOMENTUM),
        "weight_decay": repr(decay),
        "made_with": "torch " + torch.__version__,
    }.items():
        file.attrs.create(key, value, dtype=h5py.string_dtype("ascii", len(value)))
    for key, value in {"logical_shards": shards, "batch": batch, "steps": steps}.items():
        file.attrs.create(key, value, dtype=np.int64)


def own_spread(single, probe, key):
    """How far PyTorch's own kernels are apart: the largest difference between the loss of the step that `single` has
    not taken yet and those of its other kernels from the same state; and for each parameter that of the updates, over
    the update's norm, or over its weight's where it is rounding. `probe` is a run to compute their gradients with."""
    weights, momentum = single.weights(), single.momentum() if single.optimizer.state else None
    with torch.no_grad():
        for name, value in weights.items():
            probe.params[name].copy_(torch.tensor(value))
    own, losses, apart = None, [], {}
    for probe.kernels in (single.kernels, *OTHER_KERNELS):
        with torch.backends.mkldnn.flags(enabled=probe.kernels != "native"):
            losses.append(float(np.mean(probe.backward(key)[0])))
        found = {name: value.grad.numpy() for name, value in probe.params.items()}
        own = own or {name: value.copy() for name, value in found.items()}
        for name, value in own.items():
            apart[name] = max(apart.get(name, 0.0), np.linalg.norm(found[name] - value))
    spread, weight_norm = [], 0.0
    for name, value in updates(single, own, momentum).items():
        scale = np.linalg.norm(value)
        if name.endswith(".weight"):
            weight_norm = scale
        elif scale < SILENT * weight_norm:
            scale = weight_norm
        spread.append(apart[name] / scale)
    return max(losses) - min(losses), spread


class MomentumFiles:
    """Writes the momentum of the steps, as many steps a file as fit."""

    def __init__(self, base, net, packed):
        self.base, self.packed = base, packed
        self.per_file = max(1, MAX_FILE_VALUES // sum(int(np.prod(shape)) for shape, _ in net.shapes.values()))
        self.first, self.waiting = 0, []

    def add(self, momentum):
        self.waiting.append(momentum)
        if len(self.waiting) == self.per_file:
            self.flush()

    def flush(self):
        if not self.waiting:
            return
        with h5py.File(f"{self.base}_momentum{self.first:02d}.h5", "w") as file:
            for name in self.waiting[0]:
                block = np.stack([momentum[name] for momentum in self.waiting])
                packed = {"chunks": block.shape, "compression": "gzip", "compression_opts": 9, "shuffle": True}
                file.create_dataset(name, data=block, **(packed if self.packed else {}))
        self.first, self.waiting = self.first + len(self.waiting), []


def make_case(case, shards, keys, all_states=False):
    """Writes one run; `keys` are its batches, chosen here when None. Returns them."""
    make, model, batch, lr, decay, _, stored, state_steps = CASES[case]
    steps, lr = (state_steps, lr) if all_states else (STEPS, FREE_LR.get(case, lr))
    keep_states = all_states or shards in stored
    base = f"{case}_v{shards}"
    net = make()
    single = Run(net, shards, batch, lr, decay, torch.float32)
    # With all states each step stands for itself; where runs end up is measured without.
    double = None if all_states else Run(make(), shards, batch, lr, decay, torch.float64)
    others = [] if all_states else [Run(make(), shards, batch, lr, decay, torch.float32, name) for name in OTHER_KERNELS]
    probe = Run(make(), shards, batch, lr, decay, torch.float32) if all_states else None
    files = MomentumFiles(base, net, packed=not all_states) if keep_states else None
    chosen, loss32, loss64, loss_others, running, digests, spread, loss_spread = ([] for _ in range(8))
    for step in range(steps):
        key = choose_key(single, step) if keys is None else keys[step]
        if all_states:
            loss_spread[step:], spread[step:] = zip(own_spread(single, probe, key))
        before = single.weights() if keep_states else None
        chosen.append(key)
        loss32.append(single.step(key))
        loss64.append(double.step(key) if double else loss32[-1])
        loss_others.append([other.step(key) for other in others])
        if keep_states:
            momentum, after = single.momentum(), single.weights()
            running.append({n: [v.numpy().copy() for v in pair] for n, pair in single.running.items()})
            for name, value in after.items():
                check_rebuilt(before[name], momentum[name], value, lr, name)
            digests.append([digest_words(value) for value in after.values()])
            files.add(momentum)
        print(f"{case} V={shards} step {step} batch {key}: {loss32[-1]:.7f} " + " ".join(
            f"{loss - loss64[-1]:+.2e}" for loss in [loss32[-1], *loss_others[-1]]) + (
                f" spread {loss_spread[-1]:.1e} (loss), {max(spread[-1]):.1e}" if all_states else ""), flush=True)
    if files:
        files.flush()

    with h5py.File(base + ".h5", "w") as file:
        write_attributes(file, case, shards, batch, lr, decay, model, steps)
        file["batch_key"] = np.array(chosen, dtype=np.int64)
        file["loss_fp32"] = np.array(loss32, dtype=np.float64)
        final = single.weights()
        if not all_states:
            file["loss_fp32_others"] = np.array(loss_others, dtype=np.float64).T
            file["loss_fp64"] = np.array(loss64, dtype=np.float64)
            norms = [[np.linalg.norm(v.astype(np.float64)) for v in run.weights().values()] for run in (single, double)]
            file["final_norm_fp32"], file["final_norm_fp64"] = (np.array(n, dtype=np.float64) for n in norms)
        names = "\n".join(final)
        file.attrs.create("parameters", names, dtype=h5py.string_dtype("ascii", len(names)))
        if all_states:
            file["update_spread"] = np.array(spread, dtype=np.float64)
            file["loss_spread"] = np.array(loss_spread, dtype=np.float64)
        if keep_states:
            file["weight_digest"] = np.array(digests, dtype=np.uint64)
            for name in net.norms:
                for which, key in enumerate(("running_mean", "running_var")):
                    file[f"bn_running/{name}.{key}"] = np.stack([values[name][which] for values in running])
    return chosen


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    words = sys.argv[1:]
    all_states = words[:1] == ["--states"]
    os.chdir(words[1] if all_states else os.path.dirname(os.path.abspath(__file__)))
    for case in words[2 if all_states else 0:] or CASES:
        keys = None if CASES[case][6] else list(range(STEPS))
        for shards in CASES[case][5]:
            # Runs without states of their own are compared with those of V = 1, so they see the same batches.
            keys_of_run = None if shards in CASES[case][6] else keys
            keys = make_case(case, shards, keys_of_run, all_states)


if __name__ == "__main__":
    main()
