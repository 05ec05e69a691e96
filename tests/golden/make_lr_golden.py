#!/usr/bin/env python3
"""Writes lr_schedules.json: learning rates of PyTorch's schedulers that renai's schedules must give.

Run as `python3 make_lr_golden.py` in this folder; needs torch. Each case holds the options of renai that mean the same
as the scheduler named in it, and the rate of every step.
"""

import json
import warnings

import torch
from torch.optim import lr_scheduler as schedulers

LR = 0.4


def rates(make, steps):
    """Rate of each step: the scheduler is stepped once after every optimizer step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler = make(optimizer)
    values = []
    for _ in range(steps):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return values


def case(name, schedule, make, steps=40, batches=4, **options):
    options = {key.replace("_", "-"): value for key, value in options.items()}
    options = {"lr": LR, "lr-schedule": schedule, "warmup-epochs": 0.0, **options}
    return {"torch": name, "options": options, "batches": batches, "total": steps, "values": rates(make, steps)}


def after_warmup(steps, make):
    """Linear warm-up over `steps` steps, (step + 1) / steps of the rate, then another scheduler."""
    return lambda optimizer: schedulers.SequentialLR(
        optimizer,
        [schedulers.LinearLR(optimizer, start_factor=1 / steps, end_factor=1.0, total_iters=steps - 1),
         make(optimizer)],
        milestones=[steps])


def main():
    warnings.simplefilter("ignore")  # SequentialLR calls its parts in a way that torch itself calls deprecated.
    s = schedulers
    cases = [
        case("StepLR(12, 0.5)", "step", lambda o: s.StepLR(o, 12, 0.5), lr_step_epochs=3.0, lr_gamma=0.5),
        case("MultiStepLR([8, 24, 36], 0.1)", "multistep", lambda o: s.MultiStepLR(o, [8, 24, 36], 0.1),
             lr_milestones="2,6,9", lr_gamma=0.1),
        case("ExponentialLR(0.9)", "exponential", lambda o: s.ExponentialLR(o, 0.9), batches=1, lr_gamma=0.9),
        case("PolynomialLR(40, 1)", "polynomial", lambda o: s.PolynomialLR(o, 40, 1.0)),
        case("PolynomialLR(40, 2)", "polynomial", lambda o: s.PolynomialLR(o, 40, 2.0), lr_power=2.0),
        case("CosineAnnealingLR(40, 0)", "cosine", lambda o: s.CosineAnnealingLR(o, 40)),
        case("CosineAnnealingLR(40, 0.01)", "cosine", lambda o: s.CosineAnnealingLR(o, 40, 0.01), lr_min=0.01),
        case("LinearLR over 6 steps, then CosineAnnealingLR(34, 0.01)", "cosine",
             after_warmup(6, lambda o: s.CosineAnnealingLR(o, 34, 0.01)), lr_min=0.01, warmup_epochs=1.5),
        case("LinearLR over 8 steps, then PolynomialLR(32, 0.9)", "polynomial",
             after_warmup(8, lambda o: s.PolynomialLR(o, 32, 0.9)), lr_power=0.9, warmup_epochs=2.0),
        case("CosineAnnealingWarmRestarts(12, 1, 0.001)", "cosine-restarts",
             lambda o: s.CosineAnnealingWarmRestarts(o, 12, 1, 0.001), lr_cycle_epochs=3.0, lr_min=0.001),
        case("CosineAnnealingWarmRestarts(6, 2, 0)", "cosine-restarts",
             lambda o: s.CosineAnnealingWarmRestarts(o, 6, 2), lr_cycle_epochs=1.5, lr_cycle_mult=2),
        case("OneCycleLR(0.4, 41)", "onecycle", lambda o: s.OneCycleLR(o, LR, 41), steps=41),
        case("OneCycleLR(0.4, 41, pct_start=0.45, div_factor=10, final_div_factor=100)", "onecycle",
             lambda o: s.OneCycleLR(o, LR, 41, pct_start=0.45, div_factor=10, final_div_factor=100), steps=41,
             lr_pct_start=0.45, lr_div_factor=10.0, lr_final_div_factor=100.0),
    ]
    lines = ",\n".join(json.dumps(entry) for entry in cases)
    with open("lr_schedules.json", "w", encoding="utf-8") as file:
        file.write(f'{{"made_with": "torch {torch.__version__}", "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
