#!/usr/bin/env python3
"""`renai bench comm` on two GPUs: the fixed tree beside the library's all-reduce, and their ratio at 102 MB."""

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import device_cli  # noqa: E402

SMALLEST, LARGEST, GRADIENT = 4096, 1 << 30, 102_000_000
LARGEST_RATIO = 1.15
# Two ranks reduce through the library; what more ranks need, our own exchange, is asked for by --pieces.
LARGEST_RATIO_OF_EXCHANGE = 1.25
ROUNDS = 3


class CommTest(device_cli.DeviceTest):
    gpus_needed = 2

    def setUp(self):
        super().setUp()
        if not device_cli.has_option(["bench"], "comm"):
            self.assertTrue(device_cli.ON_CPU, "the program has no `bench comm`")
            self.skipTest("this build has no `bench comm`")

    def bench(self, *words):
        output = self.succeeds(device_cli.launch(2, "bench", "comm", "--device", device_cli.DEVICE, "--json", *words))
        result = json.loads([line for line in output.splitlines() if line.startswith("{")][-1])
        self.assertEqual(result["world_size"], 2)
        table = {}
        for row in result["rows"]:
            for key in ("algorithm_gb_per_s", "bus_gb_per_s", "recorded_us"):
                self.assertGreater(row[key], 0.0)
            table.setdefault(row["algorithm"], {})[row["bytes"]] = row
        return table

    def test_sizes(self):
        table = self.bench(*(["--max-bytes", 1 << 20] if device_cli.ON_CPU else []))
        self.assertEqual(set(table), {"tree"} if device_cli.ON_CPU else {"tree", "fast"})
        for rows in table.values():
            self.assertEqual(min(rows), SMALLEST)
            self.assertEqual(max(rows), 1 << 20 if device_cli.ON_CPU else LARGEST)
            self.assertGreaterEqual(len(rows), 5)
        for size, row in sorted(table["tree"].items()):
            fast = table.get("fast", {}).get(size, row)
            device_cli.say(f"{size:>11} bytes: tree {row['recorded_us']:10.1f} us {row['bus_gb_per_s']:7.2f} GB/s, "
                           f"fast {fast['recorded_us']:10.1f} us {fast['bus_gb_per_s']:7.2f} GB/s")

    def test_ratio_at_102_mb(self):
        if device_cli.ON_CPU:
            self.skipTest("the CPU has the tree alone")
        for words, largest in (([], LARGEST_RATIO), (["--pieces", 1], LARGEST_RATIO_OF_EXCHANGE)):
            ratios = []
            for _ in range(ROUNDS):
                table = self.bench("--min-bytes", GRADIENT, "--max-bytes", GRADIENT, *words)
                ratios.append(table["tree"][GRADIENT]["recorded_us"] / table["fast"][GRADIENT]["recorded_us"])
            name = "own exchange" if words else "tree"
            device_cli.say(f"102 MB, {name} over fast: " + " ".join(f"{ratio:.3f}" for ratio in ratios))
            with self.subTest(reduction=name):
                self.assertLessEqual(statistics.median(ratios), largest)


if __name__ == "__main__":
    device_cli.main()
