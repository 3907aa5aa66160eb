"""Images inside larger files: WebDataset's tars and Hugging Face's Arrow files, read where they are."""

import io
import json
import tarfile

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from happier import Encoder
from happier.data import ImageDataset, Manifest, read_image
from happier.data.check import check_manifest
from happier.data.importers import import_manifest
from happier.errors import DataError, ImageError, OptionError
from happier.storage.regular_file import read_regular
from happier.vectors.image_content import image_content
from happier.web.images import read_inside


def picture(seed):
    rng = np.random.default_rng(seed)
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def write_tar(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def samples(numbers):
    members = {}
    for number in numbers:
        members[f"photos/n{number}.png"] = picture(number)
        labels = {"kind": f"kind{number % 2}", "item": f"item{number % 4}", "more": [1]}
        members[f"photos/n{number}.json"] = json.dumps(labels).encode()
    return members


@pytest.fixture
def shards(tmp_path):
    write_tar(tmp_path / "train-000000.tar", samples(range(8)))
    write_tar(tmp_path / "train-000001.tar", samples(range(8, 16)))
    write_tar(tmp_path / "validation" / "000.tar", samples(range(16, 20)))
    return import_manifest("webdataset", tmp_path, levels=["kind", "item"])


def test_shards_are_indexed_and_read_where_they_are(shards, tmp_path):
    assert shards.splits == {"train": 16, "val": 4}
    assert shards.levels == ("kind", "item")
    assert shards.table["id"].tolist()[9] == "train-000001.tar/photos/n9"
    assert shards.class_paths()[5] == "kind1/item1"
    for number, file in enumerate(shards.files()):
        assert read_regular(file, largest=1 << 20) == picture(number)
    read = Manifest.read(shards.write(tmp_path / "shards.parquet"))
    expected = np.asarray(Image.open(io.BytesIO(picture(17))))
    assert np.array_equal(np.asarray(read_image(read.files()[17])), expected)


def test_everything_reads_a_part_as_a_file(shards, tmp_path):
    report = check_manifest(shards)
    assert not report.faults
    encoder = Encoder("test_resnet", dim=8, transform="small", image_size=24).eval()
    (tmp_path / "plain").mkdir()
    for number in range(20):
        (tmp_path / "plain" / f"{number}.png").write_bytes(picture(number))
    plain = [tmp_path / "plain" / f"{number}.png" for number in range(20)]
    kept = encoder.embed_manifest(shards, tmp_path / "vectors")
    np.testing.assert_allclose(kept.vectors, encoder.embed(plain), atol=1e-6)
    dataset = ImageDataset(shards, "train", encoder.preprocess)
    assert dataset[3].image.equal(encoder.read_image(plain[3]))
    assert image_content(shards.files()[4]).hash == image_content(plain[4]).hash
    assert read_inside(shards.files()[4], [tmp_path.resolve()]) == picture(4)
    with pytest.raises(ImageError, match="outside the index's image folder"):
        read_inside(shards.files()[4], [tmp_path / "plain"])


def test_a_shard_that_was_cut_short_is_named(shards, tmp_path):
    shard = tmp_path / "train-000001.tar"
    shard.write_bytes(shard.read_bytes()[:2000])
    with pytest.raises(ImageError, match=r"train-000001\.tar ends before byte \d+; import it again"):
        read_image(shards.files()[15])
    shard.unlink()
    assert {finding.kind for finding in check_manifest(shards).faults} == {"missing"}


def test_tars_without_anything_in_them(tmp_path):
    (tmp_path / "a.tar").write_bytes(bytes(10240))
    with pytest.raises(DataError, match=r"^the \.tar files of .* are empty$"):
        import_manifest("webdataset", tmp_path)


def test_class_numbers_and_faults_of_shards(tmp_path):
    write_tar(
        tmp_path / "0.tar", {"a.png": picture(0), "a.cls": b"7\n", "b.jpg": picture(1), "b.cls": b"owl"}
    )
    manifest = import_manifest("webdataset", tmp_path)
    assert (manifest.levels, manifest.class_paths()) == (("class",), ["7", "owl"])
    with pytest.raises(DataError, match=r"0\.tar, sample a: its \.json cannot be read"):
        import_manifest("webdataset", tmp_path, levels=["kind"])
    write_tar(tmp_path / "0.tar", {"a.png": picture(0)})
    with pytest.raises(OptionError, match=r"sample a: it has no \.cls; name the keys of its \.json"):
        import_manifest("webdataset", tmp_path)
    write_tar(tmp_path / "0.tar", {"a.png": picture(0), "a.jpg": picture(1)})
    with pytest.raises(DataError, match="sample a: it has two images"):
        import_manifest("webdataset", tmp_path)
    write_tar(tmp_path / "0.tar", {"a.cls": b"7"})
    with pytest.raises(DataError, match="sample a: it has no image"):
        import_manifest("webdataset", tmp_path)
    (tmp_path / "0.tar").write_bytes(b"\x1f\x8b not a tar")
    with pytest.raises(DataError, match="as an uncompressed tar"):
        import_manifest("webdataset", tmp_path)
    (tmp_path / "0.tar").unlink()
    with pytest.raises(DataError, match=r"has no \.tar files"):
        import_manifest("webdataset", tmp_path)


FEATURES = {
    "fine": {"names": ["emu", "owl", "oak"], "_type": "ClassLabel"},
    "image": {"_type": "Image"},
    "coarse": {"names": ["bird", "tree"], "_type": "ClassLabel"},
    "note": {"dtype": "string", "_type": "Value"},
}


def write_arrow(path, rows, *, features=FEATURES, **options):
    """As ``save_to_disk`` writes it: a stream of batches with the features in the schema."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    types = {"fine": pa.int64(), "image": image, "coarse": pa.int64(), "note": pa.string()}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    schema = pa.schema(types, metadata=metadata)
    with pa.ipc.new_stream(path, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for start in range(0, len(rows), 3):
            writer.write_batch(pa.RecordBatch.from_pylist(rows[start : start + 3], schema=schema))


def row(number, fine, coarse, **image):
    return {
        "image": {"bytes": picture(number), "path": None, **image},
        "fine": fine,
        "coarse": coarse,
        "note": "x",
    }


def test_a_dataset_that_was_saved_to_disk(tmp_path):
    write_arrow(
        tmp_path / "train" / "data-00000-of-00001.arrow", [row(n, n % 3, int(n % 3 == 2)) for n in range(7)]
    )
    write_arrow(tmp_path / "validation" / "data-00000-of-00001.arrow", [row(7, 1, 0), row(8, -1, 1)])
    manifest = import_manifest("hf", tmp_path)
    # Few classes first, whatever the order of the columns.
    assert manifest.levels == ("coarse", "fine")
    assert manifest.splits == {"train": 7, "val": 2}
    assert manifest.class_paths()[:3] == ["bird/emu", "bird/owl", "tree/oak"]
    assert manifest.class_paths()[8] == "tree"
    for number, file in enumerate(manifest.files()):
        assert read_regular(file, largest=1 << 20) == picture(number)
    assert import_manifest("hf", tmp_path, levels=["note"]).class_paths() == ["x"] * 9
    with pytest.raises(OptionError, match="has no column 'notes' \\(did you mean 'note'"):
        import_manifest("hf", tmp_path, levels=["notes"])


def test_images_outside_the_arrow_file_and_faults(tmp_path):
    file = tmp_path / "mnist-test.arrow"
    (tmp_path / "0.png").write_bytes(picture(0))
    write_arrow(file, [row(0, 0, 0, bytes=None, path=str(tmp_path / "0.png")), row(1, 1, 0)])
    manifest = import_manifest("hf", tmp_path)
    assert manifest.splits == {"test": 2}
    assert [read_regular(one, largest=1 << 20) for one in manifest.files()] == [picture(0), picture(1)]
    write_arrow(file, [row(0, 0, 0, bytes=None)])
    with pytest.raises(DataError, match="row 1 has neither the bytes nor the path"):
        import_manifest("hf", tmp_path)
    write_arrow(file, [row(0, 0, 0)], compression="zstd")
    with pytest.raises(DataError, match="is compressed"):
        import_manifest("hf", tmp_path)
    write_arrow(file, [row(0, 0, 0)], features={"note": FEATURES["note"]})
    with pytest.raises(DataError, match="must have one column of images, got 0"):
        import_manifest("hf", tmp_path)
    write_arrow(file, [row(0, 0, 0)], features={"image": {"_type": "Image"}})
    with pytest.raises(
        OptionError, match="no ClassLabel; name the label columns with --levels: fine, coarse, note"
    ):
        import_manifest("hf", tmp_path)
    file.write_bytes(b"broken")
    with pytest.raises(DataError, match=r"cannot read .*mnist-test\.arrow"):
        import_manifest("hf", tmp_path)


def test_what_the_package_itself_saves(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["emu", "owl"])}
    )
    rows = {"image": [{"bytes": picture(n), "path": None} for n in range(5)], "label": [0, 1, 0, 1, 0]}
    made = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": made, "test": made.select([3, 1])}).save_to_disk(tmp_path / "set")
    manifest = import_manifest("hf", tmp_path / "set")
    assert sorted(manifest.splits.items()) == [("test", 2), ("train", 5)]
    contents = {read_regular(one, largest=1 << 20) for one in manifest.select("test").files()}
    assert contents == {picture(3), picture(1)}


def test_imagefolder(tmp_path):
    for number, name in enumerate(["train/owl/1.png", "train/emu/2.png", "validation/owl/3.png"]):
        (tmp_path / "a" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / name).write_bytes(picture(number))
    manifest = import_manifest("hf", tmp_path / "a", levels=["item"])
    assert manifest.table[["path", "split", "item"]].to_numpy().tolist() == [
        ["train/emu/2.png", "train", "emu"],
        ["train/owl/1.png", "train", "owl"],
        ["validation/owl/3.png", "val", "owl"],
    ]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.png").write_bytes(picture(0))
    (tmp_path / "b" / "metadata.csv").write_text("file_name,kind,item\n1.png,bird,owl\n")
    manifest = import_manifest("hf", tmp_path / "b")
    assert (manifest.levels, manifest.class_paths()) == (("kind", "item"), ["bird/owl"])
    assert manifest.files() == [tmp_path / "b" / "1.png"]


def test_inat2021(tmp_path):
    ranks = {rank: f"{rank}1" for rank in ("kingdom", "phylum", "class", "order", "family", "genus")}
    categories = [
        {"id": 0, "name": "Bubo bubo", **ranks},
        {"id": 1, "name": "Rosa canina", **ranks, "genus": "Rosa"},
    ]
    for name, number in (("train_mini", 1), ("val", 0)):
        content = {
            "images": [{"id": 5, "file_name": f"{name}/0000{number}_x/a.jpg"}],
            "annotations": [{"image_id": 5, "category_id": number}],
            "categories": categories,
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    manifest = import_manifest("inat2021", tmp_path)
    assert manifest.splits == {"train": 1, "val": 1}
    assert manifest.table["path"].tolist() == ["train_mini/00001_x/a.jpg", "val/00000_x/a.jpg"]
    assert manifest.class_paths()[1] == "kingdom1/phylum1/class1/order1/family1/genus1/Bubo bubo"
    (tmp_path / "val.json").write_text("{}")
    with pytest.raises(DataError, match=r"cannot read .*val\.json as iNaturalist 2021: KeyError"):
        import_manifest("inat2021", tmp_path)
