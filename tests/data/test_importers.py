"""Importers on small trees of files made in exactly the releases' formats."""

import json
import logging
import math
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from happier.data import Manifest
from happier.data.importers import RELEASES, import_manifest
from happier.data.importers.cars import type_and_make
from happier.data.importers.cub import order_and_family
from happier.errors import DataError, ManifestError, MissingExtraError, OptionError


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def rows_of(manifest, *more):
    return manifest.table[["path", "split", *manifest.levels, *more]].to_numpy().tolist()


def sop(root):
    header = "image_id class_id super_class_id path"
    write(
        root / "Ebay_train.txt",
        header,
        "1 1 1 bicycle_final/111085122871_0.JPG",
        "2 1 1 bicycle_final/111085122871_1.JPG",
        "3 2 3 coffee_maker_final/2_0.JPG",
    )
    write(root / "Ebay_test.txt", header, "59552 11319 1 bicycle_final/9_0.JPG")


def test_sop(tmp_path, caplog):
    sop(tmp_path)
    manifest = import_manifest("sop", tmp_path)
    assert manifest.name == "sop"
    assert manifest.levels == ("category", "product")
    assert rows_of(manifest) == [
        ["bicycle_final/111085122871_0.JPG", "train", "bicycle", "1"],
        ["bicycle_final/111085122871_1.JPG", "train", "bicycle", "1"],
        ["coffee_maker_final/2_0.JPG", "train", "coffee_maker", "2"],
        ["bicycle_final/9_0.JPG", "test", "bicycle", "11319"],
    ]
    assert (
        "not the whole sop release: train has 3 images of 2 classes (released: 59,551 of 11,318); "
        "test has 1 images of 1 classes (released: 60,502 of 11,316)"
    ) in caplog.text


def test_sop_of_the_released_size_gives_no_warning(tmp_path, caplog):
    header = "image_id class_id super_class_id path"
    for split, images, first, classes in (("train", 59551, 1, 11318), ("test", 60502, 11319, 11316)):
        lines = (f"{n} {first + n % classes} 1 chair_final/{split}{n}.JPG" for n in range(images))
        write(tmp_path / f"Ebay_{split}.txt", header, *lines)
    assert len(import_manifest("sop", tmp_path)) == 120_053
    assert not caplog.records


def gldv2(root):
    write(root / "train_clean.csv", "landmark_id,images", "1,abc1 abd2", "2,bcd3", "3,cde4")
    header = (
        "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made,cluster,overall_cluster"
    )
    clusters = "label_to_subcategory_with_clusters.csv"
    lines = ["1,x,y,z,h,church,religious", "2,x,y,z,n,peak,nature", "3,x,y,z,h,,"]
    write(root / f"train_{clusters}", header, *lines)
    write(root / f"index_{clusters}", header, *lines, "7,x,y,z,n,lake,nature")
    write(root / "index_image_to_landmark.csv", "id,landmark_id", "iaa1,7", "ibb2,2", "icc3,3")
    solution = ["qaa1,iaa1 ibb2,Public", "qbb2,None,Ignored", "qcc3,icc3,Private"]
    write(root / "retrieval_solution_v2.1.csv", "id,images,Usage", *solution)


def test_gldv2(tmp_path, caplog):
    gldv2(tmp_path)
    with caplog.at_level(logging.INFO):
        manifest = import_manifest("gldv2", tmp_path)
    assert manifest.levels == ("supercategory", "category", "landmark")
    assert rows_of(manifest, "id") == [
        ["images/train/a/b/c/abc1.jpg", "train", "religious", "church", "1", "abc1"],
        ["images/train/a/b/d/abd2.jpg", "train", "religious", "church", "1", "abd2"],
        ["images/train/b/c/d/bcd3.jpg", "train", "nature", "peak", "2", "bcd3"],
        ["test/q/a/a/qaa1.jpg", "query", "nature", "lake", "7", "qaa1"],
        ["index/i/a/a/iaa1.jpg", "gallery", "nature", "lake", "7", "iaa1"],
        ["index/i/b/b/ibb2.jpg", "gallery", "nature", "peak", "2", "ibb2"],
    ]
    assert "3 of 9 images are of landmarks without a category" in caplog.text
    write(tmp_path / "retrieval_solution_v2.1.csv", "id,images", "qaa1,gone")
    with pytest.raises(
        DataError, match=r"retrieval_solution_v2\.1\.csv, row 1: the index has no image 'gone'"
    ):
        import_manifest("gldv2", tmp_path)
    (tmp_path / "index_image_to_landmark.csv").unlink()
    assert import_manifest("gldv2", tmp_path).splits == {"train": 3}
    write(tmp_path / "train_clean.csv", "landmark,images", "1,abc1")
    with pytest.raises(
        DataError, match=r"train_clean\.csv lacks the column landmark_id; it has landmark, images"
    ):
        import_manifest("gldv2", tmp_path)


def revisited(root, make_image, **changes):
    """As the release has it: lists of numbers in one place, arrays in another."""
    for number, name in enumerate(["all_souls_000013", "magdalen_000078"]):
        make_image(root / "jpg" / f"{name}.jpg", seed=number)
    ground = [
        {"bbx": np.array([4.6, 2.0, 30.2, 21.0]), "easy": [0, 2], "hard": np.array([1]), "junk": []},
        {"bbx": [0, 0, 40, 30], "easy": np.array([], dtype=np.int64), "hard": [3], "junk": [0, 1]},
    ]
    truth = {"imlist": list("abcd"), "qimlist": ["all_souls_000013", "magdalen_000078"], "gnd": ground}
    (root / "gnd_roxford5k.pkl").write_bytes(pickle.dumps({**truth, **changes}, protocol=2))


def test_revisited_oxford(tmp_path, make_image):
    revisited(tmp_path, make_image)
    manifest = import_manifest("roxford", tmp_path)
    assert rows_of(manifest, "id", "easy", "hard", "junk") == [
        ["queries/all_souls_000013.png", "query", "all_souls", "all_souls_000013", "a c", "b", ""],
        ["queries/magdalen_000078.png", "query", "magdalen", "magdalen_000078", "", "d", "a b"],
        ["jpg/a.jpg", "gallery", "all_souls", "a", "", "", ""],
        ["jpg/b.jpg", "gallery", "all_souls", "b", "", "", ""],
        ["jpg/c.jpg", "gallery", "all_souls", "c", "", "", ""],
        ["jpg/d.jpg", "gallery", "magdalen", "d", "", "", ""],
    ]
    whole = Image.open(tmp_path / "jpg" / "all_souls_000013.jpg")
    crop = Image.open(tmp_path / "queries" / "all_souls_000013.png")
    assert np.array_equal(np.asarray(crop), np.asarray(whole.crop((5, 2, 30, 21))))
    written = Manifest.read(manifest.write(tmp_path / "roxford.parquet"))
    assert written.table["easy"].tolist()[0] == "a c"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qimlist": ["all_souls_000013"]}, "has 1 queries and the ground truth of 2"),
        ({"imlist": ["a"]}, "easy of query all_souls_000013 has 2, of 1 images"),
        ({"gnd": 3}, "not a ground truth of the revisited protocol"),
        ({"gnd": [{"bbx": [math.nan] * 4, "easy": [], "hard": [], "junk": []}] * 2}, "must have 4 numbers"),
        ({"gnd": [{"bbx": [0, 0, 9, 9], "easy": [math.inf], "hard": [], "junk": []}] * 2}, "not a ground"),
        ({"imlist": ["a b", "c", "d", "e"]}, "'a b' must have no spaces"),
        ({"qimlist": ["all_souls_000013", "gone_1"]}, "cannot cut the query out of .*gone_1.jpg"),
    ],
)
def test_a_wrong_ground_truth_is_named(tmp_path, make_image, changes, message):
    revisited(tmp_path, make_image, **changes)
    with pytest.raises(DataError, match=message):
        import_manifest("roxford", tmp_path)


class _RunsCode:
    def __reduce__(self):
        return print, ("code from a file ran",)


def test_a_ground_truth_never_runs_code(tmp_path, make_image, capsys):
    revisited(tmp_path, make_image, more=_RunsCode())
    with pytest.raises(DataError, match=r"gnd_roxford5k\.pkl: it asks for .*print, which could run code"):
        import_manifest("roxford", tmp_path)
    assert capsys.readouterr().out == ""
    (tmp_path / "gnd_roxford5k.pkl").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"cannot read .*gnd_roxford5k\.pkl"):
        import_manifest("roxford", tmp_path)


def inat(root, prefix="", *, ranks=True):
    splits = root / "Inat_dataset_splits"
    write(
        splits / "Inaturalist_train_set1.txt",
        f"{prefix}train_val2018/Aves/2761/a.jpg",
        f"{prefix}train_val2018/Plantae/5/b.jpg",
    )
    write(splits / "Inaturalist_test_set1.txt", f"{prefix}train_val2018/Aves/7/c.jpg")
    names = {2761: "Bubo bubo", 5: "Rosa canina", 7: "Bubo bubo"}
    categories = [
        {
            "id": number,
            "name": name,
            "supercategory": "x",
            **{
                rank: f"{rank}-{number}"
                for rank in ("kingdom", "phylum", "class", "order", "family", "genus")
                if ranks
            },
        }
        for number, name in names.items()
    ]
    (root / "train2018.json").write_text(json.dumps({"images": [], "categories": categories}))


def test_inat_base(tmp_path, caplog):
    inat(tmp_path)
    manifest = import_manifest("inat-base", tmp_path)
    assert manifest.levels == ("supercategory", "species")
    assert rows_of(manifest) == [
        ["train_val2018/Aves/2761/a.jpg", "train", "Aves", "Bubo bubo (2761)"],
        ["train_val2018/Plantae/5/b.jpg", "train", "Plantae", "Rosa canina"],
        ["train_val2018/Aves/7/c.jpg", "test", "Aves", "Bubo bubo (7)"],
    ]
    assert "(released: 325,846 of 5,690)" in caplog.text
    (tmp_path / "train2018.json").unlink()
    assert rows_of(import_manifest("inat-base", tmp_path))[0][-1] == "2761"


def test_inat_full(tmp_path):
    inat(tmp_path)
    manifest = import_manifest("inat-full", tmp_path)
    assert manifest.levels == ("kingdom", "phylum", "class", "order", "family", "genus", "species")
    assert rows_of(manifest)[2][2:] == [
        "kingdom-7", "phylum-7", "class-7", "order-7", "family-7", "genus-7", "Bubo bubo (7)",
    ]  # fmt: skip


@pytest.mark.parametrize("prefix", ["/Inaturalist/", "data/Inaturalist/"])
def test_inat_lists_may_start_above_the_folder(tmp_path, make_image, prefix):
    inat(tmp_path, prefix)
    make_image(tmp_path / "train_val2018/Aves/2761/a.jpg")
    assert import_manifest("inat-base", tmp_path).files()[0].exists()


def test_inat_errors(tmp_path):
    inat(tmp_path, ranks=False)
    with pytest.raises(DataError, match="category 2761 lacks kingdom, phylum, class, order, family, genus"):
        import_manifest("inat-full", tmp_path)
    (tmp_path / "train2018.json").write_text("{")
    with pytest.raises(DataError, match="cannot read the categories"):
        import_manifest("inat-full", tmp_path)
    (tmp_path / "train2018.json").write_text('{"categories": []}')
    with pytest.raises(DataError, match=r"train2018.json has no category with the id 2761"):
        import_manifest("inat-full", tmp_path)
    (tmp_path / "train2018.json").unlink()
    with pytest.raises(
        DataError, match=r"is not the unpacked iNaturalist 2018 release: it has no train2018\.json"
    ):
        import_manifest("inat-full", tmp_path)
    write(tmp_path / "Inat_dataset_splits/Inaturalist_test_set1.txt", "c.jpg")
    with pytest.raises(DataError, match=r"line 1: expected .*species id.*, got 'c.jpg'"):
        import_manifest("inat-base", tmp_path)


def dyml(root):
    """As released: the header has no line end of its own."""
    write(
        root / "train/label.csv", "fname, coarse_id, middle_id, fine_id0.jpg, 3, 14, 159", "1.jpg, 3, 14, 26"
    )
    for name, label in (("coarse", 1), ("middle", 2), ("fine", 3)):
        write(root / f"bmk_{name}/query.csv", f"fname, labels0.jpg, {label}", f"7.jpg, {label + 1}")
        write(root / f"bmk_{name}/gallery.csv", f"fname, labels0.jpg, {label}", f"8.jpg, {label}")


@pytest.mark.parametrize("kind", ["dyml-vehicle", "dyml-animal"])
def test_dyml_with_three_test_sets(tmp_path, kind):
    dyml(tmp_path)
    manifest = import_manifest(kind, tmp_path)
    assert manifest.name == kind
    rows = rows_of(manifest, "id", "set")
    assert rows[:2] == [
        ["train/imgs/0.jpg", "train", "3", "14", "159", "train/0.jpg", ""],
        ["train/imgs/1.jpg", "train", "3", "14", "26", "train/1.jpg", ""],
    ], "the row that the header ran into is recovered"
    assert len(rows) == 2 + 3 * 4
    assert rows[2] == ["bmk_coarse/query/0.jpg", "query", "coarse 1", "", "", "bmk_coarse/0.jpg", "coarse"]
    fine = manifest.select(("query", "gallery"), test_set="fine")
    assert fine.table["path"].tolist() == [
        f"bmk_fine/{p}" for p in ("query/0.jpg", "query/7.jpg", "gallery/0.jpg", "gallery/8.jpg")
    ]
    query, _, gallery, _ = fine.ids()
    assert query == gallery, "an image that is query and gallery has one id"
    labels = fine.labels()
    assert (labels[:, 1:] == -1).all()
    assert labels[0, 0] == labels[2, 0] == labels[3, 0] != labels[1, 0]
    written = Manifest.read(manifest.write(tmp_path / "m.parquet"))
    assert rows_of(written, "id", "set") == rows


def test_dyml_product(tmp_path):
    dyml(tmp_path)
    write(
        tmp_path / "mini-bmk_all_in_one/label.csv",
        "fname, coarse_id, middle_id, fine_id0.jpg, 1, 2, 3",
        "5.jpg, 1, 2, 4",
    )
    manifest = import_manifest("dyml-product", tmp_path)
    assert manifest.splits == {"train": 2, "test": 2}
    assert rows_of(manifest)[2] == ["mini-bmk_all_in_one/imgs/0.jpg", "test", "1", "2", "3"]


def test_dyml_headers(tmp_path, caplog):
    dyml(tmp_path)
    write(tmp_path / "train/label.csv", "fname, coarse_id, middle_id, fine_id", "1.jpg, 3, 14, 26")
    assert len(import_manifest("dyml-animal", tmp_path).select("train")) == 1, "a mended header is no row"
    write(tmp_path / "train/label.csv", "fname, coarse_id, middle_id, fine_id0.jpg", "1.jpg, 3, 14, 26")
    assert len(import_manifest("dyml-animal", tmp_path).select("train")) == 1
    assert "the labels of the first image, 0.jpg, are lost; it is left out" in caplog.text
    write(tmp_path / "train/label.csv", "fname, a, b, c", "1.jpg, 3, 14, 26")
    with pytest.raises(DataError, match="line 1: expected a header that ends in fine_id"):
        import_manifest("dyml-animal", tmp_path)
    write(tmp_path / "train/label.csv", "fname, coarse_id, middle_id, fine_id", "1.jpg, 3, 14")
    with pytest.raises(
        DataError, match=r"label\.csv, line 2: expected a file name and 3 labels, got '1.jpg, 3, 14'"
    ):
        import_manifest("dyml-animal", tmp_path)


def cub(root):
    write(
        root / "classes.txt",
        "1 001.Black_footed_Albatross",
        "101 101.White_Pelican",
        "200 200.Common_Yellowthroat",
    )
    write(
        root / "images.txt",
        "1 001.Black_footed_Albatross/a.jpg",
        "2 101.White_Pelican/b.jpg",
        "3 200.Common_Yellowthroat/c.jpg",
    )
    write(root / "image_class_labels.txt", "1 1", "2 101", "3 200")


@pytest.mark.parametrize("above", ["", "CUB_200_2011"])
def test_cub(tmp_path, above):
    cub(tmp_path / above)
    manifest = import_manifest("cub", tmp_path)
    assert manifest.root == tmp_path / above
    assert rows_of(manifest) == [
        ["images/001.Black_footed_Albatross/a.jpg", "train", "Procellariiformes", "Diomedeidae",
         "Black_footed_Albatross"],
        ["images/101.White_Pelican/b.jpg", "test", "Pelecaniformes", "Pelecanidae", "White_Pelican"],
        ["images/200.Common_Yellowthroat/c.jpg", "test", "Passeriformes", "Parulidae", "Common_Yellowthroat"],
    ]  # fmt: skip


def test_cub_places_and_errors(tmp_path):
    assert order_and_family("House_Sparrow")[1] == "Passeridae"
    assert order_and_family("Song_Sparrow")[1] == "Passerellidae"
    assert order_and_family("Spotted_Catbird")[1] == "Ptilonorhynchidae"
    assert order_and_family("Chuck_will_Widow") == ("Caprimulgiformes", "Caprimulgidae")
    with pytest.raises(DataError, match="'Blue_Penguin' is not a species of CUB-200-2011"):
        order_and_family("Blue_Penguin")
    cub(tmp_path)
    write(tmp_path / "image_class_labels.txt", "1 1")
    with pytest.raises(DataError, match=r"image 2 \(101.White_Pelican/b.jpg\) has no class"):
        import_manifest("cub", tmp_path)
    write(tmp_path / "image_class_labels.txt", "one")
    with pytest.raises(DataError, match="line 1: expected a number and a name, got 'one'"):
        import_manifest("cub", tmp_path)


CAR_NAMES = [f"Maker Model{n} Sedan 2000" for n in range(97)] + [
    "FIAT 500 Abarth 2012",
    "AM General Hummer SUV 2000",
]


def struct(**fields):
    records = list(zip(*fields.values(), strict=True))
    return np.array(records, dtype=[(name, object) for name in fields])


def test_cars_in_one_folder(tmp_path):
    annotations = struct(
        relative_im_path=["car_ims/1.jpg", "car_ims/2.jpg"], **{"class": [98, 99], "test": [0, 1]}
    )
    savemat(
        tmp_path / "cars_annos.mat", {"annotations": annotations, "class_names": np.array(CAR_NAMES, object)}
    )
    assert rows_of(import_manifest("cars", tmp_path)) == [
        ["car_ims/1.jpg", "train", "Hatchback", "FIAT", "FIAT 500 Abarth 2012"],
        ["car_ims/2.jpg", "test", "SUV", "AM General", "AM General Hummer SUV 2000"],
    ]


def test_cars_with_devkit(tmp_path):
    (tmp_path / "devkit").mkdir()
    savemat(tmp_path / "devkit/cars_meta.mat", {"class_names": np.array(CAR_NAMES, object)})
    for file, number in (("devkit/cars_train_annos.mat", 1), ("cars_test_annos_withlabels.mat", 99)):
        savemat(
            tmp_path / file,
            {"annotations": struct(**{"class": [number, number], "fname": ["a.jpg", "b.jpg"]})},
        )
    paths = import_manifest("cars", tmp_path).table["path"].tolist()
    assert paths == ["cars_train/a.jpg", "cars_train/b.jpg", "cars_test/a.jpg", "cars_test/b.jpg"]
    savemat(
        tmp_path / "cars_test_annos_withlabels.mat",
        {"annotations": struct(**{"class": [100], "fname": ["a.jpg"]})},
    )
    with pytest.raises(DataError, match=r"cars_test/a\.jpg has the class 100, but there are 99 classes"):
        import_manifest("cars", tmp_path)
    (tmp_path / "cars_test_annos_withlabels.mat").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"cannot read .*cars_test_annos_withlabels"):
        import_manifest("cars", tmp_path)


def test_cars_without_scipy_name_the_extra_that_brings_it(tmp_path, monkeypatch):
    (tmp_path / "cars_annos.mat").touch()
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(MissingExtraError, match=r"'scipy'.*happier-retrieval\[data\]"):
        import_manifest("cars", tmp_path)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Ford E-Series Wagon Van 2012", ("Van", "Ford")),
        ("Ford Ranger SuperCab 2011", ("Pickup", "Ford")),
        ("Ram C/V Cargo Van Minivan 2012", ("Minivan", "Ram")),
        ("Infiniti G Coupe IPL 2012", ("Coupe", "Infiniti")),
        ("Jaguar XK XKR 2012", ("Coupe", "Jaguar")),
        ("Land Rover LR2 SUV 2012", ("SUV", "Land Rover")),
    ],
)
def test_car_names(model, expected):
    assert type_and_make(model) == expected


@pytest.mark.parametrize("eval_folder", ["Eval", ""])
def test_inshop(tmp_path, eval_folder):
    write(
        tmp_path / eval_folder / "list_eval_partition.txt",
        "3",
        "image_name item_id evaluation_status",
        "img/WOMEN/Dresses/id_00000002/02_1_front.jpg                          id_00000002 train",
        "img/MEN/Denim/id_00000080/01_1_front.jpg                              id_00000080 query",
        "img/MEN/Denim/id_00000080/01_2_side.jpg                               id_00000080 gallery",
    )
    assert rows_of(import_manifest("inshop", tmp_path)) == [
        ["img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "train", "WOMEN Dresses", "id_00000002"],
        ["img/MEN/Denim/id_00000080/01_1_front.jpg", "query", "MEN Denim", "id_00000080"],
        ["img/MEN/Denim/id_00000080/01_2_side.jpg", "gallery", "MEN Denim", "id_00000080"],
    ]
    (tmp_path / "Img" / "img").mkdir(parents=True)
    assert import_manifest("inshop", tmp_path).table["path"][0].startswith("Img/img/")
    write(
        tmp_path / eval_folder / "list_eval_partition.txt",
        "1",
        "header",
        "img/MEN/Denim/x/1.jpg x validation",
    )
    with pytest.raises(DataError, match=r"line 3: expected .*train|query|gallery"):
        import_manifest("inshop", tmp_path)


def test_folder(tmp_path, caplog):
    for path in (
        "animals/birds/owl/ä 1.jpg",
        "animals/birds/owl/2.PNG",
        "animals/emu.webp",
        "cars/x/y/3.jpeg",
    ):
        write(tmp_path / path, "")
    write(tmp_path / "notes.txt", "")
    write(tmp_path / ".hidden/a/b/4.jpg", "")
    with caplog.at_level(logging.INFO):
        manifest = import_manifest("folder", tmp_path, levels=["group", "kind", "item"])
    assert manifest.levels == ("group", "kind", "item")
    assert rows_of(manifest) == [
        ["animals/emu.webp", "train", "animals", "", ""],
        ["animals/birds/owl/2.PNG", "train", "animals", "birds", "owl"],
        ["animals/birds/owl/ä 1.jpg", "train", "animals", "birds", "owl"],
        ["cars/x/y/3.jpeg", "train", "cars", "x", "y"],
    ]
    assert "1 files that are not images were left out" in caplog.text
    assert "1 of 4 images have no label at the finest level" in caplog.text
    assert import_manifest("folder", tmp_path).levels == ("level1", "level2", "level3")


def test_folder_with_splits(tmp_path):
    for path in ("train/a/1.jpg", "test/b/2.jpg", "query/c/3.jpg", "gallery/c/4.jpg"):
        write(tmp_path / path, "")
    manifest = import_manifest("folder", tmp_path)
    assert manifest.splits == {"train": 1, "test": 1, "query": 1, "gallery": 1}
    assert manifest.levels == ("level1",)
    assert sorted(manifest.class_paths()) == ["a", "b", "c", "c"]


def test_folder_with_a_class_named_like_a_split(tmp_path, caplog):
    for path in ("gallery/1.jpg", "museum/2.jpg"):
        write(tmp_path / path, "")
    assert import_manifest("folder", tmp_path).class_paths() == ["gallery", "museum"]
    assert (
        "gallery are treated as classes, not as splits, because of folders next to them: museum"
        in caplog.text
    )


def test_folder_errors(tmp_path):
    with pytest.raises(DataError, match="holds no images"):
        import_manifest("folder", tmp_path)
    write(tmp_path / "1.jpg", "")
    with pytest.raises(DataError, match=r"are not in class folders: expected .*/<class>/<image>"):
        import_manifest("folder", tmp_path)
    write(tmp_path / "a/b/1.jpg", "")
    with pytest.raises(OptionError, match="the folders are 2 levels deep, got 1 level names: kind"):
        import_manifest("folder", tmp_path, levels=["kind"])


PART = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="/."), min_size=1, max_size=5)


@settings(max_examples=25)
@given(paths=st.lists(st.lists(PART, min_size=1, max_size=3), min_size=1, max_size=6, unique_by=tuple))
def test_any_tree_of_folders(tmp_path_factory, paths):
    root = tmp_path_factory.mktemp("tree")
    for number, parts in enumerate(paths):
        write(root.joinpath(*parts, f"{number}.jpg"), "")
    manifest = import_manifest("folder", root)
    assert len(manifest) == len(paths)
    assert all(path.exists() for path in manifest.files())
    found = {path.stem: path.parent.relative_to(root).parts for path in manifest.files()}
    assert found == {str(number): tuple(parts) for number, parts in enumerate(paths)}


def test_csv(tmp_path):
    write(tmp_path / "t.csv", "path,kind,item,colour", "a.jpg,k,1,red", "b.jpg,k,,blue")
    manifest = import_manifest("csv", tmp_path / "t.csv", levels=["kind", "item"], root=tmp_path / "images")
    assert manifest.files()[0] == tmp_path / "images" / "a.jpg"
    assert manifest.table["colour"].tolist() == ["red", "blue"]
    assert rows_of(manifest) == [["a.jpg", "train", "k", "1"], ["b.jpg", "train", "k", ""]]
    write(tmp_path / "t.csv", "path,split,kind", "a.jpg,tarin,k")
    with pytest.raises(ManifestError, match=r"t\.csv: manifest is invalid"):
        import_manifest("csv", tmp_path / "t.csv")
    with pytest.raises(ManifestError, match="no file at"):
        import_manifest("csv", tmp_path / "none.csv")
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ManifestError, match=r"cannot read .* as CSV"):
        import_manifest("csv", tmp_path / "empty.csv")


@pytest.mark.parametrize("kind", RELEASES)
def test_a_folder_without_the_release_is_told(tmp_path, kind):
    with pytest.raises(DataError, match=r"is not the unpacked .* release: it has no "):
        import_manifest(kind, tmp_path)
    with pytest.raises(DataError, match=f"is not a folder; {kind} is imported from a folder"):
        import_manifest(kind, tmp_path / "none")
    with pytest.raises(OptionError, match=f"the levels of {kind} are fixed"):
        import_manifest(kind, tmp_path, levels=["a"])
    with pytest.raises(OptionError, match="only csv takes a root"):
        import_manifest(kind, tmp_path, root=tmp_path)


def test_unknown_kind(tmp_path):
    with pytest.raises(OptionError, match=r"one of sop, .*, csv, got 'spo' \(did you mean 'sop'\?\)"):
        import_manifest("spo", tmp_path)


def test_bad_line_of_sop(tmp_path):
    sop(tmp_path)
    write(tmp_path / "Ebay_test.txt", "image_id class_id super_class_id path", "1 2 3")
    with pytest.raises(
        DataError, match=r"Ebay_test\.txt, line 2: expected image_id class_id .*, got '1 2 3'"
    ):
        import_manifest("sop", tmp_path)
    (tmp_path / "Ebay_test.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"cannot read .*Ebay_test\.txt"):
        import_manifest("sop", tmp_path)
