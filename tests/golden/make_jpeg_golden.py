#!/usr/bin/env python3
"""Writes jpeg.h5: JPEG images of every kind with the pixels that PIL reads from them. Needs PIL, numpy and h5py.

Run as `python3 make_jpeg_golden.py` in this folder; README.md describes the file. For each case the dataset `CASE/bytes` holds
the file, `CASE/pixels8`, `pixels4`, `pixels2` and `pixels1` the RGB pixels at that many eighths of its size, as they are to be seen.
"""

import io

import h5py
import numpy as np
from PIL import Image, ImageOps

HEIGHT, WIDTH = 53, 71  # No multiple of any block, so that every edge is partial.


def scene(channels=3):
    """A smooth picture without symmetry, with some texture and an edge."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float64)
    planes = []
    for k in range(channels):
        plane = 120 + 90 * np.sin(x / (9.0 + 4 * k) + k) * np.cos(y / (13.0 - 2 * k)) + 0.4 * y - 0.2 * x
        plane += np.where((x - 45) ** 2 + (y - 30) ** 2 < 18 ** 2, 50 - 40 * k, 0) + 6 * np.sin(3.1 * x + 1.7 * y)
        planes.append(np.clip(plane, 0, 255))
    return np.stack(planes, axis=2).astype(np.uint8)


def saved(image, **options):
    file = io.BytesIO()
    image.save(file, "JPEG", **{"quality": 90, **options})
    return file.getvalue()


def oriented(image, orientation, **options):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return saved(image, exif=exif.tobytes(), **options)


def pixels(data, eighths):
    image = Image.open(io.BytesIO(data))
    stored = image.size
    if eighths < 8:
        scale = 8 // eighths
        image.draft(image.mode, (max(image.width // scale, 1), max(image.height // scale, 1)))
        if image.size[0] != (stored[0] + scale - 1) // scale:
            return None
    return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def main():
    rgb = Image.fromarray(scene())
    cases = {
        "yuv420": saved(rgb, subsampling=2),
        "yuv422": saved(rgb, subsampling=1),
        "yuv444": saved(rgb, subsampling=0),
        "progressive": saved(rgb, subsampling=2, progressive=True),
        "low_quality": saved(rgb, subsampling=2, quality=12),
        "grey": saved(Image.fromarray(scene(1)[:, :, 0])),
        "cmyk": saved(Image.fromarray(scene(4), mode="CMYK")),
        "one_pixel": saved(rgb.crop((40, 30, 41, 31))),
        "one_row": saved(rgb.crop((0, 30, WIDTH, 31))),
    }
    for orientation in range(1, 9):
        cases[f"orientation{orientation}"] = oriented(rgb, orientation, subsampling=2 if orientation % 2 else 0)
    with h5py.File("jpeg.h5", "w") as file:
        file.attrs["made_with"] = f"Pillow {Image.__version__}"
        for name, data in cases.items():
            file[f"{name}/bytes"] = np.frombuffer(data, np.uint8)
            for eighths in (8, 4, 2, 1):
                seen = pixels(data, eighths)
                if seen is not None:  # PIL makes the smallest images no smaller.
                    file.create_dataset(f"{name}/pixels{eighths}", data=seen, compression="gzip")


if __name__ == "__main__":
    main()
