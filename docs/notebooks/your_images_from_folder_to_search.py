# %% [markdown]
# # Your images, from folder to search
#
# Images in nested folders, coarse outside and fine inside, are all that is needed. Here they are drawn: 360
# shapes in three levels. With your own, begin below the first cell. Every step is a command, too; it is given
# beside the call. All of them in one: `happier fit photos -o photos.fit`.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw

folder = Path(tempfile.mkdtemp())
photos = folder / "photos"
angles = {"circle": 60, "hexagon": 6, "square": 4, "triangle": 3, "bar": 2, "cross": 1}
families = {"round": ("circle", "hexagon"), "angular": ("square", "triangle"), "thin": ("bar", "cross")}
colours = ("crimson", "orange", "gold", "seagreen", "royalblue", "purple")
rng = np.random.default_rng(0)


def draw(shape, colour):
    image = Image.new("RGB", (64, 64), tuple(rng.integers(225, 256, 3).tolist()))
    pen, (x, y), size = ImageDraw.Draw(image), 32 + rng.uniform(-6, 6, 2), rng.uniform(16, 24)
    if shape in ("bar", "cross"):
        pen.rectangle((x - size, y - 5, x + size, y + 5), fill=colour)
        if shape == "cross":
            pen.rectangle((x - 5, y - size, x + 5, y + size), fill=colour)
    else:
        pen.regular_polygon((x, y, size), angles[shape], rotation=int(rng.integers(-20, 20)), fill=colour)
    return image


for family, shapes in families.items():
    for shape in shapes:
        for colour in colours:
            place = photos / family / shape / f"{colour} {shape}"
            place.mkdir(parents=True)
            for number in range(10):
                draw(shape, colour).save(place / f"{number}.png")
print(len(list(photos.rglob("*.png"))), "images, such as", "photos/round/circle/gold circle/0.png")

# %% [markdown]
# ## A manifest, split by class
#
#     happier data import folder photos -o photos.parquet --levels family,shape,item
#     happier data split photos.parquet --test 0.5 -o split.parquet
#     happier data check split.parquet
#
# Half of the finest classes are kept for testing: the model never sees them in training.

# %%
from happier.data import check_manifest, import_manifest, split_by_class

manifest = import_manifest("folder", photos, levels=("family", "shape", "item"))
split = split_by_class(manifest, test=0.5, seed=0)
split.write(folder / "split.parquet")
print(split.table.groupby("split")["item"].agg(["size", "nunique"]))
print("faults:", len(check_manifest(split).faults))

# %% [markdown]
# ## Train and evaluate
#
#     happier train recipe=small data.manifest=split.parquet run=runs/small
#     happier evaluate runs/small
#
# `recipe=small` is a tiny network for tiny images. For photographs take `recipe=folder`, which starts from a
# network that knows ImageNet.

# %%
from happier.evaluation import evaluate
from happier.runs import read_run
from happier.training.compose import compose
from happier.training.loop import train

run = folder / "runs" / "small"
settings = ["training.epochs=8", "training.tensorboard=false", "evaluation.every=0"]
train(compose(["recipe=small", f"data.manifest={folder / 'split.parquet'}", f"run={run}", *settings]))
tested = read_run(run)
result = evaluate(
    tested.vectors, tested.manifest.labels(), level_names=["family", "shape", "item"], ks=(1, 10)
)
print(result)

# %% [markdown]
# ## Search
#
#     happier index runs/small photos.parquet -o photos.index
#     happier search photos.index query.png -k 6
#     happier serve photos.index
#
# A new drawing (grey frame), and the six nearest images of the catalogue: green the same class, blue the
# same shape, orange the same family, red nothing.

# %%
from happier import Encoder
from happier.search import Index

encoder = Encoder.from_pretrained(run)
paths = [photos / path for path in manifest.table["path"]]
index = Index.build(
    folder / "photos.index", manifest, encoder.embed(paths), fingerprint=encoder.fingerprint, encoder=encoder
)
wanted = ("angular", "square", "royalblue square")
draw(wanted[1], "royalblue").save(folder / "query.png")
hits = index.search_images([folder / "query.png"], k=6)[0]

figure, places = plt.subplots(1, 7, figsize=(7, 1.1), dpi=160, facecolor="none")
frames = {0: "#d6453d", 1: "#e08a1e", 2: "#3b7dd8", 3: "#2e9e5b"}
for axes, hit in zip(places, [None, *hits], strict=True):
    shared = 0
    if hit is not None:
        names = hit.class_path.split("/")
        shared = next((n for n in range(3) if names[n] != wanted[n]), 3)
    axes.imshow(Image.open(folder / "query.png" if hit is None else photos / hit.id))
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color="gray" if hit is None else frames[shared], linewidth=4)
plt.show()
for hit in hits:
    print(f"{hit.score:.2f} {hit.class_path}")

# %% [markdown]
# `happier serve photos.index` opens the same in a browser. Next: [Your own
# images](../guides/your-own-images.md) with photographs, and [Serving](../guides/serving.md).
