#!/usr/bin/env python3
"""Steps from the same states on the CPU leaf and on the GPU, in fp32: equal loss and updates within rounding. Equal
traces of one leaf prove nothing about what it computes; this stands beside them."""

import functools
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import device_cli  # noqa: E402

STATES = 3 if device_cli.ON_CPU else 20
DEVICES = ("reference", "cpu") if device_cli.ON_CPU else ("cpu", "cuda")
LOSS, UPDATE = 1e-4, 1e-3  # Relative; the update by L2 norm, the limit of `renai bench step`'s own proof.
# Rounding may turn over a decision (which of two values is a window's maximum): in a few steps, and by little.
TURNED_STEPS, TURNED_UPDATE = STATES // 5, 5e-2


def weights_of(run):
    """name -> array of a run's newest checkpoint."""
    import h5py
    name = (run / "checkpoints" / "latest").read_text().strip()
    return read_weights(h5py, run / "checkpoints" / name)


def read_weights(h5py, path):
    with h5py.File(path, "r") as file:
        return {name: item[:].astype("float64") for name, item in file["weights"].items()}


class LeavesTest(device_cli.DeviceTest):
    def one_step(self, state, data, device, seed):
        """Loss and weights after one step from a checkpoint."""
        name = f"{device}-{seed}"
        trace = self.train(name, data, model="cnn-small", steps=1, seed=seed, device=device, init_from=state,
                           momentum=0, nesterov=False, warmup_epochs=0, lr_schedule="constant", lr=0.1)
        step = json.loads(trace.read_text().splitlines()[1])
        return step["loss_value"], weights_of(self.folder / name)

    def test_each_step_agrees(self):
        try:
            import h5py
        except ImportError:
            self.skipTest(f"{sys.executable} has no h5py to read checkpoints")
        data = self.synthetic(side=28, channels=1)
        states = device_cli.launch(1, *self.train_words("states", data, model="cnn-small", device="cpu", steps=STATES,
                                                        checkpoint_every=1, keep=STATES))
        if states.returncode == 5 and "no oneDNN" in states.stdout:
            self.skipTest("this build has no CPU leaf to compare with")
        self.succeeds(states)
        states = sorted((self.folder / "states" / "checkpoints").glob("step-*.h5"))
        self.assertEqual(len(states), STATES)
        calls = [functools.partial(self.one_step, state, data, device, seed)
                 for seed, state in enumerate(states, 1) for device in DEVICES]
        results = device_cli.together(calls)
        deviations = []
        for i, state in enumerate(states):
            before = read_weights(h5py, state)
            (loss, after), (other_loss, other_after) = results[2 * i:2 * i + 2]
            with self.subTest(state=state.name):
                self.assertLessEqual(abs(loss - other_loss), LOSS * max(1.0, abs(loss)))
                self.assertEqual(set(after), set(other_after))
                difference = sum(((after[name] - other_after[name]) ** 2).sum() for name in after)
                size = sum(((after[name] - before[name]) ** 2).sum() for name in after)
                self.assertGreater(size, 0.0)
                deviations.append(math.sqrt(difference / size))
        device_cli.say("updates on " + " and ".join(DEVICES) + " differ by " + " ".join(f"{d:.1e}" for d in deviations))
        self.assertLessEqual(max(deviations), TURNED_UPDATE)
        self.assertLessEqual(sum(deviation > UPDATE for deviation in deviations), TURNED_STEPS)


if __name__ == "__main__":
    device_cli.main()
