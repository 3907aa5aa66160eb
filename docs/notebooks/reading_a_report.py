# %% [markdown]
# # Reading a report
#
# `happier report RUN --against RUN2` writes one page about two models. This notebook makes one, of two simple
# models of handwritten digits, and goes through its parts in the order in which they should be read. In
# Python a report is data: what the page shows can be asked for.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from happier.data import Manifest
from happier.report import ReportOptions, write_report
from happier.runs import read_run

folder = Path(tempfile.mkdtemp())
images, digit = load_digits(return_X_y=True)
names = np.array("zero one two three four five six seven eight nine".split())
strokes = np.array(
    ["loops", "straight", "hooks", "hooks", "straight", "hooks", "loops", "straight", "loops", "loops"]
)
shown = np.arange(1200, 1700)
for number in shown:
    pixels = Image.fromarray((255 - 15.9 * images[number].reshape(8, 8)).astype(np.uint8))
    pixels.resize((48, 48)).save(folder / f"{number}.png")
rows = {
    "path": [f"{n}.png" for n in shown],
    "split": "test",
    "strokes": strokes[digit[shown]],
    "digit": names[digit[shown]],
}
manifest = Manifest(pd.DataFrame(rows), levels=["strokes", "digit"], root=folder)
written = manifest.write(folder / "digits.parquet")

# %% [markdown]
# Two models: the pixels as they are, and a linear projection that was learnt from other images of the digits.

# %%
learnt = LinearDiscriminantAnalysis().fit(images[:1200], digit[:1200])
models = {"pixels": images[shown], "projection": learnt.transform(images[shown])}
for name, vectors in models.items():
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.save(folder / f"{name}.npy", unit.astype(np.float32))

runs = [
    read_run(folder / f"{name}.npy", manifest=folder / "digits.parquet") for name in ("projection", "pixels")
]
report = write_report(runs, folder / "report", options=ReportOptions(figures=False))
print(*sorted(path.name for path in (folder / "report").iterdir()))

# %% [markdown]
# ## 1. The headline
#
# One sentence: how good, and by how much better. The difference is paired by query; its interval is over the
# finest classes. Where it contains 0, trust none of the differences below.

# %%
print(report.headline)
main = report.metric("H-AP")
print(f"difference {main.difference.mean:+.3f} ({main.difference.low:+.3f} to {main.difference.high:+.3f})")

# %% [markdown]
# ## 2. Severity: when it is wrong, how wrong?
#
# Of the queries whose list has a wrong answer at all: what does the *first* wrong one share with the query?
# A model may make as many mistakes and still be better, if its bars have less red.

# %%
figure, axes = plt.subplots(figsize=(7, 1.5), dpi=80)
for row, shares in enumerate(report.severity.first_mistake):
    left = 0.0
    for share, words, colour in zip(
        shares[::-1], ("the same strokes", "nothing"), ("#3b7dd8", "#d6453d"), strict=True
    ):
        axes.barh(row, share, left=left, color=colour, label=words if row == 0 else None)
        axes.text(left + share / 2, row, f"{share:.0%}", color="white", ha="center", va="center")
        left += share
axes.set(yticks=[0, 1], yticklabels=[model.name for model in report.models], xticks=[], xlim=(0, 1))
axes.invert_yaxis()
axes.spines[:].set_visible(False)
figure.legend(loc="lower center", ncols=2, frameon=False, bbox_to_anchor=(0.5, -0.15))
plt.show()

# %% [markdown]
# ## 3. The figures
#
# Every row has both models and their difference. `improved` is true or false only where the adjusted p-value
# is below 0.05; where it is `None`, the two cannot be told apart.

# %%
for metric in report.metrics[:7]:
    first, second = (value.mean for value in metric.values)
    print(f"{metric.label:<24} {first:6.3f} {second:6.3f}   improved: {metric.improved}")

# %% [markdown]
# ## 4. Examples
#
# None is picked by hand: the largest gains, the largest losses, and some from the middle, by rule. Look at
# the losses first.

# %%
example = next(item for item in report.examples.items if item.reason == "loss")
figure, places = plt.subplots(2, 9, figsize=(7, 1.7), dpi=160, facecolor="none")
colours = ("#d6453d", "#3b7dd8", "#2e9e5b")
for line, answers in zip(places, example.answers, strict=True):
    pictures = [(example.image, "gray"), *((answer.image, colours[answer.level]) for answer in answers[:8])]
    for axes, (image, colour) in zip(line, pictures, strict=True):
        axes.imshow(Image.open(folder / "report" / image))
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=colour, linewidth=3)
plt.show()
print(f"query: {example.path}; above {report.models[0].name}, below {report.models[1].name}")

# %% [markdown]
# ## 5. Classes
#
# The worst class, and what it is taken for. Two classes that are confused again and again are often one
# class, or one of them has wrong labels: `happier data suspects` looks for those.

# %%
for row in sorted(report.classes, key=lambda row: row.h_ap[0])[:3]:
    taken = row.confused[0]
    print(f"{row.path}: H-AP {row.h_ap[0]:.2f}, most often followed by {taken.path} ({taken.share:.0%})")

# %% [markdown]
# The page has the same in one place, with curves, a map of the classes and how it was made:
# [Evaluate, report, demo](../report.md).
