#!/usr/bin/env python3
"""Writes optimizer_CASE.h5: training runs of a small network by PyTorch's optimizers, and by LARS's definition in numpy.

Run as `python3 make_optimizer_golden.py [case ...]` in this folder; needs torch, numpy and h5py. README.md describes the
files. Everything is a pure function of this script, of make_torch_golden.py and of torch's version.
"""

import os
import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F

from make_torch_golden import BN_EPS, BN_MOMENTUM, CLASSES, PIXEL_MEAN, PIXEL_STD, Net, images_of, labels_of

STEPS, BATCH = 25, 16


class OptimizerNet(Net):
    input_shape = (8, 8, 1)

    def __init__(self):
        super().__init__()
        self.conv("conv1", 4, 1, 3, False)
        self.norm("bn1", 4)
        self.conv("conv2", 6, 4, 3, True)
        self.linear("fc", CLASSES, 24)

    def forward(self, p, x, norm):
        x = F.avg_pool2d(F.silu(norm("bn1", F.conv2d(x, p["conv1.weight"], padding=1))), 2)
        x = F.avg_pool2d(torch.tanh(F.conv2d(x, p["conv2.weight"], p["conv2.bias"], padding=1)), 2)
        return F.linear(torch.flatten(x, 1), p["fc.weight"], p["fc.bias"])


class Lars:
    """You, Gitman and Ginsburg 2017, algorithm 1, on convolution and linear weights; plain SGD on the rest."""

    def __init__(self, groups, lr, momentum, eta, eps):
        self.param_groups = [dict(group, lr=lr) for group in groups]
        self.momentum, self.eta, self.eps = momentum, eta, eps
        self.state = {v: {"momentum_buffer": torch.zeros_like(v)} for g in groups for v in g["params"]}

    def zero_grad(self):
        for group in self.param_groups:
            for v in group["params"]:
                v.grad = None

    def step(self):
        for group in self.param_groups:
            real = np.float64 if group["params"][0].dtype == torch.float64 else np.float32
            lr, decay = group["lr"], real(group["weight_decay"])
            for v in group["params"]:
                w, g = v.detach().numpy(), v.grad.numpy()
                buffer = self.state[v]["momentum_buffer"].numpy()
                if group["adaptive"]:
                    w_norm, g_norm = (np.linalg.norm(x.astype(np.float64)) for x in (w, g))
                    local = self.eta * w_norm / (g_norm + float(decay) * w_norm + self.eps)
                    buffer[...] = real(self.momentum) * buffer + real(lr * local) * (g + decay * w)
                    w -= buffer
                else:
                    buffer[...] = real(self.momentum) * buffer + (g + decay * w)
                    w -= real(lr) * buffer


#       case           constructor           its options                                        lr     decay  options of renai
CASES = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9}, 0.05, 0.01, {"momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}, 0.05, 0.01, {"momentum": 0.9, "nesterov": 1}),
    "adam": (torch.optim.Adam, {"betas": (0.9, 0.999), "eps": 1e-8}, 0.01, 0.01,
             {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}),
    "adamw": (torch.optim.AdamW, {"betas": (0.8, 0.99), "eps": 1e-6}, 0.02, 0.5,
              {"beta1": 0.8, "beta2": 0.99, "eps": 1e-6}),
    "lars": (Lars, {"momentum": 0.9, "eta": 0.02, "eps": 1e-6}, 0.5, 0.01,
             {"momentum": 0.9, "eta": 0.02, "eps": 1e-6}),
}
# Layers without gradients, and so without steps of their own, before or from a step on.
LATE, EARLY = {"conv1_until": 12}, {"fc_after": 18}
for name in ("adam", "adamw"):
    make, options, lr, decay, own = CASES[name]
    CASES[name + "_frozen"] = (make, options, lr, decay, {**own, **LATE, **EARLY})
STATES = {"momentum": ("momentum_buffer", "exp_avg"), "second_moment": ("exp_avg_sq",)}


def rate(lr, step):
    """Another one for each step, exact in float32."""
    return float(np.float32(lr * (1.0 + 0.5 * (step % 3)) / (1.0 + 0.05 * step)))


class Run:
    def __init__(self, case, dtype):
        make, options, self.lr, decay, self.own = CASES[case]
        self.net, self.dtype = OptimizerNet(), dtype
        self.params = {name: value.requires_grad_() for name, value in self.net.initial(dtype).items()}
        weights = [v for n, v in self.params.items() if self.net.shapes[n][1] == "weight"]
        rest = [v for n, v in self.params.items() if self.net.shapes[n][1] != "weight"]
        groups = [{"params": weights, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
        if make is Lars:
            groups[0]["adaptive"], groups[1]["adaptive"] = True, False
        self.optimizer = make(groups, lr=self.lr, **options)
        channels = {n: self.net.shapes[n + ".weight"][0][0] for n in self.net.norms}
        self.running = {n: (torch.zeros(c, dtype=dtype), torch.ones(c, dtype=dtype)) for n, c in channels.items()}

    def norm(self, name, x):
        scale, shift = self.params[name + ".weight"], self.params[name + ".bias"]
        return F.batch_norm(x, *self.running[name], scale, shift, True, BN_MOMENTUM, BN_EPS)

    def step(self, step):
        images = torch.tensor(images_of(step, BATCH, *self.net.input_shape)).to(self.dtype)
        x = ((images - PIXEL_MEAN) / PIXEL_STD).permute(0, 3, 1, 2).contiguous()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net.forward(self.params, x, self.norm), torch.tensor(labels_of(step, BATCH)))
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.lr, step)
        for name, value in self.params.items():
            if self.frozen(name.split(".")[0], step):
                value.grad = None
        self.optimizer.step()
        return loss.item()

    def frozen(self, layer, step):
        return step < self.own.get(layer + "_until", 0) or step >= self.own.get(layer + "_after", STEPS)

    def snapshot(self):
        values = {f"weights/{n}": v.detach().numpy() for n, v in self.params.items()}
        for name, (mean, var) in self.running.items():
            values[f"bn_running/{name}.running_mean"], values[f"bn_running/{name}.running_var"] = mean.numpy(), var.numpy()
        for group, keys in STATES.items():
            for name, v in self.params.items():
                state = self.optimizer.state[v] if v in self.optimizer.state else {}
                found = [state[key].numpy() for key in keys if key in state]
                if found:
                    values[f"{group}/{name}"] = found[0]
        return {key: value.astype(np.float32) for key, value in values.items()}


def make_case(case):
    lr, decay, options = CASES[case][2:]
    single, double = Run(case, torch.float32), Run(case, torch.float64)
    # PyTorch's states are those of its float32 run; LARS is held to its definition in float64.
    followed = double if case == "lars" else single
    rows, losses = [followed.snapshot()], []
    for step in range(STEPS):
        losses.append((single.step(step), double.step(step)))
        rows.append(followed.snapshot())
        print(f"{case} step {step}: {losses[-1][1]:.7f} {losses[-1][0] - losses[-1][1]:+.2e}", flush=True)
    with h5py.File(f"optimizer_{case}.h5", "w") as file:
        for key, value in {"weight_decay": decay, "made_with": "torch " + torch.__version__, **options}.items():
            text = value if isinstance(value, str) else repr(value)
            file.attrs.create(key, text, dtype=h5py.string_dtype("ascii", len(text)))
        file["lr"] = np.array([rate(lr, step) for step in range(STEPS)], dtype=np.float32)
        file["loss_fp32"], file["loss_fp64"] = (np.array(column, dtype=np.float64) for column in zip(*losses))
        for key, last in rows[-1].items():
            # The optimizer's state starts at zero, before PyTorch makes it.
            block = np.stack([row.get(key, np.zeros_like(last)) for row in rows])
            file.create_dataset(key, data=block, chunks=block.shape, compression="gzip", compression_opts=9,
                                shuffle=True)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    for case in sys.argv[1:] or CASES:
        make_case(case)


if __name__ == "__main__":
    main()
