"""A tiny WordNet in the format of the real one."""

from __future__ import annotations

from happier.data.taxonomies.wordnet import WordNet

# Word, what it is a kind of, description. Parents come first, and have one meaning.
NOUNS = [
    ("entity", None, "what is"),
    ("animal", "entity", "a living thing that moves"),
    ("bird", "animal", "has feathers"),
    ("owl", "bird", "hunts at night"),
    ("emu", "bird", "runs"),
    ("parrot", "bird", "talks"),
    ("sparrow", "bird", "chirps"),
    ("salmonid", "animal", "a fish"),
    ("salmon", "salmonid", "swims up rivers"),
    ("trout", "salmonid", "stays there"),
    ("rodent", "animal", "gnaws"),
    ("mouse", "rodent", "a small rodent"),
    ("rat", "rodent", "a larger one"),
    ("saying", "entity", "what people say"),
    ("tool", "entity", "for doing things"),
    ("saw", "saying", "an old saying"),
    ("saw", "tool", "cuts wood"),
    ("hammer", "tool", "drives nails"),
    ("screwdriver", "tool", "drives screws"),
    ("device", "tool", "made for a purpose"),
    ("mouse", "device", "points on a screen"),
    ("apple", "entity", "a fruit"),
]


def small_wordnet() -> WordNet:
    data = b"  1 a licence line  \n"
    offsets: dict[str, int] = {}
    index: dict[str, list[int]] = {}
    for word, parent, description in NOUNS:
        pointer = f"001 @ {offsets[parent]:08d} n 0000 " if parent else "000 "
        offsets[word] = len(data)
        index.setdefault(word, []).append(len(data))
        data += f"{len(data):08d} 03 n 01 {word} 0 {pointer}| {description}  \n".encode()
    lines = ["  1 a licence line"]
    for word, places in sorted(index.items()):
        lines.append(f"{word} n {len(places)} 1 @ {len(places)} 0 {' '.join(f'{at:08d}' for at in places)}")
    return WordNet("\n".join(lines).encode(), data)
