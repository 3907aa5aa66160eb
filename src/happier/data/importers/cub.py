"""CUB-200-2011: order > family > species; the first 100 species train, the others test.

    images.txt               "image_id folder/file"
    image_class_labels.txt   "image_id class_id"
    classes.txt              "class_id 001.Black_footed_Albatross"
    images/001.Black_footed_Albatross/...

The release names species only. Orders and families are from the American Ornithological Society's checklist.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from happier.data.importers.release import bad_line, text_lines, warn_of_difference
from happier.data.manifest import Manifest
from happier.errors import DataError

PUBLISHED = {"train": (5_864, 100), "test": (5_924, 100)}
TRAINING_SPECIES = 100

# Order -> family -> species by their last word, or by their whole name where the last word is not enough.
_BIRDS = {
    "Anseriformes": {"Anatidae": "Gadwall Mallard Merganser"},
    "Apodiformes": {"Trochilidae": "Hummingbird Violetear"},
    "Caprimulgiformes": {"Caprimulgidae": "Chuck_will_Widow Nighthawk Whip_poor_Will"},
    "Charadriiformes": {
        "Alcidae": "Auklet Guillemot Puffin",
        "Laridae": "Gull Kittiwake Tern",
        "Stercorariidae": "Jaeger",
    },
    "Coraciiformes": {"Alcedinidae": "Kingfisher"},
    "Cuculiformes": {"Cuculidae": "Ani Cuckoo Geococcyx"},
    "Gaviiformes": {"Gaviidae": "Loon"},
    "Passeriformes": {
        "Alaudidae": "Lark",
        "Bombycillidae": "Waxwing",
        "Cardinalidae": "Bunting Cardinal Tanager Blue_Grosbeak Rose_breasted_Grosbeak",
        "Certhiidae": "Creeper",
        "Corvidae": "Crow Jay Nutcracker Raven",
        "Fringillidae": "Finch Goldfinch Evening_Grosbeak Pine_Grosbeak",
        "Hirundinidae": "Swallow",
        "Icteridae": "Blackbird Bobolink Cowbird Grackle Meadowlark Oriole",
        "Icteriidae": "Chat",
        "Laniidae": "Shrike",
        "Mimidae": "Gray_Catbird Mockingbird Thrasher",
        "Motacillidae": "Pipit",
        "Parulidae": "Ovenbird Redstart Warbler Waterthrush Yellowthroat",
        "Passerellidae": "Junco Sparrow Towhee",
        "Passeridae": "House_Sparrow",
        "Ptilonorhynchidae": "Spotted_Catbird",
        "Sittidae": "Nuthatch",
        "Sturnidae": "Starling",
        "Troglodytidae": "Wren",
        "Tyrannidae": "Flycatcher Kingbird Pewee Sayornis",
        "Vireonidae": "Vireo",
    },
    "Pelecaniformes": {"Pelecanidae": "Pelican"},
    "Piciformes": {"Picidae": "Flicker Woodpecker"},
    "Podicipediformes": {"Podicipedidae": "Grebe"},
    "Procellariiformes": {"Diomedeidae": "Albatross", "Procellariidae": "Fulmar"},
    "Suliformes": {"Fregatidae": "Frigatebird", "Phalacrocoracidae": "Cormorant"},
}
_PLACES = {
    bird: (order, family)
    for order, families in _BIRDS.items()
    for family, birds in families.items()
    for bird in birds.split()
}


def order_and_family(species: str) -> tuple[str, str]:
    """Order and family of a species as the release spells it.

    Raises:
        DataError: the species is not one of the release.

    >>> order_and_family("Black_footed_Albatross")
    ('Procellariiformes', 'Diomedeidae')
    """
    place = _PLACES.get(species) or _PLACES.get(species.rsplit("_", 1)[-1])
    if place is None:
        raise DataError(f"{species!r} is not a species of CUB-200-2011: its order and family are not known")
    return place


def read_cub(source: Path) -> Manifest:
    """Read the release, or the folder that holds its ``CUB_200_2011`` folder."""
    if not (source / "images.txt").exists() and (source / "CUB_200_2011" / "images.txt").exists():
        source = source / "CUB_200_2011"
    classes = _pairs(source, "classes.txt")
    labels = _pairs(source, "image_class_labels.txt")
    rows = []
    for image, path in _pairs(source, "images.txt").items():
        number = labels.get(image)
        if number is None or number not in classes:
            raise DataError(f"{source}: image {image} ({path}) has no class")
        species = classes[number].split(".", 1)[-1]
        split = "train" if int(number) <= TRAINING_SPECIES else "test"
        rows.append((f"images/{path}", split, *order_and_family(species), species))
    levels = ("order", "family", "species")
    table = pd.DataFrame(rows, columns=["path", "split", *levels])
    return warn_of_difference(Manifest(table, levels=levels, root=source, name="cub"), PUBLISHED)


def _pairs(source: Path, name: str) -> dict[str, str]:
    pairs = {}
    for number, line in text_lines(source, name, release="CUB-200-2011"):
        fields = line.split()
        if len(fields) != 2 or not fields[0].isdecimal():
            raise bad_line(source / name, number, line, "a number and a name")
        pairs[fields[0]] = fields[1]
    return pairs
