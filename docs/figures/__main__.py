"""Make every picture of the documentation: ``make figures`` runs ``python docs/figures``.

``--only ranking`` makes the worked picture of H-AP alone, ``--only surrogates`` that of the losses'
surrogates; ``--run RUN --against RUN2 --manifest FILE`` takes the screenshots of runs of your own instead of
training two small ones on drawn shapes. ``--demo runs/demo`` makes the pictures of the first page, in
``docs/images/emoji``, from what ``happier demo`` left. The fonts are the machine's: the pictures
that are kept have Noto (Debian's ``fonts-noto-core``).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from ranking import ranking_svg
from screenshots import compress, take_screenshots, train_models
from surrogates import draw_surrogates

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Parse, make, say what was made."""
    parser = argparse.ArgumentParser(description="Make the pictures of the documentation.")
    parser.add_argument("-o", "--output", type=Path, default=HERE.parent / "images")
    parser.add_argument("--demo", type=Path, help="the directory of a finished demo, for the first page")
    parser.add_argument("--only", choices=("ranking", "surrogates", "screenshots"), help="make these only")
    parser.add_argument("--run", type=Path, help="a run to photograph instead of the drawn shapes")
    parser.add_argument("--against", type=Path, help="the run beside it")
    parser.add_argument("--manifest", type=Path, help="their images")
    parser.add_argument("--epochs", type=int, default=20, help="of the models of the drawn shapes")
    given = parser.parse_args()
    if len({given.run is None, given.against is None, given.manifest is None}) == 2:
        parser.error("--run, --against and --manifest belong together")

    if given.demo is not None:
        given.run, given.against = given.demo / "happier", given.demo / "nsm"
        given.manifest, given.only = given.demo / "manifest.parquet", "screenshots"
        given.output = given.output / "emoji"
    given.output.mkdir(parents=True, exist_ok=True)
    made = []
    if given.only in (None, "ranking"):
        path = given.output / "h-ap.svg"
        path.write_text(ranking_svg())
        made.append(path)
    if given.only in (None, "surrogates"):
        path = given.output / "surrogates.svg"
        draw_surrogates(path)
        made.append(path)
    if given.only in (None, "screenshots"):
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            if given.run is None:
                run, against = train_models(work, epochs=given.epochs)
                manifest = work / "split.parquet"
            else:
                run, against, manifest = given.run, given.against, given.manifest
            with_map = given.demo is not None
            made += take_screenshots(run, against, manifest, work, given.output, with_map=with_map)
        if given.demo is not None:
            compress(given.output)
    for path in made:
        print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")  # noqa: T201


if __name__ == "__main__":
    main()
