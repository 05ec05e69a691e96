#!/usr/bin/env python3
"""Each of launch/recipes says where it comes from, what to expect and how to run it, and is planned as it stands."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import renai_cli  # noqa: E402

FOLDER = renai_cli.SOURCE / "launch" / "recipes"
# Side, channels and classes of the recipe's data. The side of ImageNet's files is a small one here: the recipes set the
# network's input, and a plan reads no pixels.
SHAPES = {"imagenet": (8, 3, 1000), "cifar10": (32, 3, 10), "mnist": (28, 1, 10), "fashion-mnist": (28, 1, 10)}
PARTIAL = 200  # Samples of an epoch's last batch: more than any recipe has logical shards.


class RecipesTest(renai_cli.FolderTest):
    def dry_run(self, recipe):
        text = recipe.read_text()
        data = re.search(r'^data = "datasets/(.*)"$', text, re.MULTILINE).group(1)
        batch = int(re.search(r"^global-batch = (\d+)$", text, re.MULTILINE).group(1))
        out = self.folder / f"{data}-{batch}"
        if not out.exists():
            side, channels, classes = SHAPES[data]
            self.succeeds(renai_cli.run([renai_cli.renai(), "pack", "synthetic", "--out", out, "--height", side,
                                         "--width", side, "--channels", channels, "--classes", classes,
                                         "--train", batch + PARTIAL, "--val", 32]))
        return self.succeeds(renai_cli.run([renai_cli.renai(), "train", "--config", recipe, "--data", out,
                                            "--device", "cpu", "--dry-run"]))

    def test_every_recipe_is_planned(self):
        recipes = sorted(FOLDER.glob("*.toml"))
        self.assertGreaterEqual(len(recipes), 6)
        for recipe in recipes:
            with self.subTest(recipe=recipe.name):
                plan = self.dry_run(recipe)
                for line in recipe.read_text().splitlines():
                    key = line.split(" = ")[0]
                    if not line.startswith("#") and key != "data":
                        self.assertRegex(plan, rf"(?m)^{re.escape(key)} = ")
                self.assertIn("schedule:\n", plan)
                self.assertIn(" samples and one of ", plan)

    def test_every_recipe_tells_source_expectation_and_command(self):
        for recipe in sorted(FOLDER.glob("*.toml")):
            with self.subTest(recipe=recipe.name):
                comments = [line for line in recipe.read_text().splitlines() if line.startswith("#")]
                self.assertEqual(len([line for line in comments if line.startswith("# Source: ")]), 1)
                expected = [line for line in comments if line.startswith("# Expected: ")]
                self.assertEqual(len(expected), 1)
                self.assertRegex(expected[0], r"\d+(\.\d+)? % top-1")
                self.assertTrue(any(f"--config launch/recipes/{recipe.name}" in line for line in comments))


if __name__ == "__main__":
    renai_cli.main()
