#pragma once
// Learning-rate schedules: pure functions of the step.

#include <cstdint>
#include <string>
#include <vector>

#include "renai/train/recipe.hpp"

namespace renai {

/// Optimizer steps of the whole run: --steps, or --epochs rounded up to whole steps.
std::int64_t total_steps(const Recipe& recipe, std::int64_t batches);

/// Optimizer steps of warm-up: --warmup-epochs rounded to whole steps.
std::int64_t warmup_steps(const Recipe& recipe, std::int64_t batches);

/// Values of --lr-schedule.
std::vector<std::string> lr_schedule_names();

/// Learning rate of optimizer step `step` (from 0) of `total_steps`, with `batches` steps an epoch.
///
/// Warm-up rises linearly: (step + 1) / warm-up steps of --lr, of onecycle's and piecewise's first value after it.
/// Then, with e = step / batches epochs from the start of the run, a = --lr, m = --lr-min, and n steps after warm-up of
/// which s have passed (t = s / n, at most 1):
///   constant         a
///   step             a gamma^floor(e / lr-step-epochs)
///   multistep        a gamma^(milestones reached)
///   exponential      a gamma^(s / batches)
///   polynomial       m + (a - m) (1 - t)^power
///   cosine           m + (a - m) (1 + cos(pi t)) / 2
///   cosine-restarts  cosine within each cycle; cycle i has lr-cycle-epochs lr-cycle-mult^i epochs
///   wsd              a, then m + (a - m) (steps left) / (steps of decay); the decay takes at most the n steps
///   onecycle         from a / div-factor up to a at s = pct-start n - 1, then down to a / div-factor /
///   final-div-factor
///                    at s = n - 1, both along half a cosine
///   piecewise        a times the factor interpolated between lr-points at e; constant before the first, after the last
///
/// Determinism: no state and no allocation, so a continued run and every rank compute the same value.
/// Source: PyTorch's StepLR, MultiStepLR, ExponentialLR, PolynomialLR, CosineAnnealingLR, OneCycleLR (Smith and Topin,
/// "Super-Convergence", 2018) and CosineAnnealingWarmRestarts (Loshchilov and Hutter, "SGDR", 2017); wsd: Haegele et
/// al., "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", 2024.
float learning_rate(const Recipe& recipe, std::int64_t step, std::int64_t total_steps, std::int64_t batches);

/// The lists --lr-milestones and --lr-points: written as they should be, and given where the schedule needs them. No
/// option but of this schedule has another value than its default.
/// Errors: UserError.
void verify_schedule(const Recipe& recipe);

/// --lr-schedule and the options that only some schedules read get their defaults back.
void forget_schedule(Recipe& recipe);

}  // namespace renai
